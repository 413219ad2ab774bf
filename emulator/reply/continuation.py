"""Join a reply that was truncated inside a block with the reply that continues it.

The text of the second reply goes in, the text to read comes out. Models continue in three ways: with the
very next character, with the last line from its start, or with the whole block again. Up to `_ENOUGH`
characters are buffered until it is clear which; reasoning at the start of the second reply passes through.
Sans-IO.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from emulator.reading.openings import FENCES
from emulator.reading.tags import REASONING, Tags

TAIL = 200
"""Characters of the truncated block that the model is shown."""

_ENOUGH = 512
"""Characters of the second reply that show how it continues."""
_SAMPLE = 24
_LINE = range(6, 257)
"""Lengths of a last line for which an equal start is a repetition, not an accident."""
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*(?P<label>[\w+#.\-]+)[^\n]*\n")
_REMARK = re.compile(r"[^\n`<{\[(]{1,200}[:.!]\s*\n\s*")


class Continuation:
    """``cut`` is the truncated block with its opening; ``names`` are the offered functions."""

    def __init__(self, cut: str, names: Collection[str]) -> None:
        self._cut = cut
        self._decided = False
        self._buffer = ""
        self._thinking = ""
        """The closing tag of the reasoning that the second reply is in."""
        self._tail = ""
        beginning = cut.lstrip()
        tag = Tags(names).opening(beginning)
        self._openings = [beginning[:_SAMPLE], *([tag.opening] if tag else [])]
        if fence := _FENCE.match(beginning):
            self._openings.append(fence.group().rstrip())
        last = cut.rpartition("\n")[2].lstrip()
        self._last_line = last if len(last) in _LINE else ""

    def feed(self, text: str) -> str:
        """Return the text to read now: "" until it is clear how the model continues."""
        if self._decided:
            return text
        thought = ""
        if self._thinking:
            thought, text = self._thought(text)
        self._buffer += text
        if not self._thinking and (opening := _opened(self._buffer)):
            self._thinking = REASONING[opening]
            more, self._buffer = self._thought(self._buffer)
            thought += more
        if self._thinking or len(self._buffer) < _ENOUGH:
            return thought
        return thought + self._decide()

    def close(self) -> str:
        """The second reply has ended. Return the rest."""
        return self._tail if self._thinking else "" if self._decided else self._decide()

    def _thought(self, text: str) -> tuple[str, str]:
        """Split ``text`` into reasoning and what follows its closing tag."""
        text, self._tail = self._tail + text, ""
        before, closing, after = text.partition(self._thinking)
        if closing:
            self._thinking = ""
            return before + closing, after
        size = len(text) - len(self._closing_part(text))
        self._tail = text[size:]
        return text[:size], ""

    def _closing_part(self, text: str) -> str:
        """The end of ``text`` that may be the start of the closing tag."""
        lengths = range(len(self._thinking) - 1, 0, -1)
        return next((self._thinking[:n] for n in lengths if text.endswith(self._thinking[:n])), "")

    def _decide(self) -> str:
        self._decided = True
        return self._joined(self._buffer)

    def _joined(self, text: str) -> str:
        """The truncated block with its continuation, or the block that was written again."""
        written = text.lstrip()
        remark = _REMARK.match(written)
        for candidate in (written, written[remark.end() :] if remark else ""):
            if self._starts_block(candidate):
                return candidate
        if self._last_line and written.startswith(self._last_line):
            return self._cut[: len(self._cut) - len(self._last_line)] + written
        return self._cut + text

    def _starts_block(self, text: str) -> bool:
        if any(text.startswith(opening) for opening in self._openings):
            return True
        fence = _FENCE.match(text)
        return fence is not None and fence["label"].lower() in FENCES


def _opened(text: str) -> str | None:
    """The reasoning tag with which ``text`` starts, or None."""
    written = text.lstrip()
    return next((opening for opening in REASONING if written.startswith(opening)), None)
