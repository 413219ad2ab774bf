"""The most recent requests, limited in number, bytes and age. The oldest are removed first.

They are rows of a database that all workers of this run have, and that ends with it. The store reads a
request's summary only; the rest is opaque text to it. A running request that its worker has not reported for
`_LOST_SECONDS` is shown as failed: its worker has died.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emulator.core import json_codec
from emulator.database import Database, Rows
from emulator.traces.listing import TracePage, select_page
from emulator.traces.related import RelatedRequests, find_related
from emulator.traces.summary import TraceSummary

MAX_PART = 8
"""A request that takes more than this part of all bytes is reduced to its summary."""
_BASE_BYTES = 2048
"""About the size of a request without its contents."""
_LOST_SECONDS = 30.0
_LOST = "The worker process that served this request has ended."
_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS traces (id TEXT PRIMARY KEY, client TEXT NOT NULL, "
        "began DOUBLE PRECISION NOT NULL, has_ended BOOLEAN NOT NULL, reported DOUBLE PRECISION NOT NULL, "
        "bytes BIGINT NOT NULL, "
        "summary BYTEA NOT NULL, body BYTEA NOT NULL, text TEXT)"
    ),
    "CREATE INDEX IF NOT EXISTS traces_began ON traces (began)",
)
_PUT = (
    "INSERT INTO traces VALUES (:id, :client, :began, :has_ended, :reported, :bytes, :summary, :body, "
    ":text) "
    "ON CONFLICT (id) DO UPDATE SET client = excluded.client, has_ended = excluded.has_ended, "
    "reported = excluded.reported, bytes = excluded.bytes, summary = excluded.summary, body = excluded.body, "
    "text = excluded.text"
)
_SHRINK = (
    "DELETE FROM traces WHERE began < :oldest OR id IN (SELECT id FROM (SELECT id, "
    "row_number() OVER newest AS place, sum(bytes) OVER newest AS total FROM traces "
    "WINDOW newest AS (ORDER BY began DESC, id DESC)) AS sizes WHERE place > :most OR total > :most_bytes)"
)

Batch = Sequence[tuple[TraceSummary, str | None]]
"""Summaries, each with the text of `dump_trace`; None in a report that the request still runs."""


@dataclass(frozen=True)
class StoredTrace:
    summary: TraceSummary
    text: str | None
    """None if only the summary is known."""


class TraceStore:
    """With None as ``client``, requests of all clients are meant. Safe to share between threads.

    All methods raise `DatabaseFailed`.
    """

    max_traces = 1000
    max_bytes = 64 * 2**20
    max_seconds = 86_400.0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._added_bytes = 0
        """Since this worker has removed what is beyond the limits. A read removes it in any case."""
        with database.transaction("tables") as rows:
            for statement in _TABLES:
                rows.run(statement)

    def put(self, batch: Batch) -> None:
        """Add requests or replace them."""
        with self._database.transaction("traces") as rows:
            for summary, text in batch:
                self._added_bytes += self._put(rows, summary, text)
            if self._added_bytes > self.max_bytes // MAX_PART:
                self._shrink(rows)
                self._added_bytes = 0

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        return select_page(self._summaries(client), parameters, self._database.now())

    def get(self, key: str, client: str | None) -> StoredTrace | None:
        with self._database.transaction("traces") as rows:
            self._shrink(rows)
        query = "SELECT summary, body, reported, text FROM traces WHERE id = :id"
        row = self._database.one(query, id=key)
        if row is None:
            return None
        summary = self._shown(*row[:3])
        return StoredTrace(summary, row[3]) if client in (None, summary.client) else None

    def related(self, own: TraceSummary, first_prompt: Sequence[int]) -> RelatedRequests:
        return find_related(own, first_prompt, self._summaries(own.client))

    def running_clients(self) -> dict[str, str]:
        """The clients that wait for an answer, with their names."""
        rows = [row for row in self._summaries(None) if row.state == "running"]
        return {row.client: row.client_label for row in rows}

    def clear(self, client: str | None) -> int:
        """Remove them. Returns their number."""
        return self._database.run(f"DELETE FROM traces WHERE {_OF}", client=client or "")

    def count_and_bytes(self, client: str | None) -> tuple[int, int]:
        """The number of requests, and about their size."""
        query = f"SELECT count(*), coalesce(sum(bytes), 0) FROM traces WHERE {_OF}"
        with self._database.transaction("traces") as rows:
            self._shrink(rows)
            count, size = rows.one(query, client=client or "")
        return int(count), int(size)

    def _put(self, rows: Rows, summary: TraceSummary, text: str | None) -> int:
        """Returns the request's size."""
        query = "SELECT has_ended, body, text FROM traces WHERE id = :id"
        has_ended = summary.seconds is not None
        old = rows.one(query, id=summary.id) if text is None or not has_ended else None
        if old is not None and old[0]:
            return 0  # a request that has ended is there whole
        if old is not None and not has_ended and text is None:  # its contents stay
            summary, text = replace(summary, body=old[1]), old[2]
        size = _size(summary, text)
        if size > self.max_bytes // MAX_PART:
            summary, text = replace(summary, body=b"", tools=(), called=()), None
            size = _size(summary, text)
        rows.run(
            _PUT,
            id=summary.id,
            client=summary.client,
            began=summary.began,
            has_ended=has_ended,
            reported=rows.now,
            bytes=size,
            summary=json_codec.dumps(replace(summary, body=b"").to_json()),
            body=summary.body,
            text=text,
        )
        return size

    def _summaries(self, client: str | None) -> list[TraceSummary]:
        """The newest first."""
        with self._database.transaction("traces") as rows:
            self._shrink(rows)
        query = (
            f"SELECT summary, body, reported FROM traces WHERE {_OF} ORDER BY began DESC, id DESC"
        )
        return [self._shown(*row) for row in self._database.all(query, client=client or "")]

    def _shown(self, summary: bytes, body: bytes, reported: float) -> TraceSummary:
        loaded = replace(TraceSummary.from_json(json_codec.loads(summary)), body=body)
        is_lost = loaded.seconds is None and self._database.now() - reported > _LOST_SECONDS
        return replace(loaded, state="failed", error=_LOST) if is_lost else loaded

    def _shrink(self, rows: Rows) -> None:
        oldest = rows.now - self.max_seconds
        rows.run(_SHRINK, oldest=oldest, most=self.max_traces, most_bytes=self.max_bytes)


_OF = "(:client = '' OR client = :client)"


def _size(summary: TraceSummary, text: str | None) -> int:
    return _BASE_BYTES + len(summary.body) + len(text or "") + sum(map(len, summary.words))
