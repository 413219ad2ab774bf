"""Which of several workers takes a connection that is there."""

from __future__ import annotations

import pytest

from emulator.shared.counts import Burden
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
        Burden(shares, slot).tell(amount)
    balance = Balance(Burden(shares, 0))
    balance.tell(own)
    assert balance.gives_way() is gives_way
    assert balance.seconds <= at_most
    assert not balance.gives_way()  # nobody has taken it


def test_one_worker_alone_takes_each_connection() -> None:
    balance = Balance()
    balance.tell(9)
    assert not balance.gives_way()
    assert balance.seconds <= 0
