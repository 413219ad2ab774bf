"""Processes that stay on a core of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="a process is kept on one of several cores",
)

STAYS = """
import json, os, subprocess, sys
from sandbox import cores

def child():
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    return json.loads(subprocess.check_output([sys.executable, "-c", code]))

two, place, of = json.loads(sys.argv[1])
os.sched_setaffinity(0, two)
cores.pin_to_core(place, of)
own, its = sorted(os.sched_getaffinity(0)), child()
with cores.unpinned():
    free = child()
print(json.dumps([own, its, free, sorted(os.sched_getaffinity(0))]))
"""


@pytest.mark.parametrize(
    ("place", "of", "stays_on"),
    [(0, 2, [0]), (1, 2, [1]), (2, 2, [0]), (0, 1, [0, 1]), (1, 3, [0, 1])],
    ids=["the first", "the second", "one for another that ends", "only one", "more than cores"],
)
def test_one_of_as_many_as_there_are_cores_stays_on_its_own(
    place: int, of: int, stays_on: list[int]
) -> None:
    two = sorted(os.sched_getaffinity(0))[:2]
    told = json.dumps([two, place, of])
    answer = json.loads(subprocess.check_output([sys.executable, "-c", STAYS, told]))
    own = [two[n] for n in stays_on]
    assert answer == [own, own, two, own]
