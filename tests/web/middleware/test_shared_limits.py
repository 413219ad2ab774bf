"""Limits of clients in the memory that workers share; here all are one process, with a clock of its own."""

from __future__ import annotations

import random

import pytest

from emulator.shared.counts import Counts
from emulator.shared.open_requests import OpenRequests
from emulator.shared.rates import SPAN_SECONDS, Rates
from emulator.shared.sketch import CELLS

WORKERS = 3


@pytest.fixture
def workers() -> Counts:
    counts = Counts([])
    for slot in range(WORKERS):
        assert counts.free_slot(range(slot)) == slot
    return counts


@pytest.mark.parametrize("pace", [0.1, 1.0, 7.0, 40.0])
def test_no_client_has_more_than_it_may_in_any_minute_and_none_waits_much_longer(
    workers: Counts, pace: float
) -> None:
    """Beside a list of all that it had."""
    chance = random.Random(str(pace))
    time, most, had = 1000.0, 5, list[float]()
    rates = Rates(workers, now=lambda: time)
    refused = 0
    for _ in range(2000):
        time += chance.expovariate(1 / pace)
        workers.take_slot(chance.randrange(WORKERS))
        rate = rates.hit("a", most)
        if rate.allowed:
            had.append(time)
            assert rate.remaining <= most - len([one for one in had if one > time - 60])
        else:
            refused += 1
            assert len([one for one in had if one > time - 60 - SPAN_SECONDS]) >= most
            assert 0 < rate.seconds <= 60 + SPAN_SECONDS
    assert refused or pace > 12


def test_who_comes_again_when_it_was_told_to_is_let_in(workers: Counts) -> None:
    time = 1000.0
    rates = Rates(workers, now=lambda: time)
    assert rates.hit("a", 1).allowed
    for _ in range(50):
        rate = rates.hit("a", 1)
        assert (rate.allowed, rate.remaining) == (False, 0)
        time += rate.seconds - 0.01
        assert not rates.hit("a", 1).allowed
        time += 0.02
        workers.take_slot((workers.slot + 1) % WORKERS)
        assert rates.hit("a", 1).allowed


def test_clients_have_limits_of_their_own_though_there_are_more_than_cells(workers: Counts) -> None:
    """A flood of names takes hardly anything from one who is not among them."""
    rates = Rates(workers, now=lambda: 1000.0)
    for number in range(2 * CELLS):
        rates.hit(f"\ud800{number}", 60)
    assert rates.hit("a", 60).remaining >= 50


def test_open_requests_are_those_of_all_workers_less_those_of_dead_ones(workers: Counts) -> None:
    requests = OpenRequests(workers)
    ends = []
    for slot in (0, 1, 1):
        workers.take_slot(slot)
        ends.append(requests.enter("a", 3, 0))
    assert None not in ends
    assert requests.enter("a", 3, 0) is None
    assert requests.enter("b", 3, 0) is not None
    requests.clear(0)
    assert requests.enter("a", 3, 0) is not None
    assert requests.enter("a", 3, 0) is None
    end = ends[-1]
    assert end is not None
    end()
    assert requests.enter("a", 3, 0) is not None
