"""One tool's schema while one call is bound: each part expanded once, verdicts on values.

Only the verdict comes from the validator, which finds it in linear time even for recursive schemas;
its explanations of unions grow exponentially with depth (`diagnosis` has its own).
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from emulator.tools import expansion
from emulator.tools.schema import Definitions, Schema
from emulator.tools.validator import compile_validator


class ExpandedSchema:
    """Caches results by the identity of each part, and keeps a reference to the part so that its id
    is not reused.

    Parts created here are reused as well, so a recursive schema has a finite number of parts.
    """

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self._views: dict[int, tuple[Schema, dict[str, Any], expansion.ModelView]] = {}
        self._parts: dict[int, tuple[Schema, tuple[Schema, ...]]] = {}
        self._members: dict[int, tuple[Schema, expansion.Members]] = {}
        self._validators: dict[int, tuple[Schema, jsonschema_rs.Validator]] = {}

    def view(self, part: Schema, seen: expansion.ModelView = frozenset()) -> dict[str, Any]:
        """Return `part` without references and ``allOf``."""
        if id(part) not in self._views:
            view, passed = expansion.expand_seen(part, self.definitions, seen)
            self._views[id(part)] = (part, view, passed)
        return self._views[id(part)][1]

    def alternatives(self, part: Schema) -> tuple[Schema, ...]:
        """Return the alternatives of a union, including those of nested unions: branches, or one
        schema for each type. Returns () if `part` is not a union.
        """
        if id(part) not in self._parts:
            view = self.view(part)
            passed = self._views[id(part)][2]
            kinds = expansion.types(view)
            found: list[Schema] = []
            if expansion.branches(view) and "properties" not in view:
                for branch in expansion.alternatives(view):
                    self.view(branch, passed)  # references already followed are cycles here
                    found += self.alternatives(branch) or (branch,)
            elif len(kinds) > 1:
                found = [{**view, "type": kind} for kind in kinds]
            self._parts[id(part)] = (part, tuple(found))
        return self._parts[id(part)][1]

    def members(self, part: Schema) -> expansion.Members:
        """Return the members that an object under `part` may have."""
        if id(part) not in self._members:
            self._members[id(part)] = (part, expansion.members(part, self.definitions))
        return self._members[id(part)][1]

    def admits(self, value: object, part: Schema) -> bool:
        """Return True if `value` is valid under `part`."""
        if isinstance(part, bool):
            return part
        if id(part) not in self._validators:
            validator = compile_validator({**part, "$defs": dict(self.definitions)})
            self._validators[id(part)] = (part, validator)
        return self._validators[id(part)][1].is_valid(value)

    def matches_kind(self, value: object, part: Schema) -> bool:
        """Return True if a value has the type of an alternative and agrees with its tags
        (``const``).
        """
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
