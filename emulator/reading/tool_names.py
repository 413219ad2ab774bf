"""The offered names, as readers of replies look for them. Knows nothing of schemas."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from emulator.core.cached_property import cached_property
from emulator.core.command_tools import COMMAND_TOOLS, PATCH_TOOL
from emulator.core.spellings import NAMESPACES, Spellings
from emulator.reading.lexing import outside_strings_only

#: A name as models write it: with dots, hyphens and Markdown's backslashes.
WRITTEN_NAME = re.compile(r"[^\W\d](?:\w|\\_)*(?:[.\-][^\W\d](?:\w|\\_)*)*")


class ToolNames(Collection[str]):
    """The offered names. As a collection: every spelling that means one of them.

    `names` are Python names, or a mapping of written (wire) name to Python name. ``models`` are the names
    of the classes that the stubs show, ``readers`` those of tools that declare that they only read.
    ``forced``: one function is offered and must be called, so that an object without its name may be its
    arguments.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        models: frozenset[str] = frozenset(),
        *,
        readers: frozenset[str] = frozenset(),
        forced: bool = False,
    ) -> None:
        self.models = models
        self.forced = forced
        pairs = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        self._python = {name: name for name in pairs.values()} | pairs
        self._spellings = Spellings(self._python, readers)
        odd = [name for name in self._python if not name.replace(".", "_").isidentifier()]
        odd.sort(key=len, reverse=True)  # the longest match wins
        self._odd = (
            re.compile(rf"(?<![\w.\-])(?:{'|'.join(map(re.escape, odd))})(?=\s*\()")
            if odd
            else None
        )

    @staticmethod
    def of(names: Collection[str]) -> ToolNames:
        """Return ``names`` as ToolNames. Building them takes time if there are many, so they are
        reused.
        """
        return names if isinstance(names, ToolNames) else ToolNames(names)

    def __len__(self) -> int:
        return len(self._python)

    def __iter__(self) -> Iterator[str]:
        return iter(self._python)

    def __contains__(self, written: object) -> bool:
        return written in self._python

    def find(self, written: str) -> str | None:
        """Return the Python name of the function that `written` means, or None if it is not
        offered.
        """
        return self._spellings.find(written)

    def find_near(self, written: str) -> str | None:
        """As `find`, for a name in data, which may be written in another way (`Spellings`)."""
        return self._spellings.find_near(written)

    def find_in_code(self, written: str) -> str | None:
        """As `find_near`, for a name in Python."""
        return self._spellings.find_in_code(written)

    @cached_property
    def command(self) -> str | None:
        """The Python name of the command tool, if exactly one is offered."""
        found = {self._python[name] for name in self._python if name.lower() in COMMAND_TOOLS}
        return found.pop() if len(found) == 1 else None

    @property
    def patch(self) -> str | None:
        """The Python name of the tool that applies patches."""
        return self._python.get(PATCH_TOOL)

    def runs_commands(self, written: str) -> bool:
        """Return True if ``written`` means the command tool, by its own or another usual name."""
        return self.command is not None and (
            written.lower() in COMMAND_TOOLS or self.find(written) == self.command
        )

    def may_become(self, written: str) -> bool:
        """Return True if more characters could turn ``written`` into an offered name."""
        name = written.replace("\\_", "_")
        namespace, dot, rest = name.partition(".")
        if dot and namespace in NAMESPACES and self.may_become(rest):
            return True
        return any(known.startswith(name) for known in (*self._python, *NAMESPACES))

    def respell(self, source: str) -> str:
        """Replace offered names that are not valid Python, such as ``get-time``, outside strings."""
        if self._odd is None:
            return source
        odd = self._odd
        return outside_strings_only(
            lambda code: odd.sub(lambda match: self._python[match.group()], code)
        )(source)


@lru_cache(maxsize=64)  # clients send the same tools with every request
def cached_tool_names(
    names: frozenset[str] | tuple[tuple[str, str], ...],
    models: frozenset[str] = frozenset(),
    readers: frozenset[str] = frozenset(),
    *,
    forced: bool = False,
) -> ToolNames:
    """Return the ToolNames of Python names, or of pairs (written name, Python name)."""
    pairs = dict(names) if isinstance(names, tuple) else names
    return ToolNames(pairs, models, readers=readers, forced=forced)
