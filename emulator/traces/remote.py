"""Traces of several workers: the keeper stores those of all, and any worker reads them from there.

Workers send them with `emulator.traces.sender`. The keeper reads a trace's summary only; the rest is opaque
text to it. A request whose worker has not reported it for `_LOST_SECONDS` is shown as failed: its worker has
died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.errors import ExecutionFailed
from emulator.shared.rpc import Handler, KeeperUnavailable, RpcClient
from emulator.traces.listing import TracePage
from emulator.traces.related import RelatedRequests
from emulator.traces.ring import BASE_BYTES, MAX_PART, Entry, Ring
from emulator.traces.summary import TraceSummary, checksums
from emulator.traces.trace import Trace
from emulator.traces.transfer import load_trace

_LOST_SECONDS = 30.0
_LOST = "The worker process that served this request has ended."


class RemoteTraces:
    """See `TraceReader`. Every method raises `ExecutionFailed` if the keeper is unavailable."""

    def __init__(self, keeper: RpcClient, flush: Callable[[], None] = lambda: None) -> None:
        """``flush`` sends this worker's unsent traces: a client that has its answer finds its request."""
        self._keeper = keeper
        self._flush = flush

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        query = {name: parameters[name] for name in ("q", "show", "page") if name in parameters}
        fields = self._call("page", query, client)
        return TracePage(
            **{**fields, "rows": [TraceSummary.from_json(row) for row in fields["rows"]]}
        )

    def get(self, key: str, client: str | None = None) -> Trace | None:
        parts = self._call("get", key, client)
        return None if parts is None else _trace(*parts)

    def related(self, trace: Trace) -> RelatedRequests:
        first_prompt = checksums(trace.turns[0].messages) if trace.turns else ()
        summary = TraceSummary.of(trace).to_json()
        fields = self._call("related", summary, first_prompt)
        return RelatedRequests(tuple(fields["steps"]), fields["continues"])

    def in_container(self, container: str, client: str | None) -> list[Trace]:
        return [_trace(*parts) for parts in self._call("in_container", container, client)]

    def clear(self, client: str | None = None) -> int:
        return int(self._call("clear", client))

    def wait(self, version: int, seconds: float) -> int:
        return int(self._call("wait", version, seconds))

    @property
    def count_and_bytes(self) -> tuple[int, int]:
        count, size = self._call("count_and_bytes")
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
class _StoredTrace:
    summary: TraceSummary
    text: bytes | None
    """As written by `dump_trace`; None if only the summary is known."""
    reported: float


class TraceStore(Ring[_StoredTrace]):
    """The keeper's side. Limits are as in `Traces`."""

    def __init__(
        self,
        max_traces: int,
        max_bytes: int,
        max_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(max_traces, max_bytes, max_seconds, now)
        self._max_trace_bytes = max_bytes // MAX_PART

    def handlers(self) -> dict[str, Handler]:
        """What answers the calls of `TraceSender` and `RemoteTraces`. Results are JSON values."""
        return {
            "traces.put": self._put_batch,
            "traces.page": self._page_json,
            "traces.get": self._get_parts,
            "traces.related": self._related_json,
            "traces.in_container": lambda *of: [*map(self._parts, self.in_container(*of))],
            "traces.clear": self.clear,
            "traces.wait": self.wait,
            "traces.count_and_bytes": lambda: self.count_and_bytes,
        }

    def summary(self, value: _StoredTrace) -> TraceSummary:
        summary = value.summary
        is_lost = summary.seconds is None and self._now() - value.reported > _LOST_SECONDS
        return replace(summary, state="failed", error=_LOST) if is_lost else summary

    def _put_batch(self, batch: Sequence[Sequence[Any]], attachments: Sequence[bytes] = ()) -> None:
        """Of each trace that is sent whole, text and body are attached."""
        parts = iter(attachments)
        for fields, is_whole in batch:
            text, body = (next(parts), next(parts)) if is_whole else (None, b"")
            self._put_one(TraceSummary.from_json(fields, body), text)

    def _put_one(self, summary: TraceSummary, text: bytes | None) -> None:
        """``text`` is None in a report that the request still runs: its stored contents stay."""
        known = self.get(summary.id)
        if text is None and known is not None:
            summary, text = replace(summary, body=known.summary.body), known.text
        size = len(summary.body) + len(text or b"") + sum(map(len, summary.words))
        if size > self._max_trace_bytes:
            summary, text, size = replace(summary, body=b"", words=()), None, 0
        has_ended = summary.seconds is not None
        stored = _StoredTrace(summary, text, self._now())
        size += BASE_BYTES
        self.put(Entry(summary.id, summary.client, summary.began, has_ended, stored, size))

    def _page_json(self, parameters: Mapping[str, str], client: str | None) -> dict[str, Any]:
        found = self.page(parameters, client)
        return {**asdict(replace(found, rows=())), "rows": [row.to_json() for row in found.rows]}

    def _get_parts(self, key: str, client: str | None) -> Any:
        stored = self.get(key, client)
        return None if stored is None else self._parts(stored)

    def _related_json(
        self, summary: Mapping[str, Any], first_prompt: Sequence[int]
    ) -> dict[str, Any]:
        return asdict(self.related_to(TraceSummary.from_json(summary), first_prompt))

    def _parts(self, stored: _StoredTrace) -> Any:
        """The arguments of `_trace`."""
        text = None if stored.text is None else stored.text.decode()
        return self.summary(stored).to_json(), text, stored.summary.body.decode("latin-1")


def _trace(fields: Mapping[str, Any], text: str | None, body: str) -> Trace:
    summary = TraceSummary.from_json(fields)
    if text is None:  # too large, or not yet reported whole
        return Trace(
            summary.id, "", summary.path, summary.client, began=summary.began, model=summary.model,
            state=summary.state, seconds=summary.seconds, error=summary.error, stripped=True,
        )  # fmt: skip
    trace = load_trace(text, body.encode("latin-1"))
    trace.state, trace.error = summary.state, trace.error or summary.error
    return trace
