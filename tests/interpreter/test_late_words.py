"""Words on a held cell that come while another word counts."""

from __future__ import annotations

from contextlib import closing

import pytest

from emulator.errors import NotFound
from emulator.interpreter.approval_records import ApprovalRecords
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.pending_cell import ApprovalDecision
from emulator.storage.key_value.sqlite_store import SQLiteStore

YES, NO = ApprovalDecision(approved=True), ApprovalDecision(approved=False)


def test_a_word_that_comes_too_late_does_not_have_the_cell_decided_on_again() -> None:
    """It told the other replicas of a cell that had been let go, and the next word counted too."""

    class Late(ApprovalRecords):
        """What decides here is overtaken on its way to the store."""

        def decide(self, container_id: str, execution_id: str, decision: ApprovalDecision) -> bool:
            there.decide("cntr_1", held.id, YES)
            assert here.wait(held, 60) == YES
            here.remove(held)
            return super().decide(container_id, execution_id, decision)

    with closing(SQLiteStore(":memory:", ttl_seconds=60)) as store:
        here, there = Approvals(Late(store)), Approvals(ApprovalRecords(store))
        held = here.add("exec_1", "cntr_1", "1 + 1")
        with pytest.raises(NotFound):
            here.decide("cntr_1", held.id, NO)
        assert there.pending("cntr_1") == []
        with pytest.raises(NotFound):
            there.decide("cntr_1", held.id, NO)
