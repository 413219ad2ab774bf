"""Server-sent events, both ways. Sans-IO; knows nothing of what the events mean.

Grammar: WHATWG HTML, "Server-sent events", section 9.2.6 (field and line rules). `ReplyDecoder` also reads
the one JSON document of a server that does not stream.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sse_starlette import ServerSentEvent

from emulator.core import json_codec
from emulator.upstream.failures import QUOTED

MAX_EVENT_BYTES = 16 * 2**20
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """One event is larger than the limit."""


class SSEDecoder:
    """Bytes in, the data of each complete event out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """The incomplete line."""
        self._data: list[bytes] = []
        """The data lines of the incomplete event."""
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that ``data`` completes. Raises `EventTooLarge`."""
        self._size += len(data)
        if self._size > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        ended = self._rest.endswith(b"\r")
        self._rest += data
        if not (ended or b"\n" in data or b"\r" in data):
            return []  # otherwise a long line in many pieces would be split again with each of them
        lines = _LINE_END.split(bytes(self._rest))
        rest = lines.pop()
        if data.endswith(b"\r"):
            # The line feed that belongs to it may be the next byte.
            rest = lines.pop() + b"\r"
        self._rest = bytearray(rest)
        events = []
        for line in lines:
            if not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._size = len(self._rest)
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not self._data:
                self._size = len(self._rest)
        return events


def encode_json(value: Any, name: str | None = None) -> bytes:
    """One event with ``value`` as JSON in its data, and ``name`` in its ``event`` field."""
    before, after = _around_data(name)
    return b"%b%b%b" % (before, json_codec.dumps(value), after)


@lru_cache(maxsize=256)
def _around_data(name: str | None) -> tuple[bytes, bytes]:
    """The bytes before and after an event's data: the same for all data of one line, such as JSON."""
    before, _, after = ServerSentEvent("{}", event=name, sep="\n").encode().partition(b"{}")
    return before, after


DONE = ServerSentEvent("[DONE]", sep="\n").encode()
PING = ServerSentEvent(comment="ping", sep="\n").encode()


class ReplyDecoder:
    """Bytes in, the data of each event out. Call `close` at the end of the bytes."""

    def __init__(self) -> None:
        self._sse = SSEDecoder()
        self._document: bytearray | None = None
        self._is_empty = True
        self.beginning = b""
        """The first bytes of a reply that has had no event so far."""
        self.has_events = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that ``data`` completes. Raises `EventTooLarge`."""
        if self.has_events:
            return self._sse.feed(data)
        if self._is_empty:
            data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
            self._is_empty = not data
            if data.startswith(b"{"):  # no field of an event begins so
                self._document = bytearray()
        if len(self.beginning) < QUOTED:
            self.beginning += data[:QUOTED]
        if self._document is not None:
            self._document += data
            if len(self._document) > MAX_EVENT_BYTES:
                raise EventTooLarge(f"the answer is larger than {MAX_EVENT_BYTES} bytes")
            return []
        events = self._sse.feed(data)
        self.has_events = bool(events)
        return events

    def close(self) -> list[bytes]:
        """Return the document, or the last event if no blank line follows it."""
        if self._document is not None:
            self.has_events = True
            return [bytes(self._document)]
        events = self._sse.feed(b"\n\n")
        self.has_events = self.has_events or bool(events)
        return events
