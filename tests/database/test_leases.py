"""Leases and counters: the same in memory, in a file and in PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from emulator.core.client_disconnect import ClientDisconnect, current
from emulator.database import LEASE_SECONDS, DatabaseFailed, Leases, LeaseTaken, open_database
from emulator.database import leases as leases_module
from emulator.database.counters import Counters, Rate
from emulator.database.sqlite import SQLite
from tests.database.conftest import OpenDatabase
from tests.support.processes import wait_until
from tests.support.uploads import Clock


def test_a_name_has_no_more_leases_than_its_limit(open_it: OpenDatabase) -> None:
    processes = [Leases(open_it()) for _ in range(3)]
    with ThreadPoolExecutor(12) as pool:
        taken = [*pool.map(lambda n: processes[n % 3].take("a", 4), range(12))]
    held = [lease for lease in taken if lease is not None]
    assert len(held) == 4
    assert all(lease.is_held() for lease in held)
    assert processes[0].take("b") is not None
    held[0].release()
    held[0].release()
    again = [process.take("a", 4) for process in processes]
    assert [lease is not None for lease in again] == [True, False, False]
    for process in processes:
        process.close()
    assert not processes[0].is_taken("a")


def test_a_lease_expires_if_it_is_not_renewed(
    open_it: OpenDatabase, clock: Clock, place: str
) -> None:
    dead, alive = Leases(open_it()), Leases(open_it())
    assert dead.take("a") is not None
    if place.startswith("postgresql"):
        open_it().run("UPDATE leases SET until = until - :seconds", seconds=LEASE_SECONDS + 1)
    else:
        clock.now += LEASE_SECONDS - 1
        assert alive.take("a") is None
        clock.now += 2
    assert alive.take("a") is not None


def test_a_process_renews_its_leases_and_is_notified_of_a_loss(
    open_it: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "_RENEW_SECONDS", 0.02)
    one, other = Leases(open_it()), Leases(open_it())
    lease = one.take("a")
    assert lease is not None
    first, lost = lease.renewed, threading.Event()
    lease.on_lost = lost.set
    wait_until(lambda: lease.renewed > first)
    other.end("a")
    assert lost.wait(30)
    assert not lease.is_held()
    with other.holding("a"):
        lease.release()  # no longer its own
        assert one.take("a") is None


def test_a_process_that_takes_a_lost_lease_again_is_notified_of_the_loss(
    open_it: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old and the new lease have the same number."""
    monkeypatch.setattr(leases_module, "_RENEW_SECONDS", 0.5)
    leases = Leases(open_it())
    lease, lost = leases.take("a"), threading.Event()
    assert lease is not None
    lease.on_lost = lost.set
    leases.end("a")
    again = leases.take("a")
    assert again is not None
    assert lost.wait(30)
    assert (lease.is_held(), again.is_held()) == (False, True)
    lease.release()
    assert leases.take("a") is None
    again.release()
    assert leases.take("a") is not None


def test_a_callback_that_fails_on_a_loss_ends_no_other_lease(
    open_it: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that renews ended, and with it all leases of the process."""
    monkeypatch.setattr(leases_module, "_RENEW_SECONDS", 0.02)
    one, other = Leases(open_it()), Leases(open_it())
    kept, lost = one.take("kept"), one.take("lost")
    assert kept is not None
    assert lost is not None
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("a mistake of the holder")

    lost.on_lost = fail
    other.end("lost")
    assert failed.wait(30)
    before = kept.renewed
    wait_until(lambda: kept.renewed > before)


def test_waiting_for_a_lease_ends_with_its_release_a_time_or_the_client(
    open_it: OpenDatabase,
) -> None:
    leases = Leases(open_it())
    with leases.holding("a"):
        with pytest.raises(LeaseTaken), leases.holding("a", 0.05):
            pass
        disconnect = ClientDisconnect()
        token = current.set(disconnect)
        threading.Timer(0.05, disconnect.report).start()
        assert leases.take("a", seconds=300) is None
        current.reset(token)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(leases.take, "b", 1, 300)
            assert waiting.result() is not None
    assert leases.take("a", seconds=300) is not None


def test_many_leases_are_released_without_waiting_for_the_database(open_it: OpenDatabase) -> None:
    """A statement at the end of each answer was a third of what a limit cost."""
    leases, others = Leases(open_it()), Leases(open_it())
    held = [leases.take("key", 120) for _ in range(120)]
    assert others.take("key", 120) is None
    for lease in held:
        assert lease is not None
        lease.release_later()
        lease.release_later()
        assert not (lease.release() or leases.release(lease))
    assert all(others.take("key", 120, seconds=10) for _ in range(120))


def test_a_rate_is_exact_over_all_processes(open_it: OpenDatabase) -> None:
    own = SQLite(":memory:")
    databases = [open_it(), open_it()]
    counters = [Counters(database, Leases(database), own) for database in databases]
    with ThreadPoolExecutor(8) as pool:
        rates = [*pool.map(lambda n: counters[n % 2].hit("key", 10), range(16))]
    assert sum(rate.allowed for rate in rates) == 10
    assert sorted(rate.remaining for rate in rates if rate.allowed) == [*range(10)]
    assert all(0 < rate.reset_seconds <= 60 for rate in rates)
    assert counters[0].hit("another", 1).allowed


def test_a_limit_is_free_again_share_by_share(clock: Clock) -> None:
    with closing(open_database(":memory:", clock)) as database:
        counters = Counters(database, Leases(database), database)
        assert [counters.hit("key", 2) for _ in range(3)] == [
            Rate(True, 1, 30, 0),
            Rate(True, 0, 60, 30),
            Rate(False, 0, 60, 30),
        ]
        clock.now += 29
        assert counters.hit("key", 2) == Rate(False, 0, 31, 1)
        clock.now += 1
        assert counters.hit("key", 2) == Rate(True, 0, 60, 30)
        clock.now += 61
        assert counters.hit("key", 2) == Rate(True, 1, 30, 0)


def test_expired_counts_are_removed(clock: Clock) -> None:
    with closing(open_database(":memory:", clock)) as database:
        leases = Leases(database)
        counters = Counters(database, leases, database)
        for n in range(1200):
            counters.hit(f"{n}", 60)
        leases.take("a")
        counters.spend("b", 7, 60)
        clock.now += 200
        counters.hit("new", 60)
        rows = "SELECT key FROM rates UNION ALL SELECT key FROM spent UNION ALL SELECT name FROM leases"
        wait_until(lambda: {key for (key,) in database.all(rows)} == {"new", "tidying counters"})


def test_the_first_tokens_open_the_window_in_which_tokens_count(
    open_it: OpenDatabase, clock: Clock
) -> None:
    counters = [
        Counters(database, Leases(database), database) for database in [open_it(), open_it()]
    ]
    end = clock.now + 60
    counters[0].spend("key", 5, 60)
    clock.now += 10
    counters[1].spend("key", 7, 60)
    assert counters[0].spent("key") == (12, end)
    clock.now += 51
    assert counters[0].spent("key") == (0, 0.0)
    counters[0].spend("key", 2, 60)
    assert counters[1].spent("key") == (2, clock.now + 60)


def test_while_the_database_fails_each_process_counts_for_itself(tmp_path: Path) -> None:
    file = tmp_path / "d.sqlite"
    with (
        closing(open_database(str(file))) as database,
        closing(open_database(":memory:")) as own,
    ):
        counters = Counters(database, Leases(database), own)
        assert counters.hit("key", 1).allowed
        for table in ("rates", "leases"):
            database.run(f"DROP TABLE {table}")
        assert [counters.hit("key", 2).allowed for _ in range(3)] == [True, True, False]
        release = counters.open("key", 1, 0)
        assert release is not None
        assert counters.open("key", 1, 0) is None
        release()
        assert counters.open("key", 1, 10) is not None
        with pytest.raises(DatabaseFailed):
            Leases(database).take("key")
