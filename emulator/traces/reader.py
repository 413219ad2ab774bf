"""Read the most recent requests from where they are stored: in this process, or in the keeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from emulator.errors import ExecutionDelayed
from emulator.shared.rpc import Call, KeeperUnavailable
from emulator.traces.listing import PARAMETERS, TracePage
from emulator.traces.related import RelatedRequests
from emulator.traces.summary import TraceSummary, checksums
from emulator.traces.trace import Trace
from emulator.traces.transfer import load_trace


class TraceReader:
    """The requests of ``client``, or of all clients with None.

    Every method raises `ExecutionDelayed` if the keeper is unavailable.
    """

    def __init__(self, call: Call, flush: Callable[[str], None] = lambda _: None) -> None:
        """``call`` reaches the handlers of a `TraceStore`.

        ``flush`` sends this worker's unsent traces, with the whole of one: a client that has its answer finds
        its request.
        """
        self._call_store = call
        self._flush = flush

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        """For ``parameters`` see `select_page`."""
        query = {name: parameters[name] for name in PARAMETERS if name in parameters}
        fields = self._call("page", query, client)
        return TracePage(
            **{**fields, "rows": [TraceSummary.from_json(row) for row in fields["rows"]]}
        )

    def get(self, key: str, client: str | None = None) -> Trace | None:
        parts = self._call("get", key, client, whole=key)
        return None if parts is None else read_trace(*parts)

    def related(self, trace: Trace) -> RelatedRequests:
        first_prompt = checksums(trace.turns[0].messages) if trace.turns else ()
        own = replace(TraceSummary.of(trace), body=b"")
        fields = self._call("related", own.to_json(), first_prompt)
        return RelatedRequests(tuple(fields["steps"]), fields["continues"])

    def running_clients(self) -> dict[str, str]:
        """The clients that wait for an answer, with their names."""
        return dict(self._call("running_clients"))

    def clear(self, client: str | None = None) -> int:
        """Remove them. Returns their number."""
        return int(self._call("clear", client))

    def count_and_bytes(self, client: str | None) -> tuple[int, int]:
        """The number of requests, and about their size."""
        count, size = self._call("count_and_bytes", client)
        return count, size

    def _call(self, name: str, *arguments: Any, whole: str = "") -> Any:
        self._flush(whole)
        try:
            return self._call_store(f"traces.{name}", *arguments)
        except KeeperUnavailable as error:
            message = f"The process that stores the inspector's requests is unavailable: {error}."
            raise ExecutionDelayed(message) from error


def read_trace(fields: Mapping[str, Any], text: str | None) -> Trace:
    summary = TraceSummary.from_json(fields)
    if text is None:  # too large, or not yet reported whole
        return Trace(
            summary.id, "", summary.path, summary.client, began=summary.began, model=summary.model,
            state=summary.state, seconds=summary.seconds, error=summary.error, stripped=True,
        )  # fmt: skip
    trace = load_trace(text, summary.body)
    trace.state, trace.error = summary.state, trace.error or summary.error
    return trace
