"""The rules of a grammar while it is written. Knows nothing of schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from emulator.answering.grammar.strings import CHARACTER

LONGEST = 300_000
"""Characters of a grammar. One that is longer costs the server more than it gives."""

_DEPTH = 5
"""Of a value of which a schema says nothing."""


class UnusableGrammar(ValueError):
    """The tools need more rules than a server should be asked to keep, or none of them can be called."""


class NoValue(ValueError):
    """Nothing that could be written here is valid."""


class GrammarRules:
    """Named expressions, each added once."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._length = 0

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    def add(self, name: str, body: str) -> str:
        """Returns the name. Raises `UnusableGrammar`."""
        self._rules[name] = body
        self._length += len(name) + len(body)
        if self._length > LONGEST:
            raise UnusableGrammar(f"a grammar of more than {LONGEST} characters")
        return name

    def leaf(self, name: str) -> str:
        """A rule of `LEAVES`, added with those that it needs at its first use."""
        if name not in self:
            self.add(
                name, re.sub("<([a-z0-9-]+)>", lambda found: self.leaf(found[1]), LEAVES[name])
            )
        return name

    def text(self) -> str:
        """One rule a line, ``root`` first."""
        names = sorted(self._rules, key=lambda name: name != "root")
        return "".join(f"{name} ::= {self._rules[name]}\n" for name in names)


def _leaves() -> Mapping[str, str]:
    leaves = {
        "character": CHARACTER,
        "string": r'"\"" <character>* "\""',
        "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
        "number": '<integer> ("." [0-9]{1,14})?',
        "boolean": '"True" | "False"',
        "null": '"None"',
    }
    scalars = "<string> | <number> | <boolean> | <null>"
    for depth in range(_DEPTH + 1):
        suffix, deeper = f"-{depth}" if depth else "", f"<value-{depth + 1}>"
        if depth == _DEPTH:
            leaves[f"value{suffix}"] = scalars
            continue
        leaves[f"value{suffix}"] = f"{scalars} | <array{suffix}> | <object{suffix}>"
        leaves[f"array{suffix}"] = f'"[" ({deeper} (", " {deeper})*)? "]"'
        leaves[f"object{suffix}"] = (
            f'"{{" (<string> ": " {deeper} (", " <string> ": " {deeper})*)? "}}"'
        )
    return leaves


LEAVES = _leaves()
"""Rules that depend on no schema, by JSON type; <name> refers to another."""
