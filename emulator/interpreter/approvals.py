"""The cells that wait for a person's approval. Knows nothing of kernels or HTTP.

    pending ──► approved: the cell runs
       ├──────► declined by a person
       └──────► declined by this process: no decision in time, client gone, container deleted, process ends

The first decision counts. A pending cell is always in the memory of the process whose request it is. With a
shared store it also has a record there (`approval_records`), which any replica shows and decides by writing
into it; the process looks twice a second. While the store is unavailable, only that process can decide.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog

from emulator.errors import ExecutionFailed, NotFound
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.pending_cell import ApprovalDecision, PendingCell
from emulator.storage.key_value import StoreFailed

log = structlog.get_logger()

_LOOK_SECONDS = 0.5


class Approvals:
    """Safe to share between threads."""

    def __init__(self, records: ApprovalRecords | None = None) -> None:
        """``records`` are those of all replicas, if there are several."""
        self._records = records
        self._lock = threading.Lock()
        self._pending: dict[str, PendingCell] = {}

    def add(self, execution_id: str, container_id: str, code: str) -> PendingCell:
        """A new pending cell. `wait` and `remove` must follow."""
        cell = PendingCell(execution_id, container_id, code, time.time())
        with self._lock:
            self._pending[cell.id] = cell
        if not self._synchronize(cell):
            log.warning("a pending cell is not shown at other replicas yet", container=container_id)
        return cell

    def wait(self, cell: PendingCell, seconds: float) -> ApprovalDecision:
        """The decision of any replica. Without one in ``seconds``, the cell is declined."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            pause = remaining if self._records is None else min(remaining, _LOOK_SECONDS)
            if (decision := cell.wait(pause)) is not None:
                return decision
            self._synchronize(cell)
        too_late = ApprovalDecision(
            approved=False, reason=f"nobody approved it within {seconds:g} s"
        )
        with suppress(NotFound):  # a decision came at this very moment
            self._settle(cell.container_id, cell.id, too_late)
        return cell.decision or too_late

    def remove(self, cell: PendingCell) -> None:
        with cell.sharing:
            with self._lock:
                self._pending.pop(cell.id, None)
            if self._records is not None:
                with suppress(StoreFailed):  # then the record expires
                    self._records.delete(cell.container_id)

    def pending(self, container_id: str) -> list[PendingCell]:
        """The pending cells of a container, oldest first. Raises `ExecutionFailed` if that is unknown."""
        found = self._pending_here(container_id)
        if self._records is not None and not found:
            try:
                elsewhere = self._records.get(container_id)
            except StoreFailed as error:
                raise _unavailable() from error
            found = [elsewhere] if elsewhere is not None else []
        return found

    def decide(
        self, container_id: str, execution_id: str, decision: ApprovalDecision
    ) -> PendingCell:
        """Raises `NotFound` if no such cell is pending in that container."""
        for cell in self.pending(container_id):
            if cell.id == execution_id:
                self._settle(container_id, execution_id, decision)
                return cell
        raise _not_found(execution_id)

    def decline_all_of(self, container_id: str) -> None:
        """The container is gone: its pending cell will not run, at any replica."""
        rejection = ApprovalDecision(approved=False, reason="the container has gone")
        with suppress(NotFound, ExecutionFailed):
            for cell in self.pending(container_id):
                self._settle(container_id, cell.id, rejection)

    def decline_all(self) -> None:
        """This process ends: none of its pending cells will run."""
        with self._lock:
            cells = [*self._pending.values()]
        for cell in cells:
            cell.decide(ApprovalDecision(approved=False, reason="the proxy ends"))

    def _pending_here(self, container_id: str) -> list[PendingCell]:
        with self._lock:
            return [cell for cell in self._pending.values() if cell.container_id == container_id]

    def _settle(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> None:
        """Raises `NotFound` if another decision came first, `ExecutionFailed` if that is unknown."""
        here = [cell for cell in self._pending_here(container_id) if cell.id == execution_id]
        if self._records is not None and not self._is_first(
            self._records, container_id, execution_id, decision, here
        ):
            raise _not_found(execution_id)
        for cell in here:
            cell.decide(decision)

    def _is_first(
        self,
        records: ApprovalRecords,
        container_id: str,
        execution_id: str,
        decision: ApprovalDecision,
        here: list[PendingCell],
    ) -> bool:
        """Return True if no other replica has decided, as far as the store is available."""
        try:
            if records.decide(container_id, execution_id, decision):
                return True
        except StoreFailed as error:
            if not here:
                raise _unavailable() from error
            return True
        for cell in here:
            self._synchronize(cell)
        # If the cell is still undecided, the store has lost its record.
        return any(cell.decision is None and self._is_pending(cell) for cell in here)

    def _is_pending(self, cell: PendingCell) -> bool:
        with self._lock:
            return cell.id in self._pending

    def _synchronize(self, cell: PendingCell) -> bool:
        """Renew the cell's record and take over another replica's decision.

        Returns False if the store is unavailable.
        """
        if self._records is None:
            return True
        with cell.sharing:
            if not self._is_pending(cell):
                return True  # a renewed record could be decided again
            try:
                decision = self._records.renew(cell)
            except StoreFailed:
                return False
        if decision is not None:
            cell.decide(decision)
        return True


def _not_found(execution_id: str) -> NotFound:
    return NotFound(
        f"No execution {execution_id!r} waits for approval in this container.",
        code="execution_not_found",
    )


def _unavailable() -> ExecutionFailed:
    return ExecutionFailed(
        "The store that tells which cells wait for approval at other replicas is unavailable.",
        code="overloaded",
        headers={"retry-after": "1"},
    )
