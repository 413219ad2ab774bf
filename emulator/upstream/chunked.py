"""Decode the chunked transfer coding (RFC 9112, section 7.1), sans-IO.

``http.client`` reads one chunk per call, and an upstream sends one chunk per event. This decoder returns the
content of every chunk that has arrived in one piece. Knows nothing of sockets.

States: for each chunk SIZE (its first line), CONTENT (``_remaining`` > 0), LINE_END; the chunk of size 0
leads to TRAILERS, and an empty line to ENDED. Input that does not fit its state raises `BadChunk`. After that
the connection must not be used again, since nobody knows where the body ends.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_MAX_LINE = 16 * 1024
_MAX_TRAILERS = 100


class BadChunk(ValueError):
    """The response says that its body is chunked, and it is not."""


class _State(Enum):
    SIZE = auto()
    CONTENT = auto()
    LINE_END = auto()
    TRAILERS = auto()
    ENDED = auto()


class ChunkedDecoder:
    def __init__(self) -> None:
        self.rest = b""
        """An incomplete line; after the end of the body: bytes that do not belong to it."""
        self._state = _State.SIZE
        self._remaining = 0
        """Bytes of the current chunk that have not arrived."""
        self._trailers = 0

    @property
    def ended(self) -> bool:
        """True after the last chunk and its trailers."""
        return self._state is _State.ENDED

    def feed(self, data: bytes) -> bytes:
        """Return the content in ``data``. Raises `BadChunk`."""
        if self.rest:
            data = self.rest + data
        position, size = 0, len(data)
        content = []
        while position < size and self._state is not _State.ENDED:
            if self._state is _State.CONTENT:
                piece = data[position : position + self._remaining]
                content.append(piece)
                position += len(piece)
                self._remaining -= len(piece)
                if not self._remaining:
                    has_line_end = data[position : position + 2] == b"\r\n"
                    position += 2 * has_line_end
                    self._state = _State.SIZE if has_line_end else _State.LINE_END
                continue
            end = data.find(b"\n", position, position + _MAX_LINE)
            if end < 0:
                if size - position >= _MAX_LINE:
                    raise BadChunk("a line of its chunked framing has no end")
                break
            self._read_line(data[position : end + 1])
            position = end + 1
        self.rest = data[position:]
        return content[0] if len(content) == 1 else b"".join(content)

    def close(self) -> None:
        """The connection has ended. Raises `BadChunk` unless the last chunk has arrived.

        Some servers omit the empty line after it.
        """
        if self._state not in (_State.TRAILERS, _State.ENDED):
            raise BadChunk("the connection ended in the middle of the body")
        self._state = _State.ENDED

    def _read_line(self, line: bytes) -> None:
        is_empty = line in (b"\r\n", b"\n")
        if self._state is _State.LINE_END:
            if not is_empty:
                raise BadChunk("a chunk is longer than its declared size")
            self._state = _State.SIZE
        elif self._state is _State.TRAILERS:
            self._trailers += 1
            if is_empty:
                self._state = _State.ENDED
            elif self._trailers > _MAX_TRAILERS:
                raise BadChunk("its chunked framing has too many trailers")
        elif (size := _SIZE.fullmatch(line)) is None:
            raise BadChunk("a chunk does not declare its size")
        else:
            self._remaining = int(size[1], 16)
            self._state = _State.CONTENT if self._remaining else _State.TRAILERS
