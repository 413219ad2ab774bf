"""Background responses: the client starts one, polls it, and may cancel it.

A response's state is in the store, where every worker and replica reads it: ``queued``, then ``in_progress``
once the upstream has accepted the request, then ``completed``, ``incomplete``, ``failed`` or ``cancelled``.
The run itself is a thread of the process that started it, and dies with that process; `signals` tells the
others. Knows nothing of Flask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from emulator import client_disconnect, traces
from emulator.client_disconnect import ClientDisconnect
from emulator.errors import EmulatorError, ExecutionFailed
from emulator.events import UpstreamAccepted
from emulator.responses.items import Json
from emulator.responses.signals import Signals
from emulator.traces import Traces

log = structlog.get_logger()

_LIVE = ("queued", "in_progress")
_CANCEL_SECONDS = 5


class BackgroundAnswer(Protocol):
    """A response, or what else is polled by its id."""

    @property
    def initial(self) -> Json:
        """Its state while it is made: ``id``, ``created_at``, ``status``, and more."""

    @property
    def events(self) -> Iterator[object]:
        """Make it, and save it in the end. `UpstreamAccepted` comes first. Raises `EmulatorError`."""

    @property
    def save(self) -> Callable[[Json], None]: ...

    def failed(self, error: EmulatorError) -> Json:
        """Its state after a failure."""


@dataclass(eq=False)
class _Run:
    answer: BackgroundAnswer
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    disconnect: ClientDisconnect = field(default_factory=ClientDisconnect)
    """No client is connected; cancelling the run acts as a client's disconnect."""

    def cancel(self) -> None:
        self.cancelled.set()
        self.disconnect.report()


class BackgroundResponses:
    """The runs of this process, at most ``most`` at the same time; each counts as lost after ``seconds``.

    With ``signals``, other processes may also make responses. A run's trace in ``requests`` ends with the
    run.
    """

    def __init__(
        self,
        most: int,
        seconds: float,
        requests: Traces,
        signals: Signals | None = None,
    ) -> None:
        self._most = most
        self._signals = signals
        self._seconds = seconds
        self._requests = requests
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, answer: BackgroundAnswer) -> Json:
        """Start a run and return the queued response. Raises `ExecutionFailed` if there are too many runs."""
        queued = {**answer.initial, "status": "queued"}
        run = _Run(answer)
        with self._lock:
            if len(self._runs) >= self._most:
                message = "The proxy is at its limit of background responses. Retry in 10 seconds."
                raise ExecutionFailed(message, code="overloaded", headers={"retry-after": "10"})
            self._runs[queued["id"]] = run
        if self._signals is not None:
            self._signals.register(queued["id"], run.cancel)
        try:
            answer.save(queued)
        except EmulatorError:
            self._forget(queued["id"])
            raise
        if (trace := traces.current.get()) is not None:
            trace.background, trace.status = True, 200
        make = partial(copy_context().run, self._make, run)
        threading.Thread(target=make, name="background-response", daemon=True).start()
        return queued

    def cancel(self, response: Json) -> Json:
        """Cancel the response if it is still running, and return it."""
        if response["status"] not in _LIVE:
            return response
        with self._lock:
            run = self._runs.get(response["id"])
        if run is not None:
            run.cancel()
            run.ended.wait(_CANCEL_SECONDS)
        elif self._signals is not None:
            self._signals.request_cancel(response["id"], _CANCEL_SECONDS)
        return {**response, "status": "cancelled"}

    def current(self, response: Json, reload: Callable[[], Json]) -> Json:
        """Return the response, marked as failed if its process has died. ``reload`` reads it once more."""
        if response["status"] not in _LIVE:
            return response
        lost = response["created_at"] + self._seconds < time.time()
        if self._signals is not None and not self._signals.is_running(response["id"]):
            response, lost = reload(), True  # it may have ended in the meantime
        if not lost or response["status"] not in _LIVE:
            return response
        message = "The process that made this response has ended."
        error = {"code": "server_error", "message": message}
        return {**response, "status": "failed", "error": error}

    def close(self) -> None:
        with self._lock:
            runs = [*self._runs.values()]
        for run in runs:
            run.cancel()
        for run in runs:
            run.ended.wait(_CANCEL_SECONDS)

    def _make(self, run: _Run) -> None:
        answer, complete = run.answer, False
        client_disconnect.current.set(run.disconnect)
        try:
            for event in answer.events:
                if isinstance(event, UpstreamAccepted):
                    answer.save(answer.initial)
                if run.cancelled.is_set():
                    break
            else:
                complete = True
        except EmulatorError as error:
            answer.save(answer.failed(error))
        except Exception:
            log.exception("background response failed")
            failure = EmulatorError("The proxy failed; see its log.")
            if (trace := traces.current.get()) is not None:
                trace.set_error(failure.message)
            answer.save(answer.failed(failure))
        finally:
            if run.cancelled.is_set() and not complete:
                answer.save({**answer.initial, "status": "cancelled"})
            self._forget(answer.initial["id"])
            run.ended.set()
            if (trace := traces.current.get()) is not None:
                self._requests.finish(trace, disconnected=run.cancelled.is_set() and not complete)

    def _forget(self, response_id: str) -> None:
        with self._lock:
            del self._runs[response_id]
        if self._signals is not None:
            self._signals.unregister(response_id)
