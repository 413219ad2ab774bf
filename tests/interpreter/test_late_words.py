"""Decisions on a pending cell that arrive after another one."""

from __future__ import annotations

from contextlib import closing

import pytest

from emulator.errors import NotFound
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.pending_approval import ApprovalDecision
from emulator.storage.key_value.sqlite_store import SQLiteStore

YES, NO = ApprovalDecision(approved=True), ApprovalDecision(approved=False)


def test_a_decision_that_arrives_too_late_does_not_let_the_cell_be_decided_again() -> None:
    """It renewed the record of a cell that had been removed, and the next decision counted, too."""

    class Late(ApprovalRecords):
        """What decides here is overtaken on its way to the store."""

        def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
            there.decide("cntr_1", cell.id, YES)
            assert here.wait(cell, 60) == YES
            here.remove(cell)
            return super().decide(container_id, execution_id, decision)

    with closing(SQLiteStore(":memory:", ttl_seconds=60)) as store:
        here, there = Approvals(Late(store)), Approvals(ApprovalRecords(store))
        cell = here.add("exec_1", "cntr_1", "1 + 1")
        with pytest.raises(NotFound):
            here.decide("cntr_1", cell.id, NO)
        assert there.pending("cntr_1") == []
        with pytest.raises(NotFound):
            there.decide("cntr_1", cell.id, NO)
