"""Events -> the bytes of an SSE response, kept alive with comments. Knows nothing of Flask, nor of what
the events are: `Frames` says how one API writes them.

The first event is made in another thread, so that a response can begin without it; all others are made by
the thread that writes them, while `pings` looks after the silence between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from emulator import client_disconnect
from emulator.client_disconnect import ClientDisconnect
from emulator.errors import EmulatorError
from emulator.events import UpstreamAccepted
from emulator.upstream.sse import DONE, PING, encode_json
from emulator.web.middleware import pings
from emulator.web.middleware.pings import Line, pinged
from emulator.web.routes.stream_starter import Starters

Event = dict[str, Any]
Events = Iterator[Event | list[Event] | UpstreamAccepted]
"""Those of a list have come together, and leave in one write."""

log = structlog.get_logger()
_starters = Starters()


@dataclass(frozen=True)
class Frames:
    """How an API's events look as bytes."""

    event: Callable[[Event], bytes]
    failed: Callable[[EmulatorError], bytes]
    """The last frames of a stream that broke off."""
    end: bytes = b""
    """The last frame of any other."""


CHAT = Frames(encode_json, lambda error: encode_json(error.body()), DONE)


class EventStream:
    """An iterable of SSE bytes; `close`, which WSGI servers call, stops all that runs for it.

    `first` is to be asked before the response begins: a quick refusal is an error of its own there, a late
    one the stream's last event.
    """

    def __init__(self, events: Events, ping_seconds: float, frames: Frames = CHAT) -> None:
        self._events = events
        self._frames = frames
        self._ping_seconds = ping_seconds
        self._line = pings.current.get() or Line(-1)
        self._disconnect = client_disconnect.current.get() or ClientDisconnect()
        self._closing = threading.Lock()
        self._closed = False
        # Events are made in the request's context: what is logged there names the request too.
        self._context = copy_context()
        self._context.run(client_disconnect.current.set, self._disconnect)
        self._next: Callable[[], Event | list[Event] | UpstreamAccepted | None] = partial(
            self._context.run, next, events, None
        )
        """Makes the next event; None behind the last one."""
        self._first = _starters.submit(self._next)

    def first(self) -> Event | list[Event] | UpstreamAccepted | None:
        """The first event; None if there is none within the time after which a stream gets a comment.

        Raises the `EmulatorError` that came in its place.
        """
        try:
            return self._first.result(self._ping_seconds)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[bytes]:
        while not self._first.done():
            yield PING
            wait([self._first], self._ping_seconds)
        try:
            with pinged(self._line, self._ping_seconds):
                event = self._first.result()
                while event is not None and not self._disconnect.happened:
                    if isinstance(event, list):
                        yield b"".join(map(self._frames.event, event))
                    elif not isinstance(event, UpstreamAccepted):
                        yield self._frames.event(event)
                    self._line.wait()
                    try:
                        event = self._next()
                    finally:
                        self._line.waited()
            if self._frames.end:
                yield self._frames.end
        except EmulatorError as error:
            if not self._disconnect.happened:
                yield self._failed(error)
        except Exception:
            if not self._disconnect.happened:
                log.exception("stream failed")
                yield self._failed(EmulatorError("The proxy failed; its log says why."))

    def close(self) -> None:
        """The client has it all, or has gone; safe to call twice."""
        # In this order: what stops for a client that has left waits for the events to be closed. The first
        # event may still be on its way, until it is stopped.
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
