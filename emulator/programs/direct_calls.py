"""Calls of tools that a program may not call: they are the model's own, and it must see their results.

A program may begin such calls once its own calls have results; from then on each call is the model's own.
After the first result the program ends before its next call, unless it consists only of calls: then none of
them depends on a result. If programs may call all tools, nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset

Site = tuple[int, str]
"""A call in the source: its line, and the tool's name."""


class DirectCalls:
    """The model's own calls of one run."""

    def __init__(self, *, is_plain: bool) -> None:
        """``is_plain``: the program consists only of calls."""
        self._is_plain = is_plain
        self._have_begun = False
        self.first_result: Site | None = None
        """The first of them whose result is known."""

    def is_first(self, tool: Tool) -> bool:
        """Return True if a call of the tool would be the first."""
        return tool.is_direct_only and not self._have_begun

    def note(self, tool: Tool, site: Site, *, known: bool) -> None:
        """Note a call of the run."""
        self._have_begun |= tool.is_direct_only
        if known:
            self.note_result(site)

    def note_result(self, site: Site) -> None:
        if self._have_begun:
            self.first_result = self.first_result or site

    def ends_before(self, tool: Tool) -> bool:
        """Return True if the program ends before a new call of the tool."""
        after_result = self.first_result is not None and not self._is_plain
        return self._have_begun and (after_result or tool.is_program_only)


def direct_call_ids(ids: Sequence[str], names: Sequence[str], toolset: Toolset) -> tuple[str, ...]:
    """The ids of the calls that are the model's own; ``names`` are those of the tools, in the same order."""
    tools = map(toolset.find, names)
    own = (n for n, tool in enumerate(tools) if tool is not None and tool.is_direct_only)
    return tuple(ids[next(own, len(ids)) :])
