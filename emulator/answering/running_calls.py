"""The hosted calls of one answer that are running, and their results. Knows nothing of replies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import NamedTuple

from emulator import traces
from emulator.answering.recorded_call import unknown_outcome
from emulator.core import client_disconnect, metrics
from emulator.core.client_disconnect import has_disconnected
from emulator.core.errors import ClientDisconnected
from emulator.core.events import AnswerEvent, HostedCallFinished, HostedCallStarted, ToolCall
from emulator.hosted.hosted_tool import HostedResult, HostedTool

_LATE = "The call did not end before the answer's deadline."
_LOOK_SECONDS = 1.0
MAX_CONCURRENT = 16
"""Calls of one answer that run at the same time; the others wait."""


class _Running(NamedTuple):
    tool: HostedTool
    future: Future[HostedResult]
    began: float
    """In the time of the request's trace."""


class RunningCalls:
    """One thread starts calls and takes their results; any thread may `cancel` them."""

    def __init__(self, until: float) -> None:
        """``until`` is the answer's deadline (monotonic)."""
        self._until = until
        self._waiting: deque[tuple[HostedTool, ToolCall, str | None]] = deque()
        self._running: dict[str, _Running] = {}
        self._ended: SimpleQueue[str] = SimpleQueue()
        """Ids of calls, as they end, and "" after `cancel`."""
        self.results: dict[str, HostedResult] = {}

    def add(
        self,
        tool: HostedTool,
        call: ToolCall,
        known: HostedResult | None = None,
        approval_id: str | None = None,
    ) -> Iterator[AnswerEvent]:
        """Run a call as soon as there is a place, or report its ``known`` result."""
        if known is not None:
            self.results[call.id] = known
            yield from _started(tool, call, approval_id)
            yield from _finished(tool, call.id, known)
        elif len(self._running) < MAX_CONCURRENT:
            yield from self._start(tool, call, approval_id)
        else:
            self._waiting.append((tool, call, approval_id))

    def advance(self) -> Iterator[AnswerEvent]:
        """Report the calls that have ended by now."""
        while self._running and not self._ended.empty():
            yield from self._end(self._ended.get())

    def wait(self) -> Iterator[AnswerEvent]:
        """Report all calls as they end. Those that have not ended by the answer's deadline fail; the outcome
        of an act among them is unknown.

        Raises `ClientDisconnected`.
        """
        while self._running:
            try:
                key = self._ended.get(timeout=max(0.0, self._until - time.monotonic()))
            except Empty:
                self.cancel()
                for tool, call, approval_id in self._waiting:
                    yield from _started(tool, call, approval_id)
                running = [
                    (key, one.tool, one.future.running()) for key, one in self._running.items()
                ]
                waiting = [(call.id, tool, False) for tool, call, _ in self._waiting]
                for key, tool, acts in [*running, *waiting]:
                    self.results[key] = (
                        unknown_outcome(_LATE) if acts else HostedResult(_LATE, True)
                    )
                    yield from _finished(tool, key, self.results[key])
                self._running.clear()
                self._waiting.clear()
            else:
                yield from self._end(key)

    def cancel(self) -> None:
        """Cancel all calls but acts that have begun. Safe to call twice, and from any thread."""
        for running in list(self._running.values()):
            running.future.cancel()
        self._ended.put("")

    def close(self) -> None:
        """Cancel all calls, and wait until acts that have begun end: so they keep their client's place."""
        self.cancel()
        acts = [one.future for one in self._running.values() if one.future.running()]
        while (
            remaining := self._until - time.monotonic()
        ) > 0 and not client_disconnect.is_ending():
            if not futures.wait(acts, min(remaining, _LOOK_SECONDS)).not_done:
                break

    def _start(
        self, tool: HostedTool, call: ToolCall, approval_id: str | None
    ) -> Iterator[AnswerEvent]:
        yield from _started(tool, call, approval_id)
        trace = traces.current.get()
        future = tool.start(call.arguments)
        self._running[call.id] = _Running(tool, future, trace.now() if trace else 0.0)
        future.add_done_callback(lambda _: self._ended.put(call.id))
        if has_disconnected():  # before this call was there to be cancelled
            self.cancel()

    def _end(self, key: str) -> Iterator[AnswerEvent]:
        """Take the result of a call that has ended, and start one that waits for its place."""
        if has_disconnected():
            raise ClientDisconnected("The client has disconnected.")
        if key not in self._running:
            return
        tool, future, began = self._running.pop(key)
        cancelled = HostedResult("The call was cancelled.", is_error=True)
        result = cancelled if future.cancelled() else future.result()
        metrics.HOSTED_CALLS.labels(tool.kind, "failed" if result.is_error else "ran").inc()
        traces.record_span(f"{tool.kind} {tool.server}.{tool.name}"[:100], began)
        self.results[key] = result
        if result.outcome == "unknown":
            words = f"{tool.function_name} may have been made; its result is unknown."
            traces.note("unknown-outcome", words, "look at the server before you ask for it again")
        yield from _finished(tool, key, result)
        if self._waiting:
            yield from self._start(*self._waiting.popleft())


def _started(
    tool: HostedTool, call: ToolCall, approval_id: str | None
) -> Iterator[HostedCallStarted]:
    if not tool.is_hidden:
        yield HostedCallStarted(
            call.id,
            tool.kind,
            tool.server,
            tool.name,
            call.arguments,
            approval_id,
            tool.container_id(),
            call.caller,
        )


def _finished(tool: HostedTool, key: str, result: HostedResult) -> Iterator[HostedCallFinished]:
    if not tool.is_hidden:
        yield HostedCallFinished(
            key, result.content, result.is_error, result.found, result.image, result.error_code
        )
