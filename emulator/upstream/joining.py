"""Join the pieces of words that arrived together: servers write each piece of a reply in the same frame.

What arrives in one read is seen by a client together, whether in one event or in fifty; decoding and writing
each costs fifty times as much. Two neighbouring events become one only if

* they differ in nothing but the text of ``choices[0].delta.content``, and nothing else in them carries
  information: one choice, and null, or nothing, in its finish_reason, its log probabilities and the other
  fields of its delta (`_Frame` checks that once for each frame);
* each text is complete by itself: valid UTF-8, and valid JSON without half of a surrogate pair.

Everything else passes as it came. Sans-IO.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.core import json_codec

_CONTENT = re.compile(rb'"content": ?"')
_TEXT = re.compile(rb'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*')
"""The inside of a JSON string, without halves of surrogate pairs."""
_MARK = "\uf8ff"
"""Stands for the text when a frame is checked; any text would do."""


@dataclass(frozen=True)
class _Frame:
    """An event before and after its text."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, event: bytes) -> _Frame | None:
        """The frame of an event that may be joined with its neighbours; None for any other."""
        found = _CONTENT.search(event)
        if found is None:
            return None
        text = _TEXT.match(event, found.end())
        assert text is not None
        frame = cls(event[: found.end()], event[text.end() :])
        return frame if frame._carries_only_text() else None

    def around(self, text: bytes) -> bytes:
        return b"%b%b%b" % (self.before, text, self.after)

    def _carries_only_text(self) -> bool:
        try:
            chunk = json_codec.loads(self.around(_MARK.encode()))
        except json_codec.NotJSON:
            return False
        match chunk:
            case {
                "choices": [{"index": int(), "delta": {"content": text, **others}, **choice}],
                **fields,
            }:
                informs = any(value is not None for value in (*others.values(), *choice.values()))
                return text == _MARK and not (informs or fields.get("usage") or fields.get("error"))
        return False


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class Joiner:
    """Joins the events of one reply; remembers its frame, which most servers keep to the end."""

    def __init__(self) -> None:
        self._frame: _Frame | None = None

    def join(self, events: Sequence[bytes]) -> list[bytes]:
        """The events of one read, with neighbours that may be joined as one."""
        if len(events) < 2:
            return [*events]
        found: list[bytes] = []
        texts: list[bytes] = []
        frame, is_complete = self._frame, _TEXT.fullmatch
        for event in events:
            if not (frame and event.startswith(frame.before) and event.endswith(frame.after)):
                self._end(texts, found)
                self._frame = frame = _Frame.of(event)
                if frame is None:
                    found.append(event)
                    continue
            start, end = len(frame.before), len(event) - len(frame.after)
            if is_complete(event, start, end) and (event.isascii() or _is_utf8(event[start:end])):
                texts.append(event[start:end])
            else:
                self._end(texts, found)
                found.append(event)
        self._end(texts, found)
        return found

    def _end(self, texts: list[bytes], found: list[bytes]) -> None:
        if texts and self._frame:
            found.append(self._frame.around(b"".join(texts)))
            texts.clear()
