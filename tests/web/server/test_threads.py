"""The threads of a worker, and those that streams begin in."""

from __future__ import annotations

import threading

from emulator.web.routes.stream_starter import Starters
from emulator.web.server.threads import Threads


def test_so_many_work_at_once_and_what_comes_beyond_waits_for_one_of_them() -> None:
    threads = Threads(3)
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)
    go_on = threading.Event()

    def work() -> None:
        begun.release()
        assert go_on.wait(60)
        ended.release()

    for _ in range(4):
        threads.run(work)
    assert all(begun.acquire(timeout=60) for _ in range(3))
    assert not begun.acquire(timeout=0.2), "the fourth waits"
    go_on.set()
    assert all(ended.acquire(timeout=60) for _ in range(4))


def test_work_goes_to_the_thread_that_came_to_rest_last() -> None:
    """One queue for all gave work to the one that had rested longest, and woke another besides."""
    threads = Threads(16)
    told: list[int] = []

    def in_thread() -> None:
        done = threading.Event()

        def work() -> None:
            told.append(threading.get_ident())
            done.set()

        threads.run(work)
        assert done.wait(60)

    for _ in range(200):
        in_thread()
    # The one that has just told may not rest yet; then it is the one before.
    assert len(set(told[-100:])) < 8


def test_what_a_starter_raises_is_raised_to_who_asks() -> None:
    starters = Starters()
    assert isinstance(starters.submit(lambda: 1 // 0).exception(60), ZeroDivisionError)
    assert starters.submit(lambda: 7).result(60) == 7
