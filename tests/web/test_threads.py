"""The threads of a worker."""

from __future__ import annotations

import threading

from emulator.web.threads import Threads


def test_so_many_work_at_once_and_what_comes_beyond_waits_for_one_of_them() -> None:
    threads = Threads(3)
    begun = threading.Semaphore(0)
    go_on = threading.Event()

    def work(number: int) -> int:
        begun.release()
        assert go_on.wait(60)
        return 10 // number

    futures = [threads.submit(work, number) for number in (5, 0, 2, 1)]
    assert all(begun.acquire(timeout=60) for _ in range(3))
    assert not begun.acquire(timeout=0.2), "the fourth waits"
    go_on.set()
    assert isinstance(futures[1].exception(60), ZeroDivisionError)
    assert [futures[at].result(60) for at in (0, 2, 3)] == [2, 5, 10]
