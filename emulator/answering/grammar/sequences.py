"""What lists, objects and calls have in common: sequences with optional parts, and recursive definitions."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.answering.grammar.rules import GrammarRules, NoValue
from emulator.tools.schema import Definitions, Schema, children, reference

_MAX_REFERENCES = 200


def chain(
    rules: GrammarRules, parts: Sequence[tuple[str, bool]], place: str, least: int, most: int | None
) -> str:
    """Return the expression for `least` to `most` of the parts, separated by commas.

    ``parts`` are pairs: an expression, and whether it is required. The required parts come first, then any of
    the others, each group in its order. Rules get names that start with ``place``. Raises `NoValue`.
    """
    required = [part for part, is_required in parts if is_required]
    optional = [part for part, is_required in parts if not is_required]
    most = len(parts) if most is None else min(most, len(parts))
    if len(required) > most or least > most:
        raise NoValue
    is_free = most == len(parts) and least <= len(required)

    def tail(n: int, count: int) -> str:
        """Return the rule for the optional parts from `n` on, after `count` parts."""
        if n == len(optional) or count == most:
            return ""
        name = f"{place}-then-{n}" + (f"-{count}" if not is_free else "" if count else "-first")
        if name not in rules:
            rules.add(name, "")
            following = tail(n + 1, 1 if is_free and count else count + 1)
            one = f"{comma if count else ''}{optional[n]} {following}".strip()
            remaining = len(optional) - n - 1
            if count + remaining < least:
                rules.add(name, one)
            else:
                without = tail(n + 1, count)
                rules.add(name, f"{one} | {without}" if without else f"({one})?")
        return name

    comma = '", " '
    beginning = f" {comma}".join(required)
    return f"{beginning} {tail(0, len(required))}".strip()


class Recursion:
    """Finds definitions that contain themselves. One with very many references counts as recursive."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._known: dict[str, bool] = {}

    def affects(self, name: str) -> bool:
        """Return True if the definition ``name`` is recursive."""
        if name not in self._known:
            self._known[name] = self._leads_back(name)
        return self._known[name]

    def _leads_back(self, name: str) -> bool:
        seen: set[str] = set()
        waiting: list[Schema] = [self._definitions.get(name, {})]
        while waiting and name not in seen and len(seen) < _MAX_REFERENCES:
            node = waiting.pop()
            found = reference(node)
            if found is not None and found not in seen:
                seen.add(found)
                waiting.append(self._definitions.get(found, {}))
            waiting.extend(children(node))
        return bool(waiting) or name in seen
