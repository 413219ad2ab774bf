"""Traces of several workers: the keeper has those of all, and each worker asks it for them.

It is told of them as `emulator.traces.sender` says. What a worker that has died was doing is shown as failed.
The keeper reads nothing of a trace but its row; the rest is bytes to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.errors import ExecutionFailed
from emulator.shared.wire import Handler, Unreachable, Wire
from emulator.traces.listing import MOST_OF_CONTAINER, Listing, listing
from emulator.traces.neighbours import Neighbours, neighbours
from emulator.traces.ring import EACH, PART, Entry, Ring
from emulator.traces.row import Row, checksums
from emulator.traces.sender import read_batch
from emulator.traces.trace import Trace
from emulator.traces.transfer import loaded

_LOST_SECONDS = 30.0
"""After which a request of which nothing is heard any more is lost."""
_LOST = "The worker that served it has gone."


class RemoteTraces:
    """See `Kept`: the worker's side that asks. Without the keeper all raise `ExecutionFailed`."""

    def __init__(self, wire: Wire, flush: Callable[[], None] = lambda: None) -> None:
        """``flush`` tells what this worker has not yet told: whoever has an answer finds its request."""
        self._wire = wire
        self._flush = flush

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
        self._flush()
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
        self._flush()
        with _reached():
            return self._wire.ask_one(name, [argument, client])


@dataclass(frozen=True)
class _Told:
    text: bytes | None
    at: float


class _Keeper:
    """The keeper's side."""

    def __init__(
        self, keep: int, keep_bytes: int, keep_seconds: float, now: Callable[[], float]
    ) -> None:
        self._ring: Ring[Row, _Told] = Ring(keep, keep_bytes, keep_seconds, now)
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

    def _put(self, told: Any, data: bytes = b"") -> Iterator[Any]:
        for row, text in read_batch(told, data):
            self._ring.put(self._entry(row, text))
        yield True

    def _entry(self, row: Row, text: bytes | None) -> Entry[Row, _Told]:
        """``text`` is None where nothing is told but that it still runs."""
        old = self._ring.get(row.id)
        if text is None and old is not None:
            row, text = replace(row, body=old.row.body), old.whole.text
        size = len(row.body) + len(text or b"") + sum(map(len, row.words))
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

    def _row(self, entry: Entry[Row, _Told]) -> Row:
        is_lost = entry.row.seconds is None and self._now() - entry.whole.at > _LOST_SECONDS
        return replace(entry.row, state="failed", error=_LOST) if is_lost else entry.row

    def _whole(self, entry: Entry[Row, _Told]) -> Any:
        text = entry.whole.text
        return (
            self._row(entry).json(),
            None if text is None else text.decode(),
            entry.row.body.decode("latin-1"),
        )


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
