"""The one question of the agreement, and the grammar of its answers. Knows nothing of prompts and replies.

The model is asked about what looks like a call and is not marked, cannot run as it is, or was written by
another author. The first line of its answer decides, after reasoning and the line that opens a fence:

| the first line | the answer |
|---|---|
| RUN, and nothing but punctuation, "it", "exactly as written" or the call itself | the blocks run |
| it begins with NO, or it has both RUN and NO | final: nothing runs, whatever follows |
| anything else | a marked block, or the block again alone, runs (`judge`); words leave the first reply |

About a quotation only RUN decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from emulator.reply.quotations import squeezed

_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\s*\w*\s*")
_RUN = re.compile(r"\W*run\b(?P<rest>.*)", re.IGNORECASE)
_NO = re.compile(r"\W*no\b", re.IGNORECASE)
_EXACTLY = re.compile(r"(?:\W+it\b)?(?:\W+exactly as written\b)?[^\w?]*", re.IGNORECASE)
_AROUND_CALL = " \t:*_`.,-"


class Answer(Enum):
    """What the first line of an answer says."""

    RUN = auto()
    NO = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Question:
    """What the model was asked about."""

    blocks: tuple[str, ...]
    """The text of each block, without its fence."""
    is_quoted: bool = False
    """Another author wrote a part of it."""
    has_faults: bool = False
    """The question said why it cannot run."""
    reason: str = ""
    """The row of the judge that led to the question."""

    def read(self, text: str) -> Answer:
        """Read an answer, without its reasoning."""
        lines = (line for line in text.splitlines() if line.strip() and not _FENCE.fullmatch(line))
        line = next(lines, "")
        run = _RUN.match(line)
        if _NO.match(line) or (run and re.search(r"\bno\b", run["rest"], re.IGNORECASE)):
            return Answer.NO
        if run and self._says_nothing_else(run["rest"]):
            return Answer.RUN
        return Answer.OTHER

    def is_repeated_by(self, text: str) -> bool:
        """Return True if a block answers the question when it is the whole answer: it is what was asked
        about, or may be its correction."""
        if self.is_quoted:
            return False
        return self.has_faults or squeezed(text) in map(squeezed, self.blocks)

    def _says_nothing_else(self, rest: str) -> bool:
        call = squeezed(rest.strip(_AROUND_CALL))
        return bool(_EXACTLY.fullmatch(rest)) or call in map(squeezed, self.blocks)
