"""Collect the rules of a grammar. Knows nothing of schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from emulator.answering.grammar.strings import CHARACTER

LONGEST = 300_000
"""The most characters of a grammar. A longer grammar costs the server more than it is worth."""

_DEPTH = 5
"""How deeply arrays and objects may be nested in a value that no schema describes."""


class UnusableGrammar(ValueError):
    """The grammar would be too long, or none of the tools can be called."""


class NoValue(ValueError):
    """No value is valid by the schema, or the grammar cannot express one."""


class GrammarRules:
    """Named expressions, each added once."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._length = 0

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    def add(self, name: str, body: str) -> str:
        """Add or replace a rule and return its name. Raises `UnusableGrammar`."""
        self._rules[name] = body
        self._length += len(name) + len(body)
        if self._length > LONGEST:
            raise UnusableGrammar(f"a grammar of more than {LONGEST} characters")
        return name

    def leaf(self, name: str) -> str:
        """Return the name of a rule of `LEAVES`. Its first use adds the rule and those that it refers to."""
        if name not in self:
            self.add(
                name, re.sub("<([a-z0-9-]+)>", lambda found: self.leaf(found[1]), LEAVES[name])
            )
        return name

    def text(self) -> str:
        """Return the grammar: one rule per line, ``root`` first."""
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
"""The rules that depend on no schema, by JSON type. ``<name>`` in a rule refers to another of these rules."""
