"""The cells and hosted calls that wait for a person's approval. Knows nothing of kernels or HTTP.

    pending ──► approved: the cell or call runs
       ├──────► declined by a person
       └──────► declined by this process: no decision in time, client gone, container deleted, process ends

The first decision counts. What is pending is a row (`emulator.database.acts`, with the states of a decision),
which any process lists and decides. Its own process looks twice a second, and acts only on a decision that it
has taken; only then is the person told that the decision counts. While the database is unavailable, nothing
can be approved, and what is pending can only be declined by its process.

What waits ends with its process. Its row is then no longer renewed, so that no other process, of this version
or of a later one, shows it, decides it or carries it out.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress

import structlog
from pydantic import TypeAdapter, ValidationError

from emulator import traces
from emulator.core.errors import ExecutionDelayed, ExecutionFailed, NotFound
from emulator.database import Acts, Database, DatabaseFailed, database_failures
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval

log = structlog.get_logger()

_POLL_SECONDS = 0.1
_DECISIONS = TypeAdapter(tuple[str, ApprovalDecision])
"""Each with an id, so that no two are equal."""
_UNREADABLE = ApprovalDecision(approved=False, reason="the decision cannot be read")


class Approvals:
    """Safe to share between threads."""

    def __init__(
        self, database: Database, look_seconds: float = 0.5, taken_seconds: float = 3.0
    ) -> None:
        """``database`` is that of all processes.

        The process that waits looks for a decision every ``look_seconds``; one that it has not taken after
        ``taken_seconds`` is withdrawn.
        """
        self._acts = Acts(database)
        self._look_seconds = look_seconds
        self._taken_seconds = taken_seconds
        self._lock = threading.Lock()
        self._pending: dict[str, PendingApproval] = {}

    def add(self, key: str, owner: str, code: str) -> PendingApproval:
        """Let a cell or call wait. `wait` and `remove` must follow."""
        pending = PendingApproval(key, owner, code, time.time())
        with self._lock:
            self._pending[key] = pending
        try:
            self._take(pending)
        except DatabaseFailed:
            log.warning("what waits for approval cannot be approved yet", id=key)
        return pending

    def wait(self, pending: PendingApproval, seconds: float) -> ApprovalDecision:
        """The decision of any process. Without one in ``seconds``, it is declined."""
        until = time.monotonic() + seconds
        too_late = ApprovalDecision(
            approved=False, reason=f"nobody approved it within {seconds:g} s"
        )
        with traces.waiting():
            while pending.decision is None:
                remaining = until - time.monotonic()
                pending.changed.wait(max(0.0, min(remaining, self._look_seconds)))
                refusal = pending.refusal or (too_late if remaining <= 0 else None)
                try:
                    self._take(pending, None if refusal is None else _dump(refusal))
                except DatabaseFailed:
                    pending.give_up(refusal)
        return pending.decision

    def remove(self, pending: PendingApproval) -> None:
        """It does not wait any more."""
        with self._lock:
            self._pending.pop(pending.id, None)
        with pending.taking, suppress(DatabaseFailed):  # then the row is removed when it is old
            self._acts.remove(pending.owner, pending.id)

    def pending(self, owner: str) -> list[PendingApproval]:
        """What waits, oldest first. Raises `ExecutionFailed` if that is unknown."""
        with self._lock:
            here = [one for one in self._pending.values() if one.owner == owner]
        found = {one.id: one for one in here if one.decision is None}
        try:
            for key, code, since in self._acts.pending(owner):
                found.setdefault(key, PendingApproval(key, owner, code, since))
        except DatabaseFailed as error:
            if not found:
                raise _unavailable() from error
        return sorted(found.values(), key=lambda pending: pending.since)

    def decide(self, owner: str, key: str, decision: ApprovalDecision) -> PendingApproval:
        """Return once the decision counts, because the process that waits has taken it.

        Raises `NotFound` if ``key`` is not pending or another decision came first, `ExecutionFailed` if that
        is unknown or the process that waits does not answer.
        """
        mine = _dump(decision)
        with self._lock:
            here = self._pending.get(key)
        try:
            if here is not None and here.owner == owner:
                if self._take(here, mine) != mine:
                    raise _not_found(key)
                return here
            row = self._acts.decide(owner, key, mine)
            if row is None:
                raise _not_found(key)
            self._check_taken(owner, key, mine)
        except DatabaseFailed as error:
            raise _unavailable() from error
        return PendingApproval(key, owner, *row)

    def decline_all_of(self, owner: str) -> None:
        """The container is gone: its cell will not run, at any replica."""
        rejection = ApprovalDecision(approved=False, reason="the container has gone")
        with suppress(ExecutionFailed):
            for pending in self.pending(owner):
                with suppress(NotFound):
                    self.decide(owner, pending.id, rejection)

    def decline_all(self) -> None:
        """This process ends: nothing that waits here will run."""
        with self._lock:
            found = [*self._pending.values()]
        for pending in found:
            pending.refuse(ApprovalDecision(approved=False, reason="the proxy ends"))

    def sweep(self) -> None:
        """Remove old rows. Raises `StoreUnavailable`."""
        with database_failures("Old approvals cannot be removed"):
            self._acts.sweep()

    def _take(self, pending: PendingApproval, own: bytes | None = None) -> bytes | None:
        """Take the decision that was made, else ``own``, and return it.

        None if there is none yet, or if it was taken earlier. Raises `DatabaseFailed`.
        """
        with pending.taking:
            if pending.decision is not None or self._pending.get(pending.id) is not pending:
                return None
            taken = self._acts.take(pending.owner, pending.id, pending.code, pending.since, own)
            if taken is not None:
                pending.decision = _load(taken)
                pending.changed.set()
            return taken

    def _check_taken(self, owner: str, key: str, mine: bytes) -> None:
        """Wait until ``mine`` is taken. Raises `ExecutionDelayed`, and withdraws it, if it is not."""
        until = time.monotonic() + self._taken_seconds
        while not self._acts.is_taken(owner, key, mine):
            if time.monotonic() > until:
                if self._acts.withdraw(owner, key, mine):
                    raise ExecutionDelayed(
                        "The process that asks for this approval does not answer."
                    )
                return
            time.sleep(_POLL_SECONDS)


def _dump(decision: ApprovalDecision) -> bytes:
    return _DECISIONS.dump_json((secrets.token_hex(8), decision))


def _load(decision: bytes) -> ApprovalDecision:
    try:
        return _DECISIONS.validate_json(decision)[1]
    except ValidationError:  # another program has written it
        return _UNREADABLE


def _not_found(key: str) -> NotFound:
    return NotFound(
        f"No execution {key!r} waits for approval.",
        code="execution_not_found",
    )


def _unavailable() -> ExecutionDelayed:
    return ExecutionDelayed("The database that knows what waits for approval is unavailable.")
