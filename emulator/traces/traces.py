"""Begin and finish traces, and call the listeners."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from emulator.traces.trace import Trace

log = structlog.get_logger()

Listener = Callable[[Trace], None]


class Traces:
    """Safe to share between threads."""

    def __init__(self, *, records_wire: bool, now: Callable[[], float] = time.time) -> None:
        self._records_wire = records_wire
        self._now = now
        self._on_begin: list[Listener] = []
        self._on_finish: list[Listener] = []
        self._on_refusal: list[Listener] = []

    def on_begin(self, listener: Listener) -> None:
        """Call ``listener`` for each future request, before any work is done for it."""
        self._on_begin.append(listener)

    def on_finish(self, listener: Listener) -> None:
        """Call ``listener`` for each future request, once its response has been sent."""
        self._on_finish.append(listener)

    def on_refusal(self, listener: Listener) -> None:
        """Call ``listener`` for each future request that is refused before any work is done for it."""
        self._on_refusal.append(listener)

    def begin(
        self,
        key: str,
        method: str,
        path: str,
        client: str,
        body: bytes,
        route: str = "",
        client_name: str = "",
    ) -> Trace:
        """Return a new request's trace."""
        trace = Trace(key, method, path, client, body, self._now(), route, client_name)
        trace.records_wire = self._records_wire
        for listener in self._on_begin:
            _call(listener, trace)
        return trace

    def refuse(self, trace: Trace) -> None:
        """Record a request for which nothing was done: ``trace`` has its error."""
        trace.end()
        for listener in self._on_refusal:
            _call(listener, trace)

    def finish(self, trace: Trace, *, disconnected: bool = False) -> None:
        """End a request's trace; ``disconnected`` if its client left early. A second call has no effect."""
        if trace.end(disconnected=disconnected):
            for listener in self._on_finish:
                _call(listener, trace)


def _call(listener: Listener, trace: Trace) -> None:
    try:
        listener(trace)
    except Exception:
        log.exception("a listener failed", request=trace.id)
