"""Which of several workers takes a connection that is there."""

from __future__ import annotations

import pytest

from emulator.shared.counts import WorkerLoad
from emulator.web.server.balance import Balance


@pytest.mark.parametrize(
    ("own", "others", "gives_way", "at_most"),
    [
        (3, [3], False, 0.0),
        (2, [3, 9], False, 0.0),
        (4, [3], True, 0.005),
        (6, [9, 3], True, 0.015),
        (500, [0], True, 0.05),
        (4, [], False, 0.0),
    ],
    ids=["as many", "fewer", "one more", "more than one of them", "very many more", "alone"],
)
def test_a_worker_leaves_a_connection_to_one_that_has_fewer_once_and_not_for_long(
    own: int, others: list[int], gives_way: bool, at_most: float
) -> None:
    shares = memoryview(bytearray(8 * 8)).cast("q")
    for slot, amount in enumerate(others, 1):
        WorkerLoad(shares, slot).report(amount)
    balance = Balance(WorkerLoad(shares, 0))
    balance.report(own)
    assert balance.should_yield() is gives_way
    assert balance.seconds <= at_most
    assert not balance.should_yield()  # nobody has taken it


def test_one_worker_alone_takes_each_connection() -> None:
    balance = Balance()
    balance.report(9)
    assert not balance.should_yield()
    assert balance.seconds <= 0
