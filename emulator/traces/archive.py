"""The most recent requests of all workers of this run, limited in number, bytes and age.

    begins ──► running ──► ended ──► stored
                 │ for other workers: the whole trace each time that its age has doubled, else its summary

Each request is a row of a database that ends with the run. No request waits for its row: requests that end
within `_BATCH_SECONDS` are stored together, so a worker that is killed loses that much. A reader stores first
what is not stored yet, so that a client that has its answer finds its request, and a lone worker reports no
running ones: to report 1,000 streams each second took 7 % of a core, in one go. A running request that its
worker has not reported for `_LOST_SECONDS` is shown as failed: its worker has died. A trace that cannot be
stored is lost with a warning in the log.

A row is its client's: nothing changes a row under another client's name. A report of a running request does
not change a request that has ended, and a report without contents keeps those that are there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import structlog

from emulator.database import Database, DatabaseFailed, Rows, database_failures
from emulator.traces.listing import TracePage, select_page
from emulator.traces.related import RelatedRequests, find_related
from emulator.traces.summary import TraceSummary, checksums
from emulator.traces.trace import Trace
from emulator.traces.transfer import dump_trace, load_trace

log = structlog.get_logger()

_MAX_PART = 8
"""A request that takes more than this part of all bytes is reduced to its summary."""
_LOST_SECONDS = 30.0
_LOST = "The worker process that served this request has ended."
_REPORT_SECONDS = 1.0
"""The age at which a running request is first reported."""
_BATCH_SECONDS = 0.05
_BATCH_BYTES = 4 * 2**20
"""About the size of a batch. A request that ends while more is waiting stores it, and waits for that."""
_SIZE = "2048 + length(summary) + coalesce(length(body), 0) + coalesce(length(trace), 0)"
_OF = "(:client = '' OR client = :client)"
_SHOWN = "summary, body, reported"
_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS traces (id TEXT PRIMARY KEY, client TEXT NOT NULL, "
        "began DOUBLE PRECISION NOT NULL, has_ended BOOLEAN NOT NULL, reported DOUBLE PRECISION NOT NULL, "
        "summary BYTEA NOT NULL, body BYTEA, trace BYTEA)"
    ),
    "CREATE INDEX IF NOT EXISTS traces_began ON traces (began)",
)
_PUT = (
    "INSERT INTO traces (id, client, began, has_ended, reported, summary, body, trace) "
    "VALUES (:id, :client, :began, :has_ended, :reported, :summary, :body, :trace) "
    "ON CONFLICT (id) DO UPDATE SET has_ended = excluded.has_ended, reported = excluded.reported, "
    "summary = excluded.summary, body = coalesce(excluded.body, traces.body), "
    "trace = coalesce(excluded.trace, traces.trace) "
    "WHERE traces.client = excluded.client AND (excluded.has_ended OR NOT traces.has_ended)"
)
_SHRINK = (
    "DELETE FROM traces WHERE began < :oldest OR id IN (SELECT id FROM (SELECT id, "
    f"row_number() OVER newest AS place, sum({_SIZE}) OVER newest AS total FROM traces "
    "WINDOW newest AS (ORDER BY began DESC, id DESC)) AS sizes WHERE place > :most OR total > :most_bytes)"
)

Row = tuple[TraceSummary, bytes | None]
"""With `dump_trace`: None in a report, empty if it is too large or cannot be written."""

ARCHIVE_FILE = "requests.sqlite"
"""Of several workers, in the folder of the run."""


class Archive:
    """`begin` and `finish` are listeners of a worker's `Traces`. Safe to share between threads.

    With None as ``client``, the requests of all clients are meant. What reads raises `StoreUnavailable`.
    """

    max_traces = 1000
    max_bytes = 64 * 2**20
    max_seconds = 86_400.0

    def __init__(self, database: Database, *, has_other_readers: bool = False) -> None:
        """``database`` is that of this run, which other workers may read. Raises `DatabaseFailed`."""
        self._database = database
        self._has_other_readers = has_other_readers
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._active = threading.Event()
        """Set while a request has ended unstored, or runs and is reported."""
        self._running: dict[str, Trace] = {}
        self._reported: dict[str, tuple[float, float]] = {}
        """How old each running request was when it was last stored whole, and when it was last reported."""
        self._ended: list[Trace] = []
        self._ended_bytes = 0
        self._added_bytes = 0
        """Since this worker has removed what is beyond the limits."""
        self._thread: threading.Thread | None = None
        self._closed = False
        database.make_tables(*_TABLES)

    # Recording

    def begin(self, trace: Trace) -> None:
        with self._lock:
            self._running[trace.id] = trace
            if self._has_other_readers:
                self._active.set()
            if self._thread is None:  # not in __init__: the server forks after the app is created
                self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
                self._thread.start()

    def finish(self, trace: Trace) -> None:
        with self._lock:
            self._running.pop(trace.id, None)
            self._ended.append(trace)
            self._ended_bytes += trace.raw_bytes
            self._active.set()
            is_due = self._closed or self._ended_bytes > _BATCH_BYTES
        if is_due:
            self._store()

    def close(self) -> None:
        """From now on a request is stored as soon as it ends."""
        with self._lock:
            self._closed = True
            self._active.set()
        self._store()

    def put(self, batch: Sequence[Row]) -> None:
        """Add requests, or replace those of the same client. Raises `DatabaseFailed`."""
        most = self.max_bytes // _MAX_PART
        with self._database.transaction("traces") as rows:
            for summary, trace in (_within(most, row) for row in batch):
                rows.run(
                    _PUT, id=summary.id, client=summary.client, began=summary.began,
                    has_ended=summary.seconds is not None, reported=rows.now,
                    summary=summary.to_json(), body=None if trace is None else summary.body,
                    trace=trace,
                )  # fmt: skip
                self._added_bytes += len(summary.body) + len(trace or b"")
            if self._added_bytes > most:
                self._shrink(rows)

    def _work(self) -> None:
        reported = time.monotonic()
        while self._active.wait() and not self._closed:
            time.sleep(_BATCH_SECONDS)
            is_due = self._has_other_readers and time.monotonic() - reported >= _REPORT_SECONDS
            self._store(self._reports() if is_due else ())
            if is_due:
                reported = time.monotonic()

    def _reports(self) -> Iterator[tuple[Trace, bool]]:
        """The running requests that are due, with whether they are to be stored whole."""
        with self._lock:  # most requests end before their first report
            running = [trace for trace in self._running.values() if trace.now() >= _REPORT_SECONDS]
        self._reported = {trace.id: self._reported.get(trace.id, (0.0, 0.0)) for trace in running}
        for trace in running:
            age, (stored, reported) = trace.now(), self._reported[trace.id]
            if age >= 2 * stored:
                self._reported[trace.id] = age, age
                yield trace, True
            elif age - reported >= _LOST_SECONDS / 3:
                self._reported[trace.id] = stored, age
                yield trace, False

    def _store(self, reports: Iterable[tuple[Trace, bool]] = ()) -> None:
        """Store running requests, whole or their summaries, and those that have ended, in batches."""
        with self._storing:
            due = [*reports]  # before those that have ended: one of these may end meanwhile
            with self._lock:
                ended, self._ended, self._ended_bytes = self._ended, [], 0
                if not (self._running and self._has_other_readers):
                    self._active.clear()
            batch: list[Row] = []
            size = 0
            for trace, is_whole in [*due, *((trace, True) for trace in ended)]:
                try:
                    row = _row(trace, is_whole=is_whole)
                except Exception:  # its contents are whatever clients and models wrote
                    log.exception("a request is not shown by the inspector", request=trace.id)
                    continue
                batch.append(row)
                size += len(row[0].body) + len(row[1] or b"")
                if size > _BATCH_BYTES:
                    self._put(batch)
                    batch, size = [], 0
            self._put(batch)

    def _put(self, batch: Sequence[Row]) -> None:
        try:
            if batch:
                self.put(batch)
        except DatabaseFailed as error:
            log.warning(
                "requests are not shown by the inspector", requests=len(batch), reason=str(error)
            )

    # Reading

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        """For ``parameters`` see `select_page`."""
        return select_page(self._summaries(client), parameters, self._database.now())

    def get(self, key: str, client: str | None = None) -> Trace | None:
        with self._reading(key) as rows:
            found = rows.one(f"SELECT {_SHOWN}, trace FROM traces WHERE id = :id", id=key)
        if found is None:
            return None
        row, text = self._shown(*found[:3]), found[3]
        if client not in (None, row.client):
            return None
        if not text:  # too large, or not yet reported whole
            return Trace(
                row.id, "", row.path, row.client, began=row.began, model=row.model, state=row.state,
                seconds=row.seconds, error=row.error, stripped=True,
            )  # fmt: skip
        trace = load_trace(text, row.body)
        trace.state, trace.error = row.state, trace.error or row.error
        return trace

    def related(self, trace: Trace) -> RelatedRequests:
        first_prompt = checksums(trace.turns[0].messages) if trace.turns else ()
        return find_related(TraceSummary.of(trace), first_prompt, self._summaries(trace.client))

    def running_clients(self) -> dict[str, str]:
        """The clients that wait for an answer, with their names."""
        rows = [row for row in self._summaries(None) if row.state == "running"]
        return {row.client: row.client_label for row in rows}

    def clear(self, client: str | None = None) -> int:
        """Remove them. Returns their number."""
        with self._reading() as rows:
            return rows.run(f"DELETE FROM traces WHERE {_OF}", client=client or "")

    def count_and_bytes(self, client: str | None) -> tuple[int, int]:
        """The number of requests, and about their size."""
        query = f"SELECT count(*), coalesce(sum({_SIZE}), 0) FROM traces WHERE {_OF}"
        with self._reading() as rows:
            count, size = rows.one(query, client=client or "")
        return int(count), int(size)

    @contextmanager
    def _reading(self, whole: str = "") -> Iterator[Rows]:
        """The rows within the limits, after all that runs or has ended here, and all of request ``whole``."""
        with self._lock:
            running = [*self._running.values()]
        self._store((trace, trace.id == whole) for trace in running)
        problem = "The recorded requests cannot be read"
        with database_failures(problem), self._database.transaction("traces") as rows:
            self._shrink(rows)
            yield rows

    def _summaries(self, client: str | None) -> list[TraceSummary]:
        """The newest first."""
        query = f"SELECT {_SHOWN} FROM traces WHERE {_OF} ORDER BY began DESC, id DESC"
        with self._reading() as rows:
            found = rows.all(query, client=client or "")
        return [self._shown(*row) for row in found]

    def _shown(self, summary: bytes, body: bytes | None, reported: float) -> TraceSummary:
        row = TraceSummary.from_json(summary, body or b"")
        is_lost = row.seconds is None and self._database.now() - reported > _LOST_SECONDS
        return replace(row, state="failed", error=_LOST) if is_lost else row

    def _shrink(self, rows: Rows) -> None:
        self._added_bytes = 0
        oldest = rows.now - self.max_seconds
        rows.run(_SHRINK, oldest=oldest, most=self.max_traces, most_bytes=self.max_bytes)


def _within(most: int, row: Row) -> Row:
    """The row, without its contents if they are more than ``most`` bytes."""
    summary, trace = row
    if len(summary.body) + len(trace or b"") <= most:
        return row
    return replace(summary, body=b"", tools=(), called=()), b""


def _row(trace: Trace, *, is_whole: bool) -> Row:
    try:
        return TraceSummary.of(trace), dump_trace(trace) if is_whole else None
    except (TypeError, ValueError, RecursionError):
        return TraceSummary.of(trace), b""
