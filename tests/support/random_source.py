"""Random Python from the rules of a grammar. Knows nothing of tools."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Mapping

STATEMENTS = frozenset({"statement", "block"})
"""The rules of statements; all others are of expressions."""
_PART = re.compile(r"^( +)?<(\w+)(?: (\d))?(?: (\w+))?>|<(\w+)(?: (\d))?(?: (\w+))?>", re.MULTILINE)


class SourceWriter:
    """Writes source by ``rules``: the name of a rule -> its alternatives, separated by blank space and a bar.

    In an alternative, ``<rule>`` is replaced by that rule's expansion, indented as it is itself; ``<rule 2>``
    is one that is already two levels deep, ``<rule x>`` one in which the variable x exists; ``~`` is that
    variable, or one of the rule ``variable``; ``@`` is a number that no other alternative has. At the
    ``depth`` limit, only alternatives that do not nest are chosen.
    """

    def __init__(self, source: random.Random, rules: Mapping[str, str], depth: int) -> None:
        self.random = source
        self.rules = {name: re.split(r"\s+\| ", text.strip()) for name, text in rules.items()}
        self.depth = depth
        self.number = 0

    def write(self, rule: str, depth: int = 0, variable: str = "") -> str:
        options = self.rules[rule]
        if depth >= self.depth:
            options = [one for one in options if not self._nests(rule, one)] or options
        self.number += 1
        text = self.random.choice(options).replace("@", str(self.number))
        text = re.sub("~", lambda _: variable or self.write("variable"), text)

        def expanded(match: re.Match[str]) -> str:
            indent, name, level, inner = match.groups()[:4]
            if name is None:
                name, level, inner = match.groups()[4:]
            deeper = depth + 1 if (name in STATEMENTS) == (rule in STATEMENTS) else 0
            part = self.write(name, int(level or deeper), inner or variable)
            return textwrap.indent(part, indent or "")

        return _PART.sub(expanded, text)

    def _nests(self, rule: str, alternative: str) -> bool:
        names = re.findall(r"<(\w+)", alternative)
        return any((name in STATEMENTS) == (rule in STATEMENTS) for name in names)
