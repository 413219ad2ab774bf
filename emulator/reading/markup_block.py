"""The text of a block of tags and tokens: its end, its line numbers, the JSON in it."""

from __future__ import annotations

import re

from emulator.core.cached_property import cached_property
from emulator.reading.calls import JSON
from emulator.reading.elements import Elements
from emulator.reading.loose_json import values
from emulator.reading.statements import unreadable
from emulator.reading.tool_names import ToolNames

#: DeepSeek's tokens contain look-alikes of bar and space; many tools print the plain characters instead.
_PLAIN = str.maketrans("｜▁", "|_")

_TRAILING = re.compile(r"(?:</?[\w:|.\-]{1,60}>|<\|?[\w/:| ]{1,60}\|?>|\[/?[A-Z_]{1,30}\]|```)\Z")
_LONGEST = 64


class MarkupBlock:
    """The text of a block, as written (`text`) and with look-alike characters replaced (`plain`)."""

    def __init__(self, text: str, names: ToolNames) -> None:
        self.text = text
        self.plain = text.translate(_PLAIN)
        self.names = names
        self._counted, self._line = 0, 1

    @cached_property
    def end(self) -> int:
        """The index at which the tags begin that close the block."""
        return _end(self.plain)

    @cached_property
    def inner(self) -> str:
        """The text before the tags that close the block."""
        return self.text[: self.end]

    @cached_property
    def elements(self) -> Elements:
        return Elements(self.plain, self.text)

    def line(self, at: int) -> int:
        """Return the 1-based line of an index. Indexes must come in ascending order."""
        self._line += self.text.count("\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._line

    def json(self, at: int) -> tuple[JSON, int]:
        """Return the JSON value at an index, and the index after it. Raises Unreadable."""
        for found in values(self.inner, first=True, at=at, line=self.line(at)):
            return found.value, found.end
        raise unreadable("the call is cut off before its arguments", line=self.line(at))


def _end(plain: str) -> int:
    """Return the index at which the tags begin that close a block."""
    end = len(plain)
    while True:
        end = len(plain[:end].rstrip()) if plain[end - 1 : end].isspace() else end
        tag = _TRAILING.search(plain, max(0, end - _LONGEST), end)
        if tag is None:
            return end
        end = tag.start()
