"""Join a reply that was cut off inside a block with what the model writes when it is asked to go on.

Sans-IO: the text of the further reply in, the text to be read out. Models go on in three ways: with the very
next character, with the last line again from its beginning, or with the whole block again.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from emulator.reading.openings import FENCES
from emulator.reading.tags import REASONING, Tags

TAIL = 200
"""Characters of the cut block that the model is shown."""

_ENOUGH = 512
"""Characters of the further reply that say how it goes on."""
_SAMPLE = 24
_LINE = range(6, 257)
"""Lengths of a last line whose repetition is one, and no accident."""
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*(?P<label>[\w+#.\-]+)[^\n]*\n")
_REMARK = re.compile(r"[^\n`<{\[(]{1,200}[:.!]\s*\n\s*")


class Continuation:
    """``cut`` is the block that was cut off, from its opening on; ``names`` the offered functions."""

    def __init__(self, cut: str, names: Collection[str]) -> None:
        self._cut = cut
        self._decided = False
        self._held = ""
        self._thinking = ""
        """What closes the reasoning that the further reply is in."""
        self._tail = ""
        beginning = cut.lstrip()
        tag = Tags(names).opening(beginning)
        self._openings = [beginning[:_SAMPLE], *([tag.opening] if tag else [])]
        if fence := _FENCE.match(beginning):
            self._openings.append(fence.group().rstrip())
        last = cut.rpartition("\n")[2].lstrip()
        self._last_line = last if len(last) in _LINE else ""

    def feed(self, text: str) -> str:
        """What can be read now: "" while it is open how the model goes on."""
        if self._decided:
            return text
        thought = ""
        if self._thinking:
            thought, text = self._thought(text)
        self._held += text
        if not self._thinking and (opening := _opened(self._held)):
            self._thinking = REASONING[opening]
            more, self._held = self._thought(self._held)
            thought += more
        if self._thinking or len(self._held) < _ENOUGH:
            return thought
        return thought + self._decide()

    def close(self) -> str:
        """The rest; the further reply has ended."""
        return self._tail if self._thinking else "" if self._decided else self._decide()

    def _thought(self, text: str) -> tuple[str, str]:
        """What of ``text`` is reasoning, and what follows its closing tag."""
        text, self._tail = self._tail + text, ""
        before, closing, after = text.partition(self._thinking)
        if closing:
            self._thinking = ""
            return before + closing, after
        kept = len(text) - len(self._closing_part(text))
        self._tail = text[kept:]
        return text[:kept], ""

    def _closing_part(self, text: str) -> str:
        """The end of ``text`` that may become the closing tag."""
        lengths = range(len(self._thinking) - 1, 0, -1)
        return next((self._thinking[:n] for n in lengths if text.endswith(self._thinking[:n])), "")

    def _decide(self) -> str:
        self._decided = True
        return self._joined(self._held)

    def _joined(self, text: str) -> str:
        """The block with what follows it, or the block as it was written anew."""
        written = text.lstrip()
        remark = _REMARK.match(written)
        for anew in (written, written[remark.end() :] if remark else ""):
            if self._is_anew(anew):
                return anew
        if self._last_line and written.startswith(self._last_line):
            return self._cut[: len(self._cut) - len(self._last_line)] + written
        return self._cut + text

    def _is_anew(self, text: str) -> bool:
        if any(text.startswith(opening) for opening in self._openings):
            return True
        fence = _FENCE.match(text)
        return fence is not None and fence["label"].lower() in FENCES


def _opened(text: str) -> str | None:
    """The tag that opens reasoning, where ``text`` begins with one."""
    written = text.lstrip()
    return next((opening for opening in REASONING if written.startswith(opening)), None)
