"""The cells and hosted calls that wait for a person's approval. Knows nothing of kernels or HTTP.

    pending ──► approved: the cell or call runs
       ├──────► declined by a person
       └──────► declined by this process: no decision in time, client gone, container deleted, process ends

The first decision counts. What is pending is always in the memory of the process whose request it is. With a
database it also has an entry there (`approval_records`), which any process shows and decides by writing into
it; its own process looks twice a second. While the database is unavailable, only that process can decide.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog

from emulator import traces
from emulator.core.errors import ExecutionDelayed, ExecutionFailed, NotFound
from emulator.database import DatabaseFailed
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval

log = structlog.get_logger()

_LOOK_SECONDS = 0.5


class Approvals:
    """Safe to share between threads."""

    def __init__(self, records: ApprovalRecords | None = None) -> None:
        """``records`` are those of all processes, if there are several."""
        self._records = records
        self._lock = threading.Lock()
        self._pending: dict[str, PendingApproval] = {}

    def add(self, key: str, owner: str, code: str) -> PendingApproval:
        """Let a cell or call wait. `wait` and `remove` must follow."""
        pending = PendingApproval(key, owner, code, time.time())
        with self._lock:
            self._pending[key] = pending
        if not self._synchronize(pending):
            log.warning("what waits for approval is not shown at other replicas yet", id=key)
        return pending

    def wait(self, pending: PendingApproval, seconds: float) -> ApprovalDecision:
        """The decision of any process. Without one in ``seconds``, it is declined."""
        with traces.waiting():
            return self._wait(pending, seconds)

    def _wait(self, pending: PendingApproval, seconds: float) -> ApprovalDecision:
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            pause = remaining if self._records is None else min(remaining, _LOOK_SECONDS)
            if (decision := pending.wait(pause)) is not None:
                return decision
            self._synchronize(pending)
        too_late = ApprovalDecision(
            approved=False, reason=f"nobody approved it within {seconds:g} s"
        )
        with suppress(NotFound):  # a decision came at this very moment
            self._settle(pending.owner, pending.id, too_late)
        return pending.decision or too_late

    def remove(self, pending: PendingApproval) -> None:
        with pending.sharing:
            with self._lock:
                self._pending.pop(pending.id, None)
            if self._records is not None:
                with suppress(DatabaseFailed):  # then the entry expires
                    self._records.delete(pending.owner, pending.id)

    def pending(self, owner: str) -> list[PendingApproval]:
        """What waits, oldest first. Raises `ExecutionFailed` if that is unknown."""
        found = self._pending_here(owner)
        if self._records is not None:
            here = {pending.id for pending in found}
            try:
                found += [one for one in self._records.get(owner) if one.id not in here]
            except DatabaseFailed as error:
                if not found:
                    raise _unavailable() from error
        return sorted(found, key=lambda pending: pending.since)

    def decide(self, owner: str, key: str, decision: ApprovalDecision) -> PendingApproval:
        """Raises `NotFound` if ``key`` is not pending."""
        for pending in self.pending(owner):
            if pending.id == key:
                self._settle(owner, key, decision)
                return pending
        raise _not_found(key)

    def decline_all_of(self, owner: str) -> None:
        """The container is gone: its cell will not run, at any replica."""
        rejection = ApprovalDecision(approved=False, reason="the container has gone")
        with suppress(NotFound, ExecutionFailed):
            for pending in self.pending(owner):
                self._settle(owner, pending.id, rejection)

    def decline_all(self) -> None:
        """This process ends: nothing that waits here will run."""
        with self._lock:
            found = [*self._pending.values()]
        for pending in found:
            pending.decide(ApprovalDecision(approved=False, reason="the proxy ends"))

    def _pending_here(self, owner: str) -> list[PendingApproval]:
        with self._lock:
            found = [one for one in self._pending.values() if one.owner == owner]
        return [pending for pending in found if pending.decision is None]

    def _settle(self, owner: str, key: str, decision: ApprovalDecision) -> None:
        """Raises `NotFound` if another decision came first, `ExecutionFailed` if that is unknown."""
        here = [pending for pending in self._pending_here(owner) if pending.id == key]
        if self._records is not None and not self._is_first(
            self._records, owner, key, decision, here
        ):
            raise _not_found(key)
        for pending in here:
            pending.decide(decision)
        if self._records is not None and not here:
            self._check_taken(self._records, owner, key)

    def _check_taken(self, records: ApprovalRecords, owner: str, key: str) -> None:
        """Raises `ExecutionDelayed` unless the process that waits has taken the decision."""
        try:
            if records.was_taken(owner, key):
                return
        except DatabaseFailed as error:
            raise _unavailable() from error
        raise ExecutionDelayed("The process that asks for this approval does not answer.")

    def _is_first(
        self,
        records: ApprovalRecords,
        owner: str,
        key: str,
        decision: ApprovalDecision,
        here: list[PendingApproval],
    ) -> bool:
        """Return True if no other process has decided, as far as the database is available."""
        try:
            if records.decide(owner, key, decision):
                return True
        except DatabaseFailed as error:
            if not here:
                raise _unavailable() from error
            return True
        for pending in here:
            self._synchronize(pending)
        # If it is still undecided, the database has lost its entry.
        return any(pending.decision is None and self._is_pending(pending) for pending in here)

    def _is_pending(self, pending: PendingApproval) -> bool:
        with self._lock:
            return pending.id in self._pending

    def _synchronize(self, pending: PendingApproval) -> bool:
        """Renew the entry in the database and take over another process's decision.

        Returns False if the database is unavailable.
        """
        if self._records is None:
            return True
        with pending.sharing:
            if not self._is_pending(pending):
                return True  # a renewed entry could be decided again
            try:
                decision = self._records.renew(pending)
            except DatabaseFailed:
                return False
        if decision is not None:
            pending.decide(decision)
        return True


def _not_found(key: str) -> NotFound:
    return NotFound(
        f"No execution {key!r} waits for approval.",
        code="execution_not_found",
    )


def _unavailable() -> ExecutionDelayed:
    return ExecutionDelayed(
        "The database that tells what waits for approval at other replicas is unavailable."
    )
