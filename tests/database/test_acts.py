"""Acts that wait for a decision, as rows that several processes see."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator.database import ACT_SECONDS, Acts
from tests.database.conftest import OpenDatabase
from tests.support.uploads import Clock

ACT = ("ann", "act_1", "pay()", 1.5)


@pytest.fixture
def process(open_it: OpenDatabase) -> Callable[[], Acts]:
    return lambda: Acts(open_it())


def test_an_act_is_listed_until_it_is_decided_and_the_decision_is_taken_once(
    process: Callable[[], Acts],
) -> None:
    its, other = process(), process()
    assert its.take(*ACT) is None
    assert other.pending("ann") == [("act_1", "pay()", 1.5)]
    assert other.decide("ann", "act_1", b"yes") == ("pay()", 1.5)
    assert other.pending("ann") == []
    assert not other.is_taken("ann", "act_1", b"yes")
    assert its.take(*ACT) == b"yes"
    assert other.is_taken("ann", "act_1", b"yes")
    assert its.take(*ACT, b"too late") == b"yes", "what was taken does not change"


def test_the_first_decision_counts_at_every_process(process: Callable[[], Acts]) -> None:
    its = process()
    its.take(*ACT)
    deciding = [process() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda n: deciding[n].decide("ann", "act_1", b"%d" % n), range(8))]
    [first] = [n for n, act in enumerate(found) if act is not None]
    assert its.take(*ACT, b"too late") == b"%d" % first


def test_the_decision_of_its_own_process_counts_if_it_is_the_first(
    process: Callable[[], Acts],
) -> None:
    its, other = process(), process()
    its.take(*ACT)
    assert its.take(*ACT, b"too late") == b"too late"
    assert other.decide("ann", "act_1", b"yes") is None


def test_a_decision_is_withdrawn_only_by_who_made_it_and_only_before_it_is_taken(
    process: Callable[[], Acts],
) -> None:
    its, other = process(), process()
    its.take(*ACT)
    other.decide("ann", "act_1", b"yes")
    assert other.withdraw("ann", "act_1", b"no"), "it never counted"
    assert other.pending("ann") == []
    assert other.withdraw("ann", "act_1", b"yes")
    assert len(other.pending("ann")) == 1
    other.decide("ann", "act_1", b"no")
    assert its.take(*ACT) == b"no"
    assert not other.withdraw("ann", "act_1", b"no")
    assert its.take(*ACT) == b"no"


def test_every_statement_may_run_twice(process: Callable[[], Acts]) -> None:
    """A lost connection leaves unknown whether its statement ran; who waits for a decision asks again."""
    its, other = process(), process()
    assert [its.take(*ACT), its.take(*ACT)] == [None, None]
    assert [other.decide("ann", "act_1", b"yes") for _ in "12"] == [("pay()", 1.5)] * 2
    assert [its.take(*ACT, b"too late") for _ in "12"] == [b"yes"] * 2
    assert other.decide("ann", "act_1", b"yes") == ("pay()", 1.5)


@pytest.mark.parametrize("owner", ["bob", "", "ANN", "ann\0", "%"])
def test_another_owner_changes_nothing(process: Callable[[], Acts], owner: str) -> None:
    its, other = process(), process()
    its.take(*ACT)
    assert other.pending(owner) == []
    assert other.decide(owner, "act_1", b"yes") is None
    other.remove(owner, "act_1")
    assert other.take(owner, "act_1", "forged()", 9.0, b"yes") == b"yes", "of another act"
    assert its.take(*ACT) is None
    other.decide("ann", "act_1", b"no")
    assert other.withdraw(owner, "act_1", b"no")
    assert its.take(*ACT) == b"no"


def test_an_act_of_a_dead_process_is_neither_listed_nor_decided_and_is_removed(
    process: Callable[[], Acts], open_it: OpenDatabase, clock: Clock
) -> None:
    its, other = process(), process()
    its.take(*ACT)
    clock.now += ACT_SECONDS - 1
    assert len(other.pending("ann")) == 1
    its.take(*ACT)
    clock.now += ACT_SECONDS + 1
    assert other.pending("ann") == []
    assert other.decide("ann", "act_1", b"yes") is None
    other.sweep()
    assert its.take(*ACT) is None, "it was not dead"
    assert len(other.pending("ann")) == 1
    clock.now += 100
    other.sweep()
    assert open_it().all("SELECT id FROM journal") == []


def test_a_lost_row_is_added_again_with_the_decision_of_its_process(
    process: Callable[[], Acts], open_it: OpenDatabase
) -> None:
    its, other = process(), process()
    its.take(*ACT)
    open_it().run("DELETE FROM journal")
    assert its.take(*ACT, b"too late") == b"too late"
    assert other.decide("ann", "act_1", b"yes") is None


def test_an_act_that_nobody_waits_for_is_removed_unless_its_decision_was_taken(
    process: Callable[[], Acts],
) -> None:
    its, other = process(), process()
    its.take(*ACT)
    other.decide("ann", "act_1", b"yes")
    its.remove("ann", "act_1")
    assert other.withdraw("ann", "act_1", b"yes"), "it was never taken"
    its.take(*ACT)
    other.decide("ann", "act_1", b"yes")
    its.take(*ACT)
    its.remove("ann", "act_1")
    assert other.is_taken("ann", "act_1", b"yes")
