"""Traces of several workers: the keeper stores those of all, and any worker reads them from there.

Workers send them with `emulator.traces.sender`. The keeper reads a trace's row only; the rest is opaque
text to it. A request whose worker has not reported it for `_LOST_SECONDS` is shown as failed: its worker is
dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.errors import ExecutionFailed
from emulator.shared.rpc import Handler, KeeperUnavailable, RpcClient
from emulator.traces.listing import MOST_OF_CONTAINER, Listing, listing
from emulator.traces.neighbours import Neighbours, neighbours
from emulator.traces.ring import EACH, PART, Entry, Ring
from emulator.traces.row import Row, checksums
from emulator.traces.trace import Trace
from emulator.traces.transfer import loaded

_LOST_SECONDS = 30.0
_LOST = "The worker that served it has gone."


class RemoteTraces:
    """See `Kept`: the worker's side. Every method raises `ExecutionFailed` if the keeper is unavailable."""

    def __init__(self, keeper: RpcClient, flush: Callable[[], None] = lambda: None) -> None:
        """``flush`` sends this worker's unsent traces: a client that has its answer finds its request."""
        self._keeper = keeper
        self._flush = flush

    def listing(self, asked: Mapping[str, str], client: str | None) -> Listing:
        query = {name: asked[name] for name in ("q", "show", "page") if name in asked}
        fields = self._call("list", query, client)
        return Listing(**{**fields, "rows": [Row.loaded(row) for row in fields["rows"]]})

    def get(self, key: str, client: str | None = None) -> Trace | None:
        parts = self._call("get", key, client)
        return None if parts is None else _trace(*parts)

    def neighbours(self, trace: Trace) -> Neighbours:
        first = checksums(trace.turns[0].messages) if trace.turns else ()
        fields = self._call("neighbours", Row.of(trace).json(), first, trace.client)
        return Neighbours(tuple(fields["steps"]), fields["goes_on"])

    def ran_in(self, container: str, client: str | None) -> list[Trace]:
        return [_trace(*parts) for parts in self._call("ran_in", container, client)]

    def clear(self, client: str | None = None) -> int:
        return int(self._call("clear", client))

    def wait(self, version: int, seconds: float) -> int:
        return int(self._call("wait", version, seconds))

    @property
    def kept(self) -> tuple[int, int]:
        count, size = self._call("kept")
        return count, size

    def _call(self, name: str, *arguments: Any) -> Any:
        self._flush()
        try:
            return self._keeper.call(f"traces.{name}", *arguments)
        except KeeperUnavailable as error:
            raise ExecutionFailed(
                f"The process that stores the inspector's requests is unavailable: {error}.",
                code="overloaded",
                headers={"retry-after": "1"},
            ) from error


@dataclass(frozen=True)
class _Stored:
    text: str | None
    reported: float


class TraceStore:
    """The keeper's side: each public method answers the call of its name. Bounds are as in `Traces`."""

    def __init__(
        self,
        keep: int,
        keep_bytes: int,
        keep_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ring: Ring[Row, _Stored] = Ring(keep, keep_bytes, keep_seconds, now)
        self._max_bytes = keep_bytes // PART
        self._now = now

    def handlers(self) -> dict[str, Handler]:
        names = ("put", "list", "get", "neighbours", "ran_in", "clear", "wait", "kept")
        return {f"traces.{name}": getattr(self, name) for name in names}

    def put(self, batch: Sequence[Sequence[Any]]) -> None:
        """Store what `emulator.traces.sender.TraceSender` sent."""
        for fields, text, body in batch:
            self._ring.put(self._entry(Row.loaded(fields, body.encode("latin-1")), text))

    def list(self, query: Mapping[str, str], client: str | None) -> dict[str, Any]:
        found = listing(self._rows(client), query)
        return {**asdict(replace(found, rows=())), "rows": [row.json() for row in found.rows]}

    def get(self, key: str, client: str | None) -> Any:
        entry = self._ring.get(key, client)
        return None if entry is None else self._parts(entry)

    def neighbours(
        self, row: Mapping[str, Any], first: Sequence[int], client: str
    ) -> dict[str, Any]:
        return asdict(neighbours(Row.loaded(row), first, self._rows(client)))

    def ran_in(self, container: str, client: str | None) -> Any:
        found = [one for one in self._ring.all(client) if one.row.container == container]
        return [self._parts(entry) for entry in found[:MOST_OF_CONTAINER]]

    def clear(self, client: str | None) -> int:
        return self._ring.clear(client)

    def wait(self, version: int, seconds: float) -> int:
        return self._ring.wait(version, seconds)

    def kept(self) -> tuple[int, int]:
        return self._ring.kept

    def _entry(self, row: Row, text: str | None) -> Entry[Row, _Stored]:
        """``text`` is None in a report that the request still runs: what is known of it stays."""
        known = self._ring.get(row.id)
        if text is None and known is not None:
            row, text = replace(row, body=known.row.body), known.whole.text
        size = len(row.body) + len(text or "") + sum(map(len, row.words))
        if size > self._max_bytes:
            row, text, size = replace(row, body=b"", words=()), None, 0
        return Entry(row, _Stored(text, self._now()), EACH + size)

    def _rows(self, client: str | None) -> Sequence[Row]:
        return [self._row(entry) for entry in self._ring.all(client)]

    def _row(self, entry: Entry[Row, _Stored]) -> Row:
        silent = self._now() - entry.whole.reported
        is_lost = entry.row.seconds is None and silent > _LOST_SECONDS
        return replace(entry.row, state="failed", error=_LOST) if is_lost else entry.row

    def _parts(self, entry: Entry[Row, _Stored]) -> Any:
        """What `_trace` makes a `Trace` of."""
        return self._row(entry).json(), entry.whole.text, entry.row.body.decode("latin-1")


def _trace(fields: Mapping[str, Any], text: str | None, body: str) -> Trace:
    row = Row.loaded(fields)
    if text is None:  # too large, or reported for the first time
        return Trace(
            row.id, "", row.path, row.client, began=row.began, model=row.model, state=row.state,
            seconds=row.seconds, error=row.error, stripped=True,
        )  # fmt: skip
    trace = loaded(text, body.encode("latin-1"))
    trace.state, trace.error = row.state, trace.error or row.error
    return trace
