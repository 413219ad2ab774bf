"""Places of kernels that several replicas count together, by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from emulator.database import Database, Documents, open_database
from emulator.interpreter.kernel_records import KernelSlots

Time = list[float]


@pytest.fixture
def time() -> Time:
    return [1_000.0]


@pytest.fixture
def database() -> Iterator[Database]:
    opened = open_database(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def replica(database: Database, time: Time) -> Callable[[], KernelSlots]:
    return lambda: KernelSlots(database, 2, now=lambda: time[0])


def test_a_slot_is_acquired_once_and_released(
    replica: Callable[[], KernelSlots],
) -> None:
    one, two = replica(), replica()
    assert [one.acquire("a", 60), two.acquire("b", 60), one.acquire("c", 60)] == [True, True, False]
    assert two.acquire("a", 60), "a container has the place that it has"
    two.release("a")
    two.release("never taken")
    assert one.acquire("c", 60)


def test_a_slot_expires_if_it_is_not_renewed(
    replica: Callable[[], KernelSlots], time: Time
) -> None:
    one, two = replica(), replica()
    assert one.acquire("a", 60)
    assert one.acquire("b", 60)
    time[0] += 59
    assert not two.acquire("c", 60)
    two.renew("b", 60)
    time[0] += 2
    assert two.acquire("c", 60)
    assert not two.acquire("d", 60)


def test_a_running_kernel_keeps_its_slot_beyond_the_limit(
    replica: Callable[[], KernelSlots],
) -> None:
    """The store may have lost what it knew, and a limit is no reason to end what a client has."""
    one = replica()
    assert one.acquire("a", 60)
    assert one.acquire("b", 60)
    one.renew("c", 60)
    one.release("a")
    assert not one.acquire("d", 60)


def test_idle_kernels_are_listed_longest_idle_first_without_expired_ones(
    replica: Callable[[], KernelSlots], time: Time
) -> None:
    one = replica()
    for container in ("a", "b"):
        assert one.acquire(container, 600)
        time[0] += 10
    one.renew("a", 600)
    assert one.idle(0) == ["b", "a"]
    assert one.idle(5) == ["b"]
    time[0] += 600
    assert one.idle(0) == []


def test_an_invalid_table_of_slots_counts_as_empty(
    database: Database, replica: Callable[[], KernelSlots]
) -> None:
    garbage: Documents[bytes] = Documents(database, "kernel-slots", seconds=60)
    garbage.put({"all": b'[{"a": ["soon", null]}]'})
    assert replica().idle(0) == []
    assert replica().acquire("a", 60)
