"""What a worker tells the keeper of its requests: see `emulator.traces.remote` for what becomes of it.

A request is told whole when it has ended. One that takes longer is told in between, ever more seldom, and
that it still runs at every look. Nobody waits for that, so what has come within `_BATCH_SECONDS` is told
together: a worker that is killed takes so much along. Before a look, and at the end, what is there is told at
once. What cannot be told is lost, and a warning says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from emulator.errors import EmulatorError
from emulator.shared.wire import MOST_BYTES, Unreachable, Wire
from emulator.traces.ring import PART
from emulator.traces.row import Row
from emulator.traces.sizes import size_of, strip
from emulator.traces.trace import Trace
from emulator.traces.transfer import dumped

log = structlog.get_logger()

_LOOK_SECONDS = 1.0
_BATCH_SECONDS = 0.05
_BATCH_BYTES = 4 * 2**20
"""Of what waits to be told, about. Who ends a request beyond that tells it, and waits meanwhile."""


@dataclass(frozen=True)
class _Told:
    row: Row
    text: bytes | None = None
    """All but the body; None where nothing is told but that it still runs."""


class Sender:
    """`begun` and `finished` are listeners of a worker's `Traces`. Safe to share between threads."""

    def __init__(self, wire: Wire, keep_bytes: int) -> None:
        self._wire = wire
        self._most = min(keep_bytes // PART, MOST_BYTES // 4)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._some_run = threading.Event()
        self._some_ended = threading.Event()
        self._running: dict[str, Trace] = {}
        self._ended: list[Trace] = []
        self._ended_bytes = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def begun(self, trace: Trace) -> None:
        with self._lock:
            self._running[trace.id] = trace
            self._some_run.set()
            if not self._threads:  # not before: a server forks between making its app and serving
                for work in (self._look, self._flush_batches):
                    self._threads.append(threading.Thread(target=work, name="traces", daemon=True))
                    self._threads[-1].start()

    def finished(self, trace: Trace) -> None:
        """To be called after all that read the trace: of one that is too large only the summary stays."""
        if (size := size_of(trace)) > self._most:
            strip(trace)
            size = 0
        with self._lock:
            self._running.pop(trace.id, None)
            if not self._running:
                self._some_run.clear()
            self._ended.append(trace)
            self._ended_bytes += size
            at_once = self._closed or self._ended_bytes > _BATCH_BYTES
        if at_once:
            self.flush()
        else:
            self._some_ended.set()

    def flush(self) -> None:
        """Tell what has ended: it is the keeper's on return."""
        with self._sending:
            with self._lock:
                self._some_ended.clear()
                ended, self._ended, self._ended_bytes = self._ended, [], 0
            self._send(ended, _whole)

    def close(self) -> None:
        """From here on, what ends is told at once."""
        with self._lock:
            self._closed = True
        self.flush()

    def _flush_batches(self) -> None:
        while self._some_ended.wait():
            time.sleep(_BATCH_SECONDS)
            self.flush()

    def _look(self) -> None:
        last: dict[str, float] = {}  # when each was told whole, in its own seconds
        while self._some_run.wait():
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                # Most have ended by the next look.
                running = [one for one in self._running.values() if one.now() >= _LOOK_SECONDS]
            last = {one.id: last.get(one.id, 0.0) for one in running}
            with self._sending:
                self._send(running, partial(self._of_running, last))

    def _of_running(self, last: dict[str, float], trace: Trace) -> _Told:
        at = trace.now()
        if at >= 2 * last[trace.id] and size_of(trace) <= self._most:
            last[trace.id] = at
            return _whole(trace)
        return _Told(Row.of(trace))

    def _send(self, traces: Sequence[Trace], tell: Callable[[Trace], _Told]) -> None:
        """In as many messages as their bytes ask for. One that cannot be told takes no other along."""
        batch: list[_Told] = []
        size = 0
        for trace in traces:
            try:
                one = tell(trace)
            except Exception:  # it holds what clients and models have written, whatever that may be
                log.exception("a request is not shown by the inspector", request=trace.id)
                continue
            batch.append(one)
            size += len(one.text or b"") + len(one.row.body)
            if size > _BATCH_BYTES:
                self._send_batch(batch)
                batch, size = [], 0
        if batch:
            self._send_batch(batch)

    def _send_batch(self, batch: Sequence[_Told]) -> None:
        lengths, parts = [], []
        for one in batch:
            body = b"" if one.text is None else one.row.body
            lengths.append([one.row.json(), None if one.text is None else len(one.text), len(body)])
            parts += [one.text or b"", body]
        try:
            # In no context: who leaves while this is told is none of its business.
            Context().run(self._wire.ask_one, "traces_put", lengths, b"".join(parts))
        except (Unreachable, EmulatorError) as error:
            log.warning(
                "requests are not shown by the inspector", requests=len(batch), reason=str(error)
            )


def _whole(trace: Trace) -> _Told:
    try:
        text = dumped(trace)
    except (TypeError, ValueError, RecursionError):  # nested too deep, say
        strip(trace)
        text = dumped(trace)
    return _Told(Row.of(trace), text)


def read_batch(told: Sequence[Any], data: bytes) -> Iterator[tuple[Row, bytes | None]]:
    """The keeper's side of `Sender`: each request's row with its body, and all else of it."""
    at = 0
    for fields, length, body_length in told:
        text = None if length is None else data[at : at + length]
        at += length or 0
        yield Row.loaded(fields, data[at : at + body_length]), text
        at += body_length
