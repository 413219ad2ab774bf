"""A database that is locked, full, damaged, of another version, or unreachable."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from emulator.database import Database, DatabaseFailed, Documents, open_database
from emulator.database import postgres as postgres_module
from emulator.database import sqlite as sqlite_module
from tests.database.conftest import OpenDatabase
from tests.support.postgres import Postgres


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
        stored.put({"b": b"2"})
        assert stored.get("b") == b"2"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/dev/null/nowhere.sqlite", "/dev/null/nowhere.sqlite: "),
        ("{folder}", "unable to open database file|Is a directory"),
        ("{folder}/no.database", "file is not a database"),
        ("{folder}/other.sqlite", "its tables are of version 99, not 2"),
        ("postgresql://user:secret-word@127.0.0.1:1/x", "OperationalError"),
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


@pytest.fixture
def outage(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Database]:
    monkeypatch.setattr(postgres_module, "PAUSE_SECONDS", 0.0)
    postgres_server.start()
    return lambda: open_database(postgres_server.database())


def test_a_postgresql_that_restarts_is_used_again(
    outage: Callable[[], Database], postgres_server: Postgres
) -> None:
    with closing(outage()) as database:
        stored: Documents[bytes] = Documents(database, "a", seconds=60)
        with ThreadPoolExecutor(4) as pool:  # several connections, all of which the restart ends
            list(pool.map(lambda n: stored.put({str(n): b"1"}), range(16)))
        for use in (
            lambda: stored.put({"a": b"1"}),
            lambda: stored.get("a"),
            lambda: stored.delete(["a"]),
        ):
            postgres_server.stop()
            with pytest.raises(DatabaseFailed):
                stored.get("a")
            postgres_server.start()
            use()


def test_an_unreachable_postgresql_is_not_asked_again_for_some_seconds(
    outage: Callable[[], Database], postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(outage()) as database:
        postgres_server.stop()
        monkeypatch.setattr(postgres_module, "PAUSE_SECONDS", 3600.0)
        for _ in range(2):
            with pytest.raises(DatabaseFailed):
                database.one("SELECT 1")
        postgres_server.start()
        with pytest.raises(DatabaseFailed, match="was unreachable"):
            database.one("SELECT 1")
