"""Slots that several processes count together, by the clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator.database import Slots
from tests.database.conftest import OpenDatabase
from tests.support.uploads import Clock


@pytest.fixture
def process(open_it: OpenDatabase) -> Callable[[], Slots]:
    return lambda: Slots(open_it(), "kernels", 2)


def test_a_slot_is_acquired_once_and_released(process: Callable[[], Slots]) -> None:
    one, two = process(), process()
    assert [one.acquire("a", 60), two.acquire("b", 60), one.acquire("c", 60)] == [True, True, False]
    assert two.acquire("a", 60), "a holder has the slot that it has"
    two.release("a")
    two.release("never taken")
    assert one.acquire("c", 60)


def test_no_more_slots_are_acquired_than_there_are(process: Callable[[], Slots]) -> None:
    processes = [process() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        acquired = pool.map(lambda n: processes[n].acquire(f"holder {n}", 60), range(8))
    assert sorted(acquired) == [False] * 6 + [True] * 2


def test_slots_of_another_name_are_counted_apart(
    open_it: OpenDatabase, process: Callable[[], Slots]
) -> None:
    one, other = process(), Slots(open_it(), "others", 1)
    assert [one.acquire("a", 60), one.acquire("b", 60), other.acquire("a", 60)] == [True] * 3
    other.release("a")
    assert one.idle(0) == ["a", "b"]
    assert other.idle(0) == []


def test_a_slot_expires_if_it_is_not_renewed(process: Callable[[], Slots], clock: Clock) -> None:
    one, two = process(), process()
    assert one.acquire("a", 60)
    assert one.acquire("b", 60)
    clock.now += 59
    assert not two.acquire("c", 60)
    two.renew("b", 60)
    clock.now += 2
    assert two.acquire("c", 60)
    assert not two.acquire("d", 60)


def test_a_holder_in_use_keeps_its_slot_beyond_the_limit(process: Callable[[], Slots]) -> None:
    """The database may have lost what it knew, and a limit is no reason to end what a client has."""
    one = process()
    assert one.acquire("a", 60)
    assert one.acquire("b", 60)
    one.renew("c", 60)
    one.release("a")
    assert not one.acquire("d", 60)


def test_idle_holders_are_listed_longest_idle_first_without_expired_ones(
    process: Callable[[], Slots], clock: Clock
) -> None:
    one = process()
    for holder in ("a", "b"):
        assert one.acquire(holder, 600)
        clock.now += 10
    one.renew("a", 600)
    assert one.idle(0) == ["b", "a"]
    assert one.idle(5) == ["b"]
    clock.now += 600
    assert one.idle(0) == []
