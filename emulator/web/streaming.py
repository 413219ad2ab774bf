"""Events -> the bytes of an SSE response, kept alive with comments. Knows nothing of Flask, nor of what
the events are: `Frames` says how one API writes them.

The upstream is read in a thread of its own, so that this side can say something while the upstream
says nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from emulator import departure
from emulator.departure import Departure
from emulator.errors import EmulatorError
from emulator.events import Opened
from emulator.upstream.sse import DONE, PING, encode_json

_WAITING_EVENTS = 256

Event = dict[str, Any]

log = structlog.get_logger()


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

    def __init__(
        self, events: Iterator[Event | Opened], ping_seconds: float, frames: Frames = CHAT
    ) -> None:
        self._events = events
        self._frames = frames
        self._ping_seconds = ping_seconds
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING_EVENTS)
        self._closed = threading.Event()
        self._departure = departure.current.get() or Departure()
        self._first: Future[Event | Opened] = Future()
        # In the request's context: what is logged there names the request too.
        context = copy_context()
        context.run(departure.current.set, self._departure)
        read = partial(context.run, self._read)
        threading.Thread(target=read, name="event-stream", daemon=True).start()

    def first(self) -> Event | Opened | None:
        """The first event; None if there is none within the time after which a stream gets a comment.

        Raises the `EmulatorError` that came in its place.
        """
        try:
            return self._first.result(self._ping_seconds)
        except TimeoutError:
            return None if self._first.cancel() else self._first.result()

    def __iter__(self) -> Iterator[bytes]:
        if self._first.cancelled():
            yield PING
        with self._departure.stopping(self._wake):
            while True:
                try:
                    data = self._queue.get(timeout=self._ping_seconds)
                except queue.Empty:
                    yield PING
                    continue
                if data is None:
                    return
                yield data

    def close(self) -> None:
        """The client has it all, or has gone; safe to call twice."""
        self._closed.set()
        self._departure.leave()

    def _wake(self) -> None:
        """Let who waits for the next bytes wait no longer."""
        self._closed.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def _read(self) -> None:
        try:
            for event in self._events:
                data = b"" if isinstance(event, Opened) else self._frames.event(event)
                with suppress(InvalidStateError):
                    self._first.set_result(event)
                if data and not self._put(data):
                    return
            if self._frames.end:
                self._put(self._frames.end)
        except EmulatorError as error:
            self._failed(error, error)
        except Exception as error:
            if not self._closed.is_set():
                log.exception("stream failed")
                self._failed(error, EmulatorError("The proxy failed; its log says why."))
        finally:
            self._events_closed()
            self._put(None)

    def _failed(self, error: Exception, shown: EmulatorError) -> None:
        """Told by `first`, or by the stream if that has begun."""
        try:
            self._first.set_exception(error)
        except InvalidStateError:
            if not self._closed.is_set():
                log.warning("stream broken off", reason=shown.message, code=shown.code)
                self._put(self._frames.failed(shown))

    def _events_closed(self) -> None:
        close: Any = getattr(self._events, "close", None)
        if close is not None:
            close()

    def _put(self, data: bytes | None) -> bool:
        """Wait for room; False when the client has gone."""
        while not self._closed.is_set():
            try:
                self._queue.put(data, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
