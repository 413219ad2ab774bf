"""Background responses: the client starts one, polls it, and may cancel it.

A response's state is in the database, where every process reads it: ``queued``, then ``in_progress`` once the
upstream has accepted the request, then ``completed``, ``incomplete``, ``failed`` or ``cancelled``:
the first of these that is stored is final. The run itself is a thread of the process that started it. That
process holds a lease: if it dies, the run has failed; another process cancels the run by ending the lease.
Knows nothing of Flask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from emulator import traces
from emulator.core import client_disconnect
from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.errors import EmulatorError, ExecutionFailed, StoreUnavailable
from emulator.core.events import UpstreamAccepted
from emulator.database import DatabaseFailed, Lease, Leases, database_failures
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.stored import LIVE
from emulator.traces import Traces

log = structlog.get_logger()

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
    def save(self) -> Callable[[Json], bool]:
        """Store a state, unless a final one is stored. Returns False if that failed."""

    def failed(self, error: EmulatorError) -> Json:
        """Its state after a failure."""


@dataclass(eq=False)
class _Run:
    answer: BackgroundAnswer
    release: Callable[[], object]
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    disconnect: ClientDisconnect = field(default_factory=ClientDisconnect)
    """No client is connected; cancelling the run acts as a client's disconnect."""
    lease: Lease | None = None

    def cancel(self) -> None:
        self.cancelled.set()
        self.disconnect.report()


@dataclass(frozen=True)
class BackgroundState:
    """The stored state of a run, which may be another process's."""

    response: Json
    save: Callable[[Json], bool]
    """Does nothing if the state is final."""
    reload: Callable[[], Json]

    @property
    def is_live(self) -> bool:
        return self.response["status"] in LIVE

    def settled(self, status: str, error: Json | None = None) -> Json:
        """Save a final state, and return the one that counts: the first that was saved."""
        problem = {} if error is None else {"error": error}
        self.save({**self.response, "status": status, **problem})
        return self.reload()


class BackgroundResponses:
    """The runs of this process, at most ``most`` at the same time.

    A run's trace in ``requests`` ends with the run.
    """

    def __init__(self, most: int, requests: Traces, leases: Leases) -> None:
        self._most = most
        self._leases = leases
        self._requests = requests
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, answer: BackgroundAnswer, release: Callable[[], object]) -> Json:
        """Start a run and return the queued response.

        ``release`` ends the client's open request; it is called when the run ends. Raises `ExecutionFailed`
        if there are too many runs, `StoreUnavailable` if it cannot be stored.
        """
        queued = {**answer.initial, "status": "queued"}
        with self._lock:
            if len(self._runs) >= self._most:
                message = "The proxy is at its limit of background responses. Retry in 10 seconds."
                raise ExecutionFailed(message, code="overloaded", headers={"retry-after": "10"})
            run = self._runs[queued["id"]] = _Run(answer, release)
        try:
            with database_failures("It cannot run in the background"):
                run.lease = self._leases.take(_lease(queued["id"]))
            if run.lease is not None:
                run.lease.on_lost = run.cancel
            if not answer.save(queued):
                raise StoreUnavailable("This cannot run in the background: it cannot be stored.")
        except EmulatorError:
            self._forget(run)
            raise
        if (trace := traces.current.get()) is not None:
            trace.background, trace.status = True, 200
        make = partial(copy_context().run, self._make, run)
        threading.Thread(target=make, name="background-response", daemon=True).start()
        return queued

    def cancel(self, state: BackgroundState) -> Json:
        """Cancel the run if it has not ended, and return its state."""
        if not state.is_live:
            return state.response
        key = state.response["id"]
        with self._lock:
            run = self._runs.get(key)
        settled = state.settled("cancelled")
        if run is None:
            with suppress(DatabaseFailed):
                self._leases.end(_lease(key))  # its process cancels the run when it notices
        else:
            run.cancel()
            run.ended.wait(_CANCEL_SECONDS)
        return settled

    def current(self, state: BackgroundState) -> Json:
        """The state of the run, which has failed if its process has died."""
        if not state.is_live:
            return state.response
        try:
            if self._leases.is_taken(_lease(state.response["id"])):
                return state.response
        except DatabaseFailed:
            return state.response
        message = "The process that made this response has ended."
        return state.settled("failed", {"code": "server_error", "message": message})

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
            self._forget(run)
            run.release()
            run.ended.set()
            if (trace := traces.current.get()) is not None:
                self._requests.finish(trace, disconnected=run.cancelled.is_set() and not complete)

    def _forget(self, run: _Run) -> None:
        with self._lock:
            del self._runs[run.answer.initial["id"]]
        if run.lease is not None:
            run.lease.release()


def _lease(key: str) -> str:
    """What the process that makes a response holds."""
    return f"background {key}"
