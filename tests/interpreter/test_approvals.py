"""What people were told about what waits for approval is what happened, whoever is delayed."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from emulator.core.errors import ExecutionDelayed, ExecutionFailed, NotFound
from emulator.database import (
    ACT_SECONDS,
    Database,
    Documents,
    Rows,
    open_database,
)
from emulator.database.database import Result
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.pending_approval import (
    DISCONNECTED,
    ApprovalDecision,
    PendingApproval,
)
from tests.support.uploads import Clock

KEY, CONTAINER = "exec_1", "cntr_1"
YES, NO = ApprovalDecision(approved=True, code="2"), ApprovalDecision(approved=False, reason="no")
PATIENT = 60.0


@pytest.fixture(params=["memory", "postgresql"])
def database(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Database]:
    place = ":memory:"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres_server").database()
    opened = open_database(place, clock)
    yield opened
    opened.close()


class Actor(Database):
    """A thread that pauses before each of its statements until `step`."""

    def __init__(self, database: Database, work: Callable[[Database], object]) -> None:
        self._database = database
        self._turn, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self.has_ended = False
        self.outcome: Any = None
        self._work = work
        threading.Thread(target=self._run, daemon=True).start()
        self._paused.acquire()

    def step(self) -> None:
        """Execute the next statement, and everything up to the one after it."""
        if not self.has_ended:
            self._turn.release()
            self._paused.acquire()

    def finish(self) -> Any:
        while not self.has_ended:
            self.step()
        return self.outcome

    def _run(self) -> None:
        try:
            self.outcome = self._work(self)
        finally:
            self.has_ended = True
            self._paused.release()

    def execute(self, query: str, values: Mapping[str, Any], *, writes: bool) -> Result:
        self._paused.release()
        self._turn.acquire()
        return self._database.execute(query, values, writes=writes)

    def transaction(self, lock: str = "") -> AbstractContextManager[Rows]:
        return self._database.transaction(lock)

    def now(self) -> float:
        return self._database.now()

    def close(self) -> None:
        pass


class Owner:
    """The process with a cell that waits, until its decision; it may be decided in this process, too."""

    def __init__(self, database: Database) -> None:
        self.pending: PendingApproval | None = None
        self.actor = Actor(database, self._ask)

    def _ask(self, database: Database) -> ApprovalDecision:
        self.approvals = Approvals(database, look_seconds=0)
        self.pending = self.approvals.add(KEY, CONTAINER, "1 + 1")
        try:
            return self.approvals.wait(self.pending, PATIENT)
        finally:
            self.approvals.remove(self.pending)

    def refuse(self) -> None:
        """Its client disconnects."""
        if self.pending is not None:
            self.pending.refuse(DISCONNECTED)


def deciding(decision: ApprovalDecision, key: str = KEY) -> Callable[[Database], bool]:
    """What a person at another process does; returns whether the decision was said to count."""

    def decide(database: Database) -> bool:
        with suppress(NotFound, ExecutionDelayed):
            Approvals(database, taken_seconds=0).decide(CONTAINER, key, decision)
            return True
        return False

    return decide


def check(database: Database, order: Sequence[str]) -> ApprovalDecision:
    """Let the owner and two persons work in this order, then to their end. Returns what the owner did."""
    owner = Owner(database)
    owner.actor.step()
    owner.actor.step()  # now the cell is listed
    persons = {
        "approve": Actor(database, deciding(YES)),
        "decline": Actor(database, deciding(NO)),
    }
    for name in order:
        if name == "disconnect":
            owner.refuse()
        else:
            {"owner": owner.actor, **persons}[name].step()
    told = {name: person.finish() for name, person in persons.items()}
    owner.refuse()
    done: ApprovalDecision = owner.actor.finish()
    happened = {"approve": done == YES, "decline": done == NO}
    assert told == happened, order
    assert Approvals(database).pending(CONTAINER) == [], order
    database.run("DELETE FROM journal")
    return done


def test_what_a_person_was_told_happens_in_every_order_of_statements(database: Database) -> None:
    """A person was told "not taken: declined", and the act ran.

    Each person decides, looks whether the decision was taken, and withdraws it.
    """
    steps = ["owner"] * 3 + ["approve"] * 4 + ["decline"] * 4
    generator = random.Random(1)
    orders = [generator.sample([*steps, "disconnect"], len(steps) + 1) for _ in range(400)]
    outcomes = {check(database, order) for order in orders}
    assert outcomes == {YES, NO, DISCONNECTED}


def test_one_person_is_told_what_happens_wherever_the_owner_is_paused(database: Database) -> None:
    for order in sorted(set(itertools.permutations(["owner"] * 3 + ["approve"] * 4))):
        assert check(database, order) in (YES, DISCONNECTED)


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("here", [YES, NO], ids=["approved here", "declined here"])
def test_a_decision_at_the_own_process_counts_once_among_those_of_others(
    database: Database, position: int, here: ApprovalDecision
) -> None:
    there = NO if here == YES else YES
    owner = Approvals(database)
    pending = owner.add(KEY, CONTAINER, "1 + 1")
    person = Actor(database, deciding(there))
    for _ in range(position):
        person.step()
    is_counted_here = True
    try:
        owner.decide(CONTAINER, KEY, here)
    except NotFound:
        is_counted_here = False
    is_counted_there = person.finish()
    done = owner.wait(pending, PATIENT if is_counted_here or is_counted_there else 0)
    assert (is_counted_here, is_counted_there) == (done == here, done == there)
    assert is_counted_here or is_counted_there


def test_what_waits_at_a_process_that_died_cannot_be_approved(
    database: Database, clock: Clock
) -> None:
    """It was answered with 200, and the cell never ran."""
    dead, other = Approvals(database), Approvals(database, taken_seconds=0)
    dead.add(KEY, CONTAINER, "1 + 1")
    with pytest.raises(ExecutionDelayed, match="does not answer"):
        other.decide(CONTAINER, KEY, YES)
    assert [one.id for one in other.pending(CONTAINER)] == [KEY], "it is undecided again"
    clock.now += ACT_SECONDS + 1
    assert other.pending(CONTAINER) == []
    with pytest.raises(NotFound):
        other.decide(CONTAINER, KEY, YES)
    clock.now += 3600
    other.sweep()
    assert database.all("SELECT id FROM journal") == []


def test_a_late_decision_does_not_reopen_a_decided_cell(database: Database) -> None:
    """The late decision renewed the record of a removed cell, and the next decision counted, too."""
    here, there = Approvals(database), Approvals(database)
    cell = here.add(KEY, CONTAINER, "1 + 1")
    here.decide(CONTAINER, KEY, YES)
    assert here.wait(cell, PATIENT) == YES
    here.remove(cell)
    for process in (here, there):
        with pytest.raises(NotFound):
            process.decide(CONTAINER, KEY, NO)
        assert process.pending(CONTAINER) == []


@pytest.mark.parametrize("owner", ["cntr_2", "", "CNTR_1"])
def test_another_owner_decides_nothing(database: Database, owner: str) -> None:
    here, there = Approvals(database), Approvals(database)
    cell = here.add(KEY, CONTAINER, "1 + 1")
    for process in (here, there):
        assert process.pending(owner) == []
        with pytest.raises(NotFound):
            process.decide(owner, KEY, YES)
        process.decline_all_of(owner)
    assert [one.id for one in there.pending(CONTAINER)] == [KEY]
    assert not here.wait(cell, 0).approved


def test_all_that_waits_for_a_deleted_container_is_declined(database: Database) -> None:
    """One that another process had just decided kept the others waiting."""
    here = Approvals(database)
    cells = [here.add(f"exec_{n}", CONTAINER, "1 + 1") for n in range(3)]
    person = Actor(database, deciding(YES, "exec_0"))
    person.step()
    here.decline_all_of(CONTAINER)
    assert person.finish() is True
    decisions = [here.wait(cell, PATIENT) for cell in cells]
    assert decisions[0] == YES
    assert [one.reason for one in decisions[1:]] == ["the container has gone"] * 2


@pytest.mark.parametrize("decision", [b"yes", b"", b"\xff", b'["a"]', b'["a", {"approved": "x"}]'])
def test_a_decision_that_another_program_wrote_approves_nothing(
    database: Database, decision: bytes
) -> None:
    here = Approvals(database)
    cell = here.add(KEY, CONTAINER, "1 + 1")
    database.run("UPDATE journal SET value = :decision, state = 'decided'", decision=decision)
    assert here.wait(cell, PATIENT) == ApprovalDecision(
        approved=False, reason="the decision cannot be read"
    )


def test_without_a_database_nothing_is_approved_and_the_own_process_declines(
    database: Database,
) -> None:
    """A process that could not reach the database approved by itself what another had declined."""
    here, there = Approvals(database), Approvals(database)
    cell = here.add(KEY, CONTAINER, "1 + 1")
    database.run("ALTER TABLE journal RENAME TO hidden")
    late = here.add("exec_2", CONTAINER, "2 + 2")
    assert [one.id for one in here.pending(CONTAINER)] == [KEY, "exec_2"], "in its memory"
    for process in (here, there):
        with pytest.raises(ExecutionFailed, match="is unavailable"):
            process.decide(CONTAINER, KEY, YES)
    assert "nobody approved it" in here.wait(cell, 0).reason
    here.remove(cell)
    database.run("ALTER TABLE hidden RENAME TO journal")
    with pytest.raises(ExecutionDelayed, match="does not answer"):
        Approvals(database, taken_seconds=0).decide(CONTAINER, KEY, YES)
    here.decide(CONTAINER, "exec_2", YES)
    assert here.wait(late, PATIENT) == YES


def test_what_waits_is_declined_when_its_process_ends(database: Database) -> None:
    old, new = Approvals(database), Approvals(database)
    cell = old.add(KEY, CONTAINER, "1 + 1")
    old.decline_all()
    assert old.wait(cell, PATIENT).reason == "the proxy ends"
    old.remove(cell)
    assert new.pending(CONTAINER) == []
    with pytest.raises(NotFound):
        new.decide(CONTAINER, KEY, YES)


def test_an_approval_that_was_open_before_an_upgrade_is_neither_shown_nor_carried_out(
    tmp_path: Path, clock: Clock
) -> None:
    """Earlier versions had documents, which only their own processes read; the row outlives none of them."""
    place = str(tmp_path / "database.sqlite")
    with closing(open_database(place, clock)) as old:
        entry = {"id": KEY, "code": "1 + 1", "since": 1.0, "renewed": 2e9, "decision": None}
        for kind, document in (("approval", [entry]), ("kernel-slots", {}), ("response", {})):
            stored: Documents[Any] = Documents(old, kind, Any, seconds=ACT_SECONDS)
            stored.put({CONTAINER: document})
    for seconds, left in ((0.0, 3), (ACT_SECONDS + 1, 1)):
        clock.now += seconds
        with closing(open_database(place, clock)) as new:
            approvals = Approvals(new)
            assert approvals.pending(CONTAINER) == []
            with pytest.raises(NotFound):
                approvals.decide(CONTAINER, KEY, YES)
            assert new.one("SELECT count(*) FROM documents") == (left,)
