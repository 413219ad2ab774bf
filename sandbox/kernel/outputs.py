"""Read and count the outputs of a running piece: printed text, displayed pictures, the last value.

Stops: more output than the limit, and messages of a shape that no kernel sends.
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
"""The limit of displayed data (images, HTML), as a multiple of the limit of text."""
_FLOOD = 16
"""Where output is truncated: the multiple of the limit from which on it raises anyway."""


class PieceOutputs:
    """The outputs of one piece."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of text. Output beyond it is dropped and reported as `Truncated`."""
        self._limit = limit
        self._sizes = {"text": 0, "pictures": 0}
        self._printed: list[str] = []
        self.result = Finished()
        """The value of the last expression."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of text and of pictures so far."""
        return dict(self._sizes)

    def add_sizes(self, sizes: Mapping[str, int]) -> None:
        """Count outputs that another process has read."""
        self._sizes |= sizes

    @property
    def printed(self) -> str:
        return "".join(self._printed)

    def read(self, kind: str, content: Message) -> Iterator[Output]:
        """The outputs in a message. Raises SandboxLimit, and TypeError for a malformed message."""
        if kind == "stream":
            yield from self._stream(content)
        elif kind in ("execute_result", "display_data"):
            yield from self._display(content, is_result=kind == "execute_result")

    def _stream(self, content: Message) -> Iterator[Output]:
        text = _text(content["text"])
        accepted = self._accept(text)
        if accepted:
            self._printed.append(accepted)
            yield Printed(accepted, "stderr" if content.get("name") == "stderr" else "stdout")
        if accepted != text:
            yield from self._exceed("text")

    def _display(self, content: Message, *, is_result: bool) -> Iterator[Output]:
        shapes = _shapes(content["data"])
        value = shapes.pop(VALUE_MIME, None)
        text = shapes.get("text/plain", "")
        accepted = self._accept(text)
        self._sizes["pictures"] += sum(
            len(shape) for name, shape in shapes.items() if name != "text/plain"
        )
        if is_result:
            self.result = Finished("", None if value is None else json.loads(value), accepted)
        else:
            self._printed.append(f"{accepted}\n")
        if self._sizes["pictures"] > _PICTURES * self._limit:
            shapes = {}
            yield from self._exceed("pictures")
        yield Displayed({**shapes, "text/plain": accepted}, is_result=is_result)
        if accepted != text:
            yield from self._exceed("text")

    def _accept(self, text: str) -> str:
        """Count `text` and return as much of it as is within the limit."""
        remaining = max(self._limit - self._sizes["text"], 0)
        raw = text.encode(errors="replace")
        self._sizes["text"] += len(raw)
        return text if len(raw) <= remaining else raw[:remaining].decode(errors="ignore")

    def _exceed(self, kind: str) -> Iterator[Output]:
        most = self._limit * (_PICTURES if kind == "pictures" else 1)
        if self._sizes[kind] > _FLOOD * most:
            raise SandboxLimit("output")
        yield Truncated(kind)


def _shapes(data: object) -> dict[str, str]:
    """A MIME bundle as text; shapes that are JSON instead of text are written as JSON."""
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
