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
        self._held += text
        thought = _leading_reasoning(self._held)
        if thought is None or len(self._held) < thought + _ENOUGH:
            return ""
        return self._decide(thought)

    def close(self) -> str:
        """The rest; the further reply has ended."""
        return "" if self._decided else self._decide(_leading_reasoning(self._held) or 0)

    def _decide(self, thought: int) -> str:
        self._decided = True
        return self._held[:thought] + self._joined(self._held[thought:])

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


def _leading_reasoning(text: str) -> int | None:
    """Where the reasoning that begins ``text`` ends, 0 if none does; None while that is open."""
    written = text.lstrip()
    for opening, closing in REASONING.items():
        if written.startswith(opening):
            end = text.find(closing)
            return end + len(closing) if end >= 0 else None
        if opening.startswith(written):
            return None
    return 0
