"""Send events as a stream of server-sent events, with pings while there is no event.

The first event is made in another thread: if it takes longer than ``ping_seconds``, the response begins
without it. If it is an error that comes earlier, the response has the error's own status. All other events
are made by the thread that writes them, and `pings` writes pings meanwhile. Knows nothing of what the events
are: `Frames` says how one API writes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from emulator.core import client_disconnect
from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.errors import EmulatorError
from emulator.core.events import UpstreamAccepted
from emulator.upstream.sse import DONE, PING, encode_json
from emulator.web.routes.pings import PingedStream, pinging

Event = dict[str, Any]
Events = Iterator[Event | list[Event] | UpstreamAccepted]
"""The events of a list arrived together and leave in one write."""

log = structlog.get_logger()
# A new thread for each stream would cost a tenth of a short one. The setting `threads` limits streams.
_first_event_threads = ThreadPoolExecutor(max_workers=1 << 16, thread_name_prefix="first event")


@dataclass(frozen=True)
class Frames:
    """How an API's events look as bytes."""

    event: Callable[[Event], bytes]
    failed: Callable[[EmulatorError], bytes]
    """The last frames of a stream that fails."""
    end: bytes = b""
    """The last frame of any other stream."""
    ping: Callable[[], bytes] = lambda: PING
    """Makes what a silent stream sends. Other threads call it, while the next event is awaited."""


CHAT = Frames(encode_json, lambda error: encode_json(error.body()), DONE)


class EventStream:
    """An iterable of the bytes of a stream. WSGI servers call `close`, which stops the work for it.

    Call `first` before the response begins.
    """

    def __init__(self, events: Events, ping_seconds: float, frames: Frames = CHAT) -> None:
        self._events = events
        self._frames = frames
        self._disconnect = client_disconnect.current.get() or ClientDisconnect()
        self.pinged = PingedStream(ping_seconds, self._disconnect, frames.ping)
        self._closing = threading.Lock()
        self._closed = False
        # Events are made in the request's context, so that lines logged there have its id.
        self._context = copy_context()
        self._context.run(client_disconnect.current.set, self._disconnect)
        self._next: Callable[[], Event | list[Event] | UpstreamAccepted | None] = partial(
            self._context.run, next, events, None
        )
        """Makes the next event; returns None after the last one."""
        self._first = _first_event_threads.submit(self._next)

    def first(self) -> Event | list[Event] | UpstreamAccepted | None:
        """Return the first event, or None if there is none after the time of a ping.

        Raises the `EmulatorError` that occurred instead.
        """
        try:
            return self._first.result(self.pinged.seconds)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[bytes]:
        while not self._first.done():
            yield self._frames.ping()
            wait([self._first], self.pinged.seconds)
        try:
            with pinging(self.pinged):
                event = self._first.result()
                while event is not None and not self._disconnect.happened:
                    if isinstance(event, list):
                        yield b"".join(map(self._frames.event, event))
                    elif not isinstance(event, UpstreamAccepted):
                        yield self._frames.event(event)
                    self.pinged.wait()
                    try:
                        event = self._next()
                    finally:
                        self.pinged.resume()
            if self._disconnect.error is not None:
                yield self._failed(self._disconnect.error)
            elif self._frames.end:
                yield self._frames.end
        except Exception as error:
            if self._disconnect.happened:  # the work was stopped, so the error is a consequence
                if self._disconnect.error is not None:
                    yield self._failed(self._disconnect.error)
            elif isinstance(error, EmulatorError):
                yield self._failed(error)
            else:
                log.exception("stream failed")
                yield self._failed(EmulatorError("The proxy failed; its log says why."))

    def close(self) -> None:
        """Stop the work for this stream. Safe to call twice."""
        # The callback is added first: some of the work that `report` stops waits until the events are closed.
        # The first event may still be in the making; it ends when it is stopped.
        self._first.add_done_callback(lambda _: self._close_events())
        self._disconnect.report()

    def _failed(self, error: EmulatorError) -> bytes:
        log.warning("stream broken off", reason=error.message, code=error.code)
        return self._frames.failed(error)

    def _close_events(self) -> None:
        close: Any = getattr(self._events, "close", None)
        with self._closing:
            if close is not None and not self._closed:
                self._closed = True
                self._context.run(close)
