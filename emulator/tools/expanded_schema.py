"""One tool's schema while one call is bound: parts expanded once, verdicts on values.

Only the verdict is asked of the validator, which finds it in linear time, recursion or not; its
explanations of unions grow exponentially with depth (`diagnosis` has its own).
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from emulator.tools import expansion
from emulator.tools.schema import Definitions, Schema
from emulator.tools.validator import compile_validator


class ExpandedSchema:
    """Remembers by identity what it made of each part, and keeps the part: an id must not pass on.

    Since parts that were made here are handed out again, a recursive schema has finitely many.
    """

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self._views: dict[int, tuple[Schema, dict[str, Any], expansion.Seen]] = {}
        self._parts: dict[int, tuple[Schema, tuple[Schema, ...]]] = {}
        self._members: dict[int, tuple[Schema, expansion.Members]] = {}
        self._validators: dict[int, tuple[Schema, jsonschema_rs.Validator]] = {}

    def view(self, part: Schema, seen: expansion.Seen = frozenset()) -> dict[str, Any]:
        """`part` without references and ``allOf``."""
        if id(part) not in self._views:
            view, passed = expansion.expand_seen(part, self.definitions, seen)
            self._views[id(part)] = (part, view, passed)
        return self._views[id(part)][1]

    def alternatives(self, part: Schema) -> tuple[Schema, ...]:
        """What `part` is a union of, unions inside it included: branches, or one schema for each
        type; () for no union."""
        if id(part) not in self._parts:
            view = self.view(part)
            passed = self._views[id(part)][2]
            kinds = expansion.types(view)
            found: list[Schema] = []
            if expansion.branches(view) and "properties" not in view:
                for branch in expansion.alternatives(view):
                    self.view(branch, passed)  # what led here leads nowhere new from here
                    found += self.alternatives(branch) or (branch,)
            elif len(kinds) > 1:
                found = [{**view, "type": kind} for kind in kinds]
            self._parts[id(part)] = (part, tuple(found))
        return self._parts[id(part)][1]

    def members(self, part: Schema) -> expansion.Members:
        """What an object under `part` may hold."""
        if id(part) not in self._members:
            self._members[id(part)] = (part, expansion.members(part, self.definitions))
        return self._members[id(part)][1]

    def admits(self, value: object, part: Schema) -> bool:
        """Whether `value` is valid under `part`."""
        if isinstance(part, bool):
            return part
        if id(part) not in self._validators:
            validator = compile_validator({**part, "$defs": dict(self.definitions)})
            self._validators[id(part)] = (part, validator)
        return self._validators[id(part)][1].is_valid(value)

    def matches_kind(self, value: object, part: Schema) -> bool:
        """Whether a value is of an alternative's kind, and its tags (``const``) agree."""
        view = self.view(part)
        kinds = expansion.types(view)
        if kinds and not any(expansion.is_of(value, kind) for kind in kinds):
            return False
        if not isinstance(value, dict):
            return True
        tags = {k: s for k, s in view.get("properties", {}).items() if _is_tag(self.view(s))}
        return all(k not in value or self.admits(value[k], tags[k]) for k in tags)


def _is_tag(view: dict[str, Any]) -> bool:
    return "const" in view or len(view.get("enum", ())) == 1
