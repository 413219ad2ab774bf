"""A block of tags and tokens as one text that is read from left to right: its end, its lines, JSON in it."""

from __future__ import annotations

import re
from functools import cached_property

from emulator.reading.calls import JSON
from emulator.reading.elements import Elements
from emulator.reading.loose_json import values
from emulator.reading.statements import unreadable
from emulator.reading.tool_names import ToolNames

#: DeepSeek's tokens use look-alikes of bar and space; so many tools print them plain.
_PLAIN = str.maketrans("｜▁", "|_")

_TRAILING = re.compile(r"(?:</?[\w:|.\-]{1,60}>|<\|?[\w/:| ]{1,60}\|?>|\[/?[A-Z_]{1,30}\]|```)\Z")
_LONGEST = 64


class MarkupBlock:
    """The text of a block, as it was written and with look-alikes made plain."""

    def __init__(self, text: str, names: ToolNames) -> None:
        self.text = text
        self.plain = text.translate(_PLAIN)
        self.names = names
        self._counted, self._line = 0, 1

    @cached_property
    def end(self) -> int:
        """Where the tags begin that close the block."""
        return _end(self.plain)

    @cached_property
    def inner(self) -> str:
        """The text before the tags that close the block."""
        return self.text[: self.end]

    @cached_property
    def elements(self) -> Elements:
        return Elements(self.plain, self.text)

    def line(self, at: int) -> int:
        """The 1-based line of a place; places are asked for in order."""
        self._line += self.text.count("\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._line

    def json(self, at: int) -> tuple[JSON, int]:
        """The JSON value at a place, and the place behind it. Raises Unreadable."""
        for found in values(self.inner, first=True, at=at, line=self.line(at)):
            return found.value, found.end
        raise unreadable("the call is cut off before its arguments", line=self.line(at))


def _end(plain: str) -> int:
    """Where the tags begin that close a block."""
    end = len(plain)
    while True:
        end = len(plain[:end].rstrip()) if plain[end - 1 : end].isspace() else end
        tag = _TRAILING.search(plain, max(0, end - _LONGEST), end)
        if tag is None:
            return end
        end = tag.start()
