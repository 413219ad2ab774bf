"""Divide the bytes of a reply into events: server-sent events, or the one JSON document of a server that does
not stream. Sans-IO; knows nothing of what the events mean."""

from __future__ import annotations

from emulator.upstream.failures import QUOTED
from emulator.upstream.sse import MAX_EVENT_BYTES, EventTooLarge, SSEDecoder


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
