"""Responses that are made while nobody waits: started, polled, cancelled.

The state of each stands in the store, where every worker and replica finds it; a run itself lives in this
process and ends with it. Knows nothing of Flask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial

import structlog

from emulator import client_disconnect, traces
from emulator.client_disconnect import ClientDisconnect
from emulator.errors import EmulatorError, ExecutionFailed
from emulator.events import UpstreamAccepted
from emulator.responses.front import Answer
from emulator.responses.items import Json
from emulator.responses.signals import Signals
from emulator.traces import Traces

log = structlog.get_logger()

_LIVE = ("queued", "in_progress")
_CANCEL_SECONDS = 5


@dataclass(eq=False)
class _Run:
    answer: Answer
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    disconnect: ClientDisconnect = field(default_factory=ClientDisconnect)
    """Nobody waits; who cancels the run leaves, so to speak."""

    def cancel(self) -> None:
        self.cancelled.set()
        self.disconnect.report()


class BackgroundResponses:
    """The runs of this process, ``most`` at once; none is taken to live longer than ``seconds``.

    With ``signals``, other processes may make some too. In ``requests`` the one of a response ends with it.
    """

    def __init__(
        self,
        most: int,
        seconds: float,
        requests: Traces,
        signals: Signals | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._most = most
        self._signals = signals
        self._seconds = seconds
        self._requests = requests
        self._now = now
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, answer: Answer) -> Json:
        """The response as it is queued. Raises `ExecutionFailed` when there are too many."""
        queued = {**answer.begun, "status": "queued"}
        run = _Run(answer)
        with self._lock:
            if len(self._runs) >= self._most:
                message = "Too many responses are being made in the background."
                raise ExecutionFailed(message, code="overloaded", headers={"retry-after": "10"})
            self._runs[queued["id"]] = run
        if self._signals is not None:
            self._signals.begin(queued["id"], run.cancel)
        try:
            answer.keep(queued)
        except EmulatorError:
            self._forget(queued["id"])
            raise
        if (trace := traces.current.get()) is not None:
            trace.background, trace.status = True, 200
        make = partial(copy_context().run, self._make, run)
        threading.Thread(target=make, name="background-response", daemon=True).start()
        return queued

    def cancel(self, response: Json) -> Json:
        """The response, cancelled if it was still being made."""
        if response["status"] not in _LIVE:
            return response
        with self._lock:
            run = self._runs.get(response["id"])
        if run is not None:
            run.cancel()
            run.ended.wait(_CANCEL_SECONDS)
        elif self._signals is not None:
            self._signals.cancel(response["id"], _CANCEL_SECONDS)
        return {**response, "status": "cancelled"}

    def current(self, response: Json, again: Callable[[], Json]) -> Json:
        """The response; one whose process has died with it has failed. ``again`` reads it once more."""
        if response["status"] not in _LIVE:
            return response
        lost = response["created_at"] + self._seconds < self._now()
        if self._signals is not None and not self._signals.is_made(response["id"]):
            response, lost = again(), True  # it may have ended just now
        if not lost or response["status"] not in _LIVE:
            return response
        error = {"code": "server_error", "message": "The proxy that made this response has gone."}
        return {**response, "status": "failed", "error": error}

    def close(self) -> None:
        with self._lock:
            runs = [*self._runs.values()]
        for run in runs:
            run.cancel()
        for run in runs:
            run.ended.wait(_CANCEL_SECONDS)

    def _make(self, run: _Run) -> None:
        answer, whole = run.answer, False
        client_disconnect.current.set(run.disconnect)
        try:
            for event in answer.events:
                if isinstance(event, UpstreamAccepted):
                    answer.keep(answer.begun)
                if run.cancelled.is_set():
                    break
            else:
                whole = True
        except EmulatorError as error:
            answer.keep(answer.writer.failed(error)["response"])
        except Exception:
            log.exception("background response failed")
            lost = EmulatorError("The proxy failed; its log says why.")
            if (trace := traces.current.get()) is not None:
                trace.failed(lost.message)
            answer.keep(answer.writer.failed(lost)["response"])
        finally:
            if run.cancelled.is_set() and not whole:
                answer.keep({**answer.begun, "status": "cancelled"})
            self._forget(answer.begun["id"])
            run.ended.set()
            if (trace := traces.current.get()) is not None:
                self._requests.finish(trace, left=run.cancelled.is_set() and not whole)

    def _forget(self, response_id: str) -> None:
        with self._lock:
            del self._runs[response_id]
        if self._signals is not None:
            self._signals.end(response_id)
