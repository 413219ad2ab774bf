"""The chunked transfer coding (RFC 9112, 7.1), read sans-IO: all that has come, in one piece.

``http.client`` reads one chunk at a time, and an upstream sends one for each event. Knows nothing of sockets.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_MOST_LINE = 16 * 1024
_MOST_TRAILERS = 100


class BadChunk(ValueError):
    """The body is not in chunks, though its head says so."""


class ChunkedDecoder:
    """Bytes in, content out; `ended` behind the last chunk and its trailers, `rest` being what came after."""

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""
        """The beginning of a line, until the end; then what does not belong to the body."""
        self._left = 0
        """Bytes of the chunk that are to come."""
        self._closing = False
        """A chunk's content has come, and the end of line behind it is to come."""
        self._trailers: int | None = None
        """How many have come; None before the last chunk."""
        self._between = True
        """The next thing is a chunk's first line, of which nothing has come."""

    def feed(self, data: bytes) -> bytes:
        """What ``data`` brings of the content. Raises `BadChunk`."""
        # One whole chunk, as paced streams have them.
        if self._between and (told := _SIZE.match(data)) is not None:
            begin, end = told.end(), len(data) - 2
            if int(told[1], 16) == end - begin > 0 and data[end:] == b"\r\n":
                return data[begin:end]
        content = self._fed(data)
        self._between = not (self.rest or self._left or self._closing) and self._trailers is None
        return content

    def _fed(self, data: bytes) -> bytes:
        if self.rest:
            data = self.rest + data
        at, size = 0, len(data)
        content = []
        while at < size and not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if data[at : at + 2] == b"\r\n" and not self._left:
                    at += 2
                else:
                    self._closing = not self._left
                continue
            end = data.find(b"\n", at, at + _MOST_LINE)
            if end < 0:
                if size - at >= _MOST_LINE:
                    raise BadChunk("a line of its framing has no end")
                break
            line, at = data[at : end + 1], end + 1
            self._read(line)
        self.rest = data[at:]
        return content[0] if len(content) == 1 else b"".join(content)

    def close(self) -> None:
        """No more comes. Raises `BadChunk` if more should; some servers leave out the last line."""
        if self._trailers is None:
            raise BadChunk("it ends in the middle")
        self.ended = True

    def _read(self, line: bytes) -> None:
        if self._closing:
            if line not in (b"\r\n", b"\n"):
                raise BadChunk("a chunk is longer than it says")
            self._closing = False
        elif self._trailers is not None:
            self.ended = line in (b"\r\n", b"\n")
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS:
                raise BadChunk("it has too many trailers")
        elif (told := _SIZE.fullmatch(line)) is None:
            raise BadChunk("a chunk does not say how long it is")
        else:
            self._left = int(told[1], 16)
            self._trailers = None if self._left else 0
