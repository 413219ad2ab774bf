"""What a kernel says while a piece runs, counted: printed text, displayed pictures, the last value.

Stops: more than may be printed or displayed, and messages of a shape that no kernel sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from sandbox.engine import Finished
from sandbox.errors import SandboxLimit
from sandbox.inside.values import VALUE_MIME
from sandbox.kernel.connection import Message
from sandbox.outputs import Displayed, Output, Printed, Truncated

_PICTURES = 64
"""What is displayed (images, HTML) may take so many times what is printed."""
_FLOOD = 16
"""Where what is too much is dropped: so many times as much is not borne all the same."""


class Outputs:
    """The outputs of one piece."""

    def __init__(self, limit: int, *, lenient: bool) -> None:
        """``limit``: bytes of text. With ``lenient`` what is beyond it is dropped, and that is said."""
        self._limit = limit
        self._lenient = lenient
        self._sizes = {"text": 0, "pictures": 0}
        self._printed: list[str] = []
        self.shown = Finished()
        """The value of the last expression."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of text and of pictures so far."""
        return dict(self._sizes)

    def count(self, sizes: Mapping[str, int]) -> None:
        """What the piece had put out elsewhere counts, too."""
        self._sizes |= sizes

    @property
    def printed(self) -> str:
        return "".join(self._printed)

    def read(self, kind: str, content: Message) -> Iterator[Output]:
        """The outputs that a message tells of. Raises SandboxLimit, and TypeError for an odd message."""
        if kind == "stream":
            yield from self._stream(content)
        elif kind in ("execute_result", "display_data"):
            yield from self._display(content, is_result=kind == "execute_result")

    def _stream(self, content: Message) -> Iterator[Output]:
        text = _text(content["text"])
        within = self._within(text)
        if within:
            self._printed.append(within)
            yield Printed(within, "stderr" if content.get("name") == "stderr" else "stdout")
        if within != text:
            yield from self._too_much("text")

    def _display(self, content: Message, *, is_result: bool) -> Iterator[Output]:
        shapes = _shapes(content["data"])
        value = shapes.pop(VALUE_MIME, None)
        text = shapes.get("text/plain", "")
        within = self._within(text)
        self._sizes["pictures"] += sum(
            len(shape) for name, shape in shapes.items() if name != "text/plain"
        )
        if is_result:
            self.shown = Finished("", None if value is None else json.loads(value), within)
        else:
            self._printed.append(f"{within}\n")
        if self._sizes["pictures"] > _PICTURES * self._limit:
            shapes = {}
            yield from self._too_much("pictures")
        yield Displayed({**shapes, "text/plain": within}, is_result=is_result)
        if within != text:
            yield from self._too_much("text")

    def _within(self, text: str) -> str:
        """As much of ``text`` as may still be told."""
        left = max(self._limit - self._sizes["text"], 0)
        raw = text.encode(errors="replace")
        self._sizes["text"] += len(raw)
        return text if len(raw) <= left else raw[:left].decode(errors="ignore")

    def _too_much(self, what: str) -> Iterator[Output]:
        most = self._limit * (_PICTURES if what == "pictures" else 1)
        if not self._lenient or self._sizes[what] > _FLOOD * most:
            raise SandboxLimit("output")
        yield Truncated(what)


def _shapes(data: object) -> dict[str, str]:
    """A MIME bundle as text; shapes that are JSON, not text, are written as such."""
    if not isinstance(data, Mapping):
        raise TypeError("not a MIME bundle")
    shapes = {}
    for name, shape in data.items():
        shapes[_text(name)] = shape if isinstance(shape, str) else json.dumps(shape)
    return shapes


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
