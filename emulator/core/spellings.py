"""What a model means by a name that it wrote: one answer for all who ask.

Knows the offered names and the habits of models: namespaces (``functions.f``, ``default_api.f``),
Markdown's escaped underscore (``get\\_weather``), and in data (JSON, tags, native calls) another case, or
underscores for dots and hyphens. In Python code these are other names: a program may define a class
``Search`` next to a tool ``search``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

from emulator.core.cached_property import cached_property

Offered = TypeVar("Offered")

#: Namespaces in which models were trained to see their tools. Anything else before a dot is an object
#: of the program: ``re.search`` is not the tool ``search``.
NAMESPACES = frozenset(
    "functions function tools tool default_api api tool_api client self multi_tool_use".split()
)


class Spellings(Generic[Offered]):
    """Offered things by name."""

    def __init__(self, offered: Mapping[str, Offered]) -> None:
        self._offered = offered

    def find(self, written: str) -> Offered | None:
        """What is offered under a name, which may have a namespace before it."""
        return _named(written, self._offered)

    def find_near(self, written: str) -> Offered | None:
        """As `find`; else what differs in nothing but case and the marks between words, if that is one
        thing."""
        found = self.find(written)
        return _named(_plain(written), self._plain) if found is None else found

    @cached_property
    def _plain(self) -> Mapping[str, Offered]:
        plain: dict[str, list[Offered]] = {}
        for name, value in self._offered.items():
            known = plain.setdefault(_plain(name), [])
            if all(value is not one for one in known):
                known.append(value)
        return {name: values[0] for name, values in plain.items() if len(values) == 1}


def _named(written: str, offered: Mapping[str, Offered]) -> Offered | None:
    name = written.strip().replace("\\_", "_")
    while name not in offered:
        namespace, dot, name = name.partition(".")
        if not dot or namespace not in NAMESPACES:
            return None
    return offered[name]


def _plain(name: str) -> str:
    """Dots stay where they may end a namespace."""
    namespace, dot, rest = name.casefold().partition(".")
    if dot and namespace in NAMESPACES:
        return f"{namespace}.{_plain(rest)}"
    return re.sub(r"[.\-]", "_", name.casefold())
