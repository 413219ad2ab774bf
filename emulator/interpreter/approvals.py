"""The cells that wait for a person's word. Knows nothing of kernels or HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from emulator.errors import ExecutionFailed, NotFound
from emulator.interpreter.pending_cell import ApprovalDecision, PendingCell
from emulator.interpreter.shared_approvals import SharedApprovals
from emulator.storage.key_value import StoreFailed

log = structlog.get_logger()

_LOOK_SECONDS = 0.5
"""Between looks at what was decided at other replicas."""


class Approvals:
    """The held cells of all containers. Safe to share between threads.

    With ``shared``, any replica shows and decides what waits at one; while the store cannot be asked, only
    that one does.
    """

    def __init__(
        self, shared: SharedApprovals | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._shared = shared
        self._now = now
        self._lock = threading.Lock()
        self._held: dict[str, PendingCell] = {}

    def hold(self, execution_id: str, container_id: str, code: str) -> PendingCell:
        """Hold a cell until it is decided on; `wait` and `release` must follow."""
        held = PendingCell(execution_id, container_id, code, self._now())
        with self._lock:
            self._held[held.id] = held
        if not self._look(held):
            log.warning("a held cell is not shown at other replicas yet", container=container_id)
        return held

    def wait(self, held: PendingCell, seconds: float) -> ApprovalDecision:
        """The decision, from whichever replica; no decision in ``seconds`` means no."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            look_again = left if self._shared is None else min(left, _LOOK_SECONDS)
            if (decision := held.wait(look_again)) is not None:
                return decision
            self._look(held)
        nobody = ApprovalDecision(approved=False, reason=f"nobody approved it within {seconds:g} s")
        with suppress(NotFound):  # somebody was faster, just now
            self._settle(held.container_id, held.id, nobody)
        return held.decision or nobody

    def release(self, held: PendingCell) -> None:
        with held.telling:
            with self._lock:
                self._held.pop(held.id, None)
            if self._shared is not None:
                with suppress(StoreFailed):  # it ends by itself
                    self._shared.forget(held)

    def of(self, container_id: str) -> list[PendingCell]:
        """The cells that wait in one container, the oldest first."""
        found = self._of_here(container_id)
        if self._shared is not None and not found:
            try:
                elsewhere = self._shared.of(container_id)
            except StoreFailed as error:
                raise _unknown() from error
            found = [elsewhere] if elsewhere is not None else []
        return found

    def decide(
        self, container_id: str, execution_id: str, decision: ApprovalDecision
    ) -> PendingCell:
        """Raises `NotFound` if no such cell waits in that container."""
        for held in self.of(container_id):
            if held.id == execution_id:
                self._settle(container_id, execution_id, decision)
                return held
        raise _not_found(execution_id)

    def drop(self, container_id: str) -> None:
        """The container has gone: nothing of it will run, at no replica."""
        gone = ApprovalDecision(approved=False, reason="the container has gone")
        with suppress(NotFound, ExecutionFailed):
            for held in self.of(container_id):
                self._settle(container_id, held.id, gone)

    def drop_all(self) -> None:
        """This process ends: nothing that is held here will run."""
        with self._lock:
            held_here = [*self._held.values()]
        for held in held_here:
            held.decide(ApprovalDecision(approved=False, reason="the proxy ends"))

    def _of_here(self, container_id: str) -> list[PendingCell]:
        with self._lock:
            return [held for held in self._held.values() if held.container_id == container_id]

    def _settle(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> None:
        """Raises `NotFound` if another decision was faster, `ExecutionFailed` if that is unknown."""
        here = [held for held in self._of_here(container_id) if held.id == execution_id]
        if self._shared is not None and not self._counts(
            container_id, execution_id, decision, here
        ):
            raise _not_found(execution_id)
        for held in here:
            held.decide(decision)

    def _counts(
        self,
        container_id: str,
        execution_id: str,
        decision: ApprovalDecision,
        here: list[PendingCell],
    ) -> bool:
        """Whether no other replica has decided, as far as the store can be asked."""
        assert self._shared is not None
        try:
            if self._shared.decide(container_id, execution_id, decision):
                return True
        except StoreFailed as error:
            if not here:
                raise _unknown() from error
            return True
        for held in here:
            self._look(held)
        # If it still waits, the store has lost it meanwhile.
        return any(held.decision is None and self._waits(held) for held in here)

    def _waits(self, held: PendingCell) -> bool:
        with self._lock:
            return held.id in self._held

    def _look(self, held: PendingCell) -> bool:
        """Take over what another replica has decided. False if the store cannot be asked."""
        if self._shared is None:
            return True
        with held.telling:
            if not self._waits(held):
                return True  # to tell of it again would have it decided on twice
            try:
                decision = self._shared.look(held)
            except StoreFailed:
                return False  # this is called again soon
        if decision is not None:
            held.decide(decision)
        return True


def _not_found(execution_id: str) -> NotFound:
    return NotFound(
        f"No execution {execution_id!r} waits for approval in this container.",
        code="execution_not_found",
    )


def _unknown() -> ExecutionFailed:
    return ExecutionFailed(
        "What waits for approval at other replicas is not known just now.",
        code="overloaded",
        headers={"retry-after": "1"},
    )
