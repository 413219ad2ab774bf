"""Traces of several workers: each tells the keeper of its own requests, and asks it for those of all.

A request is told whole when it has ended. One that takes longer is told in between, ever more seldom, and
that it still runs at every look: what a worker that has died was doing is shown as failed. The keeper reads
nothing of a trace but its row; the rest is text to it. What cannot be told is lost, and no request waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from emulator.errors import ExecutionFailed
from emulator.shared.wire import MOST_BYTES, Handler, Unreachable, Wire
from emulator.traces.listing import MOST_OF_CONTAINER, Listing, listing
from emulator.traces.neighbours import Neighbours, neighbours
from emulator.traces.ring import EACH, PART, Entry, Ring
from emulator.traces.row import Row, checksums
from emulator.traces.sizes import size_of, strip
from emulator.traces.trace import Trace
from emulator.traces.transfer import dumped, loaded

log = structlog.get_logger()

_LOOK_SECONDS = 1.0
_LOST_SECONDS = 30.0
"""After which a request of which nothing is heard any more is lost."""
_LOST = "The worker that served it has gone."


class Sender:
    """The worker's side that tells: `begun` and `finished` are listeners of its `Traces`."""

    def __init__(self, wire: Wire, keep_bytes: int) -> None:
        self._wire = wire
        self._most = min(keep_bytes // PART, MOST_BYTES // 4)
        self._lock = threading.Lock()
        self._some_run = threading.Event()
        self._running: dict[str, Trace] = {}
        self._told: dict[str, float] = {}
        """When a request that runs was last told of, in its own seconds."""
        self._thread: threading.Thread | None = None

    def begun(self, trace: Trace) -> None:
        with self._lock:
            self._running[trace.id] = trace
            self._some_run.set()
            if (
                self._thread is None
            ):  # not before: a server forks between making its app and serving
                self._thread = threading.Thread(target=self._look, name="traces", daemon=True)
                self._thread.start()

    def finished(self, trace: Trace) -> None:
        """To be called after all that read the trace: of one that is too large only the summary stays."""
        with self._lock:
            self._running.pop(trace.id, None)
            self._told.pop(trace.id, None)
            if not self._running:
                self._some_run.clear()
        if size_of(trace) > self._most:
            strip(trace)
        self._tell([self._whole(trace)])

    def _look(self) -> None:
        while self._some_run.wait():
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                running = [*self._running.values()]
            told = []
            for trace in running:
                at = trace.now()
                if at < _LOOK_SECONDS:
                    continue  # most have ended by the next look
                if at >= 2 * self._told.get(trace.id, 0.0) and size_of(trace) <= self._most:
                    self._told[trace.id] = at
                    told.append(self._whole(trace))
                else:
                    told.append((Row.of(trace).json(), None, ""))
            if told:
                self._tell(told)

    def _whole(self, trace: Trace) -> tuple[dict[str, Any], str | None, str]:
        """Its row, all of it, and its body."""
        try:
            text = dumped(trace)
        except TypeError:  # nested too deep
            strip(trace)
            text = dumped(trace)
        return Row.of(trace).json(), text, trace.body.decode("latin-1")

    def _tell(self, told: list[Any]) -> None:
        try:
            # In no context: who leaves while this is told is none of its business.
            Context().run(self._wire.ask_one, "traces_put", told)
        except Unreachable as error:
            log.warning("requests are not shown by the inspector", reason=str(error))


class RemoteTraces:
    """See `Kept`: the worker's side that asks. Without the keeper all raise `ExecutionFailed`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def listing(self, asked: Mapping[str, str], client: str | None) -> Listing:
        names = ("q", "show", "page")
        told = self._ask("traces_list", {n: asked[n] for n in names if n in asked}, client)
        return Listing(**{**told, "rows": [Row.loaded(row) for row in told["rows"]]})

    def get(self, key: str, client: str | None = None) -> Trace | None:
        told = self._ask("traces_get", key, client)
        return None if told is None else _loaded(told)

    def neighbours(self, trace: Trace) -> Neighbours:
        first = checksums(trace.turns[0].messages) if trace.turns else ()
        told = self._ask("traces_neighbours", [Row.of(trace).json(), first], trace.client)
        return Neighbours(tuple(told["steps"]), told["goes_on"])

    def ran_in(self, container: str, client: str | None) -> list[Trace]:
        with _reached():
            return [_loaded(one) for one in self._wire.ask("traces_ran_in", [container, client])]

    def clear(self, client: str | None = None) -> int:
        return int(self._ask("traces_clear", None, client))

    def wait(self, version: int, seconds: float) -> int:
        return int(self._ask("traces_wait", [version, seconds], None))

    @property
    def kept(self) -> tuple[int, int]:
        count, size = self._ask("traces_kept", None, None)
        return count, size

    def _ask(self, name: str, argument: Any, client: str | None) -> Any:
        with _reached():
            return self._wire.ask_one(name, [argument, client])


@dataclass(frozen=True)
class _Told:
    text: str | None
    at: float


class _Keeper:
    """The keeper's side."""

    def __init__(
        self, keep: int, keep_bytes: int, keep_seconds: float, now: Callable[[], float]
    ) -> None:
        self._ring: Ring[_Told] = Ring(keep, keep_bytes, keep_seconds, now)
        self._most = keep_bytes // PART
        self._now = now

    def handlers(self) -> dict[str, Handler]:
        return {
            "traces_put": self._put,
            "traces_list": self._list,
            "traces_get": self._get,
            "traces_neighbours": self._neighbours,
            "traces_ran_in": self._ran_in,
            "traces_clear": self._clear,
            "traces_wait": self._wait,
            "traces_kept": self._kept,
        }

    def _put(self, told: Any) -> Iterator[Any]:
        for fields, text, body in told:
            self._ring.put(self._entry(Row.loaded(fields, body.encode("latin-1")), text))
        yield True

    def _entry(self, row: Row, text: str | None) -> Entry[_Told]:
        """``text`` is None where nothing is told but that it still runs."""
        old = self._ring.get(row.id)
        if text is None and old is not None:
            row, text = replace(row, body=old.row.body), old.whole.text
        size = len(row.body) + len(text or "") + sum(map(len, row.words))
        if size > self._most:
            row, text, size = replace(row, body=b"", words=()), None, 0
        return Entry(row, _Told(text, self._now()), EACH + size)

    def _list(self, asked: Any) -> Iterator[Any]:
        query, client = asked
        found = listing(self._rows(client), query)
        yield {**asdict(replace(found, rows=())), "rows": [row.json() for row in found.rows]}

    def _get(self, asked: Any) -> Iterator[Any]:
        if entry := self._ring.get(*asked):
            yield self._whole(entry)

    def _neighbours(self, asked: Any) -> Iterator[Any]:
        (fields, first), client = asked
        yield asdict(neighbours(Row.loaded(fields), first, self._rows(client)))

    def _ran_in(self, asked: Any) -> Iterator[Any]:
        container, client = asked
        found = [one for one in self._ring.all(client) if one.row.container == container]
        yield from map(self._whole, found[:MOST_OF_CONTAINER])

    def _clear(self, asked: Any) -> Iterator[Any]:
        yield self._ring.clear(asked[1])

    def _wait(self, asked: Any) -> Iterator[Any]:
        yield self._ring.wait(*asked[0])

    def _kept(self, _: Any) -> Iterator[Any]:
        yield self._ring.kept

    def _rows(self, client: str | None) -> list[Row]:
        return [self._row(entry) for entry in self._ring.all(client)]

    def _row(self, entry: Entry[_Told]) -> Row:
        is_lost = entry.row.seconds is None and self._now() - entry.whole.at > _LOST_SECONDS
        return replace(entry.row, state="failed", error=_LOST) if is_lost else entry.row

    def _whole(self, entry: Entry[_Told]) -> Any:
        return self._row(entry).json(), entry.whole.text, entry.row.body.decode("latin-1")


def handlers(
    keep: int, keep_bytes: int, keep_seconds: float, now: Callable[[], float] = time.time
) -> dict[str, Handler]:
    """What answers in the keeper; bounds are as in `Traces`."""
    return _Keeper(keep, keep_bytes, keep_seconds, now).handlers()


def _loaded(told: Any) -> Trace:
    fields, text, body = told
    row = Row.loaded(fields)
    if text is None:  # too large, or told of for the first time
        return Trace(
            row.id, "", row.path, row.client, began=row.began, model=row.model, state=row.state,
            seconds=row.seconds, error=row.error, stripped=True,
        )  # fmt: skip
    trace = loaded(text, body.encode("latin-1"))
    trace.state, trace.error = row.state, trace.error or row.error
    return trace


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        raise ExecutionFailed(
            f"The process that keeps the requests cannot be reached: {error}.",
            code="overloaded",
            headers={"retry-after": "1"},
        ) from error
