"""Decisions on a pending cell that arrive after another one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from emulator.core.errors import ExecutionDelayed, NotFound
from emulator.database import open_database
from emulator.interpreter import approval_records
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.pending_approval import ApprovalDecision

YES, NO = ApprovalDecision(approved=True), ApprovalDecision(approved=False)


def test_a_late_decision_does_not_reopen_a_decided_cell() -> None:
    """The late decision renewed the record of a removed cell, and the next decision counted, too."""

    class Late(ApprovalRecords):
        """What decides here is overtaken on its way to the store."""

        def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
            with ThreadPoolExecutor(1) as pool:
                taken = pool.submit(there.decide, "cntr_1", cell.id, YES)
                assert here.wait(cell, 60) == YES
                here.remove(cell)
                taken.result()
            return super().decide(container_id, execution_id, decision)

    with closing(open_database(":memory:")) as store:
        here, there = Approvals(Late(store)), Approvals(ApprovalRecords(store))
        cell = here.add("exec_1", "cntr_1", "1 + 1")
        with pytest.raises(NotFound):
            here.decide("cntr_1", cell.id, NO)
        assert there.pending("cntr_1") == []
        with pytest.raises(NotFound):
            there.decide("cntr_1", cell.id, NO)


def test_a_cell_whose_process_has_died_is_not_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered with 200, and the cell never ran."""
    monkeypatch.setattr(approval_records, "_TAKEN_SECONDS", 0.2)
    with closing(open_database(":memory:")) as store:
        dead, other = Approvals(ApprovalRecords(store)), Approvals(ApprovalRecords(store))
        cell = dead.add("exec_1", "cntr_1", "1 + 1")
        with pytest.raises(ExecutionDelayed, match="does not answer"):
            other.decide("cntr_1", cell.id, YES)
        assert [one.id for one in other.pending("cntr_1")] == [cell.id], "it is undecided again"
