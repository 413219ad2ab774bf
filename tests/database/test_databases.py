"""A database that is locked, full, damaged, of another version, or unreachable."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from emulator.database import (
    Database,
    DatabaseFailed,
    Documents,
    Leases,
    Slots,
    open_database,
)
from emulator.database import sqlite as sqlite_module
from emulator.database.counters import Counters
from tests.database.conftest import OpenDatabase
from tests.support.postgres import OUTAGES, Postgres, locking
from tests.support.processes import wait_until
from tests.support.relay import delayed


def test_a_transaction_changes_all_or_nothing(open_it: OpenDatabase) -> None:
    database = open_it()
    database.run("CREATE TABLE things (name TEXT)")
    with pytest.raises(ZeroDivisionError), database.transaction() as rows:
        rows.run("INSERT INTO things VALUES ('a')")
        _ = 1 // 0
    assert database.all("SELECT name FROM things") == []
    with database.transaction() as rows:
        rows.run("INSERT INTO things VALUES ('a')")
    assert open_it().one("SELECT name FROM things") == ("a",)


def test_transactions_with_one_lock_follow_one_another(open_it: OpenDatabase) -> None:
    databases = [open_it(), open_it()]
    databases[0].run("CREATE TABLE counts (count BIGINT)")
    databases[0].run("INSERT INTO counts VALUES (0)")

    def count(database: Database) -> None:
        for _ in range(25):
            with database.transaction("count") as rows:
                (now,) = rows.one("SELECT count FROM counts")
                rows.run("UPDATE counts SET count = :next", next=now + 1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(count, databases * 2))
    assert databases[0].one("SELECT count FROM counts") == (100,)


def test_threads_wait_at_the_same_time_for_a_file_that_another_process_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited 5 s under one lock: eight responses took 40 s to be stored, and readers waited, too."""
    monkeypatch.setattr(sqlite_module, "SECONDS", 0.2)
    file = tmp_path / "d.sqlite"
    with closing(open_database(str(file))) as database:
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        stored.put({"a": b"1"})
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")

            def put(_: int) -> float:
                began = time.monotonic()
                with pytest.raises(DatabaseFailed) as failed:
                    stored.put({"b": b"2"})
                assert failed.value.passes
                return time.monotonic() - began

            with ThreadPoolExecutor(8) as pool:
                waits = [pool.submit(put, n) for n in range(8)]
                assert stored.get("a") == b"1"
                assert not all(wait.done() for wait in waits)  # so the reader did not wait for them
                # No bound of time, but one after the other they would take eight times as long.
                assert sum(wait.result() for wait in waits) < 8 * 8 * 0.2 / 2
        wait_until(lambda: succeeds(lambda: stored.put({"b": b"2"})))
        assert stored.get("b") == b"2"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/dev/null/nowhere.sqlite", "/dev/null/nowhere.sqlite: "),
        ("{folder}", "unable to open database file|Is a directory"),
        ("{folder}/no.database", "file is not a database"),
        ("{folder}/other.sqlite", "its tables are of version 99, not 2"),
        ("postgresql://user:secret-word@127.0.0.1:1/x", "PoolTimeout"),
    ],
)
def test_a_database_that_cannot_be_opened_says_why_and_stays_as_it_is(
    tmp_path: Path, place: str, reason: str
) -> None:
    (tmp_path / "no.database").write_text("Dear diary, " * 100)
    with closing(open_database(str(tmp_path / "other.sqlite"))) as database:
        database.run("UPDATE facts SET value = '99' WHERE name = 'version'")
    before = (tmp_path / "no.database").read_bytes()
    with pytest.raises(DatabaseFailed, match=reason) as failed:
        open_database(place.format(folder=tmp_path))
    assert "secret" not in str(failed.value)
    assert (tmp_path / "no.database").read_bytes() == before


def succeeds(use: Callable[[], object]) -> bool:
    """False if the database fails, after less time than its next probe would take."""
    try:
        use()
    except DatabaseFailed:
        time.sleep(0.1)
        return False
    return True


@pytest.fixture
def outage(postgres_server: Postgres) -> Iterator[Postgres]:
    postgres_server.start()
    yield postgres_server
    postgres_server.start()


@pytest.mark.parametrize("outage_of", OUTAGES)
@pytest.mark.parametrize("delay", [0.0, 0.025])
def test_every_use_of_a_postgresql_that_does_not_answer_fails_and_it_is_used_again(
    outage: Postgres, outage_of: Any, delay: float
) -> None:
    """A statement waited for a locked table, or for a stopped server, as long as that took."""
    url = outage.database()
    with closing(open_database(delayed(url, delay) if delay else url)) as database:
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        with ThreadPoolExecutor(4) as pool:  # several connections
            list(pool.map(lambda n: stored.put({str(n): b"1"}), range(16)))
        uses: list[Callable[[], object]] = [
            lambda: stored.put({"a": b"1"}),
            lambda: stored.get("a"),
            lambda: stored.change("a", lambda _: b"2"),
            lambda: stored.delete(["a"]),
        ]
        with outage_of(outage, url), ThreadPoolExecutor(32) as pool:
            assert not any(pool.map(succeeds, uses * 16))
        for use in uses:
            wait_until(partial(succeeds, use))
        wait_until(lambda: all(pool_of(32, succeeds, uses * 8)))


def pool_of(threads: int, function: Any, values: list[Any]) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(function, values)]


def test_a_locked_table_of_postgresql_delays_no_statement_of_other_tables(outage: Postgres) -> None:
    url = outage.database()
    with closing(open_database(url)) as database, locking(outage, url):
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        slots = Slots(database, "a", 1)
        assert not succeeds(lambda: stored.get("a"))
        with pytest.raises(DatabaseFailed, match="did not answer less than 1 s ago"):
            stored.get("a")
        assert slots.acquire("x", 60)


def test_a_lock_of_postgresql_that_is_held_long_delays_no_transaction_with_another(
    outage: Postgres,
) -> None:
    """One contended lock refused every transaction, as a table named clock_timestamp."""
    url = outage.database()
    with (
        closing(open_database(url)) as one,
        closing(open_database(url)) as other,
        other.transaction("files"),
    ):
        with pytest.raises(DatabaseFailed), one.transaction("files"):
            pass
        with pytest.raises(DatabaseFailed, match="did not answer"), one.transaction("files"):
            pass
        with one.transaction("slots") as rows:
            assert rows.one("SELECT 1") == (1,)


def test_a_locked_table_of_postgresql_leaves_connections_for_the_others(outage: Postgres) -> None:
    """A burst took all connections, and the others' timeout counted as a server that is down."""
    url = outage.database()
    with closing(open_database(url)) as database, locking(outage, url):
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        uses = [lambda: stored.get("a"), lambda: database.one("SELECT 1 FROM facts")] * 100
        found = pool_of(200, succeeds, uses)
    assert found == [False, True] * 100


def seconds_of(use: Callable[[], object]) -> float:
    """How long a statement takes that waits for a lock in vain; the next one is a probe."""
    began = time.monotonic()
    with pytest.raises(DatabaseFailed, match="LockNotAvailable"):
        use()
    ended = time.monotonic()
    time.sleep(1.0)
    return ended - began


def test_a_probe_is_short_and_changes_no_other_statement(outage: Postgres) -> None:
    """Whoever obeyed the second of `retry-after` waited three for the table each time."""
    url = outage.database()
    with closing(open_database(url)) as database:
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        with locking(outage, url):
            first, *probes = [seconds_of(lambda: stored.get("a")) for _ in range(3)]
            assert max(probes) < first / 2
        wait_until(lambda: succeeds(lambda: stored.get("a")))
        waits = pool_of(4, lambda _: database.one("SHOW lock_timeout"), [*range(8)])
        assert {*waits} == {("3s",)}


def test_a_key_that_no_database_can_encode_fails_as_what_does_not_pass(
    open_it: OpenDatabase,
) -> None:
    """Half a surrogate pair ended in a UnicodeEncodeError."""
    stored: Documents[bytes] = Documents(open_it(), "a", seconds=60)
    for use in (
        lambda: stored.put({"\ud800": b"1"}),
        lambda: stored.get("\ud800"),
        lambda: stored.delete(["\ud800"]),
    ):
        with pytest.raises(DatabaseFailed) as failed:
            use()
        assert not failed.value.passes
    assert stored.get("b") is None


def test_a_crowd_in_memory_waits_in_turn() -> None:
    """A second was the longest wait, also where nobody else has the database: limits answered 500."""
    with closing(open_database(":memory:")) as database:
        counters = Counters(database, Leases(database), database)
        rates = pool_of(200, lambda _: counters.hit("a", 10**6).allowed, [*range(4_000)])
    assert all(rates)


def test_after_a_failure_of_postgresql_one_statement_a_second_tries_it(outage: Postgres) -> None:
    with closing(open_database(outage.database())) as database:
        outage.stop()
        assert not succeeds(lambda: database.one("SELECT 1"))
        with pytest.raises(DatabaseFailed, match="did not answer less than 1 s ago"):
            database.one("SELECT 1")
        outage.start()
        wait_until(lambda: succeeds(lambda: database.one("SELECT 1")))


def test_a_connection_that_postgresql_has_ended_is_not_used(outage: Postgres) -> None:
    """Nothing is known of a statement whose connection breaks, so it is not repeated."""
    url = outage.database()
    with closing(open_database(url)) as database:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: database.one("SELECT pg_sleep(0.05)"), range(8)))
        with psycopg.connect(url, autocommit=True) as other:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            ours = f"{end} AND datname = current_database()"
            wait_until(lambda: other.execute(ours).rowcount == 0)  # each ends a moment later
        for _ in range(8):
            assert database.one("SELECT 1") == (1,)
