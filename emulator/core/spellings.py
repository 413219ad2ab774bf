"""What a model means by a name that it wrote: the one answer for all readers, checks and bindings.

A written name means, in this order:

1. the offered name itself, without Markdown's backslashes (``get\\_weather``) and a trained namespace
   (``functions.f``);
2. the only offered name that is equal without case and separators (``getWeather``);
3. the only offered name that ends in it after a namespace (``search_files`` for ``mcp__fs__search_files``).
   One word says little: ``delete`` means ``mcp__prod__delete`` only if that tool declares that it reads;
4. an offered name without a namespace, after the name of an offered server (``fs.get_weather``);
5. nothing. No name is found by similarity, and two candidates are none: `candidates` has them for a message.

In Python a dot stays a dot: ``re.search`` is not the tool ``research``, but ``fs.search_files`` may be one.
Which names a program binds itself is not known here (`programs.name_resolution`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from emulator.core.cached_property import cached_property

Offered = TypeVar("Offered")

#: Namespaces in which models were trained to see their tools.
NAMESPACES = frozenset(
    "functions function tools tool default_api api tool_api client self multi_tool_use".split()
)
#: What separates a namespace from a name: ``mcp__server__f``, ``server.f``, ``server/f``, ``server:f``.
_MARK = re.compile(r"__|[./:]")
_LONGEST = 200
_WORD = re.compile(r"[A-Z]*[^\W_A-Z]+|[A-Z]+")


class Spellings(Generic[Offered]):
    """Offered things by name. ``readers`` are the names of tools that declare that they only read."""

    def __init__(self, offered: Mapping[str, Offered], readers: Collection[str] = ()) -> None:
        self._offered = offered
        self._readers = readers

    def find(self, written: str) -> Offered | None:
        """What is offered under the name itself (1)."""
        return self._offered.get(self._trimmed(written))

    def find_near(self, written: str) -> Offered | None:
        """What a name in data means: in JSON, in tags, in native calls."""
        return self._find_like(self._trimmed(written), dot="")

    def find_in_code(self, written: str) -> Offered | None:
        """What a name in Python means, if the program does not bind it."""
        return self._find_like(self._trimmed(written), dot=".")

    def candidates(self, written: str) -> list[str]:
        """The offered names that an unknown name may mean."""
        name = self._trimmed(written[:_LONGEST])
        likely = self._wholes.get(_key(name)) or self._ends.get(_key(name))
        return likely or difflib.get_close_matches(name, [*self._offered], n=1)

    def _trimmed(self, written: str) -> str:
        name = written.strip().replace("\\_", "_")
        while name not in self._offered:
            namespace, dot, rest = name.partition(".")
            if not dot or namespace not in NAMESPACES:
                break
            name = rest
        return name

    def _find_like(self, name: str, dot: str) -> Offered | None:
        if name in self._offered:
            return self._offered[name]
        key = _key(name, dot if "." in name else "")
        if not key:
            return None
        if key in self._wholes:
            return self._only(self._wholes[key])
        if key in self._ends:
            names = self._ends[key]
            is_clear = len(_WORD.findall(name)) > 1 or names[0] in self._readers
            return self._only(names) if is_clear else None
        *server, last = _MARK.split(name)
        if server and _key("".join(server)) in self._servers:
            return self._only(self._wholes.get(_key(last), ()))
        return None

    def _only(self, names: Sequence[str]) -> Offered | None:
        """What the names have in common."""
        found = [self._offered[name] for name in names]
        return found[0] if found and all(one == found[0] for one in found) else None

    @cached_property
    def _wholes(self) -> Mapping[str, list[str]]:
        """Offered names by their keys."""
        return _by_key((name, name) for name in self._offered)

    @cached_property
    def _ends(self) -> Mapping[str, list[str]]:
        """Offered names by the keys of what follows a namespace."""
        return _by_key(
            (name[mark.end() :], name) for name in self._offered for mark in _MARK.finditer(name)
        )

    @cached_property
    def _servers(self) -> Collection[str]:
        """The keys of trained namespaces, and of those of offered names: ``mcp__fs`` and ``fs``."""
        parts = [_MARK.split(name)[:-1] for name in self._offered]
        offered = {"".join(part[start:]) for part in parts for start in range(len(part))}
        return set(map(_key, offered | NAMESPACES))


def _by_key(spellings: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for spelling, name in spellings:
        for key in dict.fromkeys((_key(spelling), _key(spelling, "."))):
            found.setdefault(key, []).append(name)
    return found


def _key(name: str, dot: str = "") -> str:
    """A name without case and separators; ``dot`` stays between a namespace and a name."""
    return dot.join(re.sub(r"[\W_]", "", part.casefold()) for part in _MARK.split(name))
