"""Documents: the same in memory, in a file and in PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from emulator.database import MAX_VALUE_BYTES, Database, Documents, open_database
from emulator.database.leases import claim
from emulator.database.tidying import BATCH
from tests.database.conftest import OpenDatabase
from tests.support.processes import wait_until
from tests.support.uploads import Clock

SECONDS = 600.0
BOUND = 2**20


def documents(database: Database, kind: str = "a", **options: Any) -> Documents[bytes]:
    return Documents(database, kind, seconds=SECONDS, **options)


VALUES: list[tuple[str, list[dict[str, bytes]]]] = [
    ("nothing", [{}]),
    ("one value", [{"a": b"1"}]),
    ("several at once", [{"a": b"1", "b": b"2", "c": b"3"}]),
    ("a value instead of another", [{"a": b"1", "b": b"2"}, {"a": b"3"}]),
    ("no bytes", [{"a": b""}]),
    ("bytes that are no text", [{"a": bytes(range(256))}]),
    ("keys with any characters", [{"call:a b'\"%;\n :k0": b"1", "call:é": b"2"}]),
    ("a value of the largest size", [{"a": b"x" * MAX_VALUE_BYTES}]),
]


@pytest.mark.parametrize("puts", [row[1] for row in VALUES], ids=[row[0] for row in VALUES])
def test_stored_documents_can_be_read(open_it: OpenDatabase, puts: list[dict[str, bytes]]) -> None:
    stored, other_kind = documents(open_it()), documents(open_it(), "b")
    expected: dict[str, bytes] = {}
    for values in puts:
        stored.put(values)
        expected |= values
    assert stored.get_many([*expected, "never put"]) == expected
    assert other_kind.get_many([*expected]) == {}


def test_concurrent_changes_follow_one_another_in_all_processes(open_it: OpenDatabase) -> None:
    def one_more(value: bytes | None) -> bytes:
        return b"%d" % (int(value or b"0") + 1)

    def count(database: Database) -> None:
        for _ in range(25):
            documents(database).change("count", one_more)

    databases = [open_it(), open_it()]
    with ThreadPoolExecutor() as pool:
        list(pool.map(count, databases * 2))
    stored = documents(databases[0])
    assert stored.get("count") == b"100"
    with pytest.raises(ZeroDivisionError):
        stored.change("count", lambda _: b"%d" % (1 // 0))
    assert stored.get("count") == b"100"


def test_a_document_expires_after_its_kinds_time_or_its_own(
    open_it: OpenDatabase, clock: Clock
) -> None:
    stored = documents(open_it())
    stored.put({"long": b"1"}, 3 * SECONDS)
    stored.put({"short": b"1"}, SECONDS / 4)
    stored.put({"usual": b"1"})
    names = ("short", "usual", "long")
    for seconds, there in ((0.0, names), (SECONDS / 2, names[1:]), (SECONDS, names[2:])):
        clock.now += seconds
        assert sorted(stored.get_many(names)) == sorted(there)
    stored.change("usual", lambda old: b"new" if old is None else b"old")
    assert stored.get("usual") == b"new"


def test_deleted_documents_are_gone(open_it: OpenDatabase) -> None:
    stored = documents(open_it())
    stored.put(dict.fromkeys("abc", b"1"))
    stored.delete(["a", "c", "never put"])
    stored.delete([])
    assert stored.get_many("abc") == {"b": b"1"}


def there(stored: Documents[bytes], names: Collection[int]) -> list[int]:
    return [n for n in names if stored.get(str(n)) is not None]


def test_above_its_budget_the_oldest_documents_of_a_kind_go_and_no_others(
    open_it: OpenDatabase, clock: Clock
) -> None:
    """A store full of responses could keep no program."""
    database = open_it()
    programs = documents(database, "programs")
    programs.put({"0": b"a program"})
    responses = documents(database, "responses", max_bytes=BOUND)
    for n in range(64):
        clock.now += 0.001
        responses.put({f"{n}": b"x" * (BOUND // 16)}, 30 * SECONDS)
    wait_until(lambda: len(there(responses, range(64))) <= 17)
    kept = there(responses, range(64))
    assert kept == [*range(64 - len(kept), 64)]
    assert 15 <= len(kept) <= 17
    assert there(programs, [0]) == [0]


class Watched:
    """A database that notes what each transaction removes, and can let them wait."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.removed: list[int] = []
        self.may_remove = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def transaction(self, lock: str = "") -> Iterator[Any]:
        assert self.may_remove.wait(60)
        with self._database.transaction(lock) as rows:
            run = rows.run

            def note(query: str, **values: object) -> int:
                changed = run(query, **values)
                if query.startswith("DELETE FROM documents"):
                    self.removed.append(changed)
                return changed

            rows.run = note  # type: ignore[method-assign]
            yield rows


@pytest.mark.parametrize("reason", ["expired", "above the budget"])
def test_old_documents_are_removed_in_batches_for_which_no_writer_waits(
    open_it: OpenDatabase, clock: Clock, reason: str
) -> None:
    """All were removed in one transaction of the writer: for 2 s a minute with 290,000 of them."""
    watched: Any = Watched(open_it())
    most = 2**20 if reason == "expired" else 3000
    stored = documents(watched, max_bytes=most)
    for start in range(0, 3000, 1000):
        stored.put({str(n): b"x" for n in range(start, start + 1000)})
        clock.now += 1
    clock.now += SECONDS + 1 if reason == "expired" else 0
    stored.put({"new": b"y" * 1500})  # returns, though nothing can be removed yet
    watched.may_remove.set()
    least = 3000 if reason == "expired" else 1500
    wait_until(lambda: sum(watched.removed) >= least)
    assert max(watched.removed) <= BATCH
    assert stored.get("new") is not None


def test_one_process_tidies_at_a_time(open_it: OpenDatabase, clock: Clock) -> None:
    database, other = open_it(), open_it()
    assert claim(database, "tidying", "one", 10)
    assert not claim(other, "tidying", "two", 10)
    clock.now += 9
    assert claim(database, "tidying", "one", 10)
    clock.now += 9
    assert not claim(other, "tidying", "two", 10)
    clock.now += 2
    assert claim(other, "tidying", "two", 10)
    assert not claim(database, "tidying", "one", 10)


def test_threads_do_not_disturb_one_another(open_it: OpenDatabase) -> None:
    stored = documents(open_it())
    wrong: list[str] = []

    def work(thread: int) -> None:
        for n in range(40):
            key, value = f"{thread}:{n}", os.urandom(100 + n)
            stored.put({key: value, "shared": value})
            if stored.get(key) != value or stored.get("shared") is None:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_keys_are_read_in_one_call(open_it: OpenDatabase) -> None:
    """More than SQLite takes in one statement."""
    stored = documents(open_it())
    stored.put({"1": b"first", "39999": b"last"})
    assert stored.get_many([str(n) for n in range(40_000)]) == {"1": b"first", "39999": b"last"}


def test_a_key_that_no_text_of_postgresql_can_hold_is_not_found(open_it: OpenDatabase) -> None:
    assert documents(open_it()).get("a\0b") is None


def test_processes_see_one_anothers_documents(open_it: OpenDatabase) -> None:
    one, other = documents(open_it()), documents(open_it())
    for n in range(20):
        writer, reader = (one, other) if n % 2 else (other, one)
        writer.put({f"{n}": b"%d" % n})
        assert reader.get(f"{n}") == b"%d" % n


@dataclass(frozen=True)
class Point:
    x: int
    name: bytes = b""


GARBAGE = [b"", b"7", b"\x00\xff", b"[]", b"[7]", b'[{"x":"a"}]', b"[" * 100_000, b'[{"x":1}']


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda row: repr(row[:12]))
def test_a_stored_value_of_another_type_is_ignored(open_it: OpenDatabase, garbage: bytes) -> None:
    database = open_it()
    points: Documents[Point] = Documents(database, "a", Point, seconds=SECONDS)
    points.put({"p": Point(1, b"\xff")})
    assert points.get("p") == Point(1, b"\xff")
    documents(database).put({"p": garbage})
    with capture_logs() as logs:
        assert points.get("p") is None
        points.change("p", lambda old: Point(2) if old is None else Point(3))
    assert {entry["event"] for entry in logs} == {"invalid document"}
    assert points.get("p") == Point(2)


# SQLite alone


def test_expired_documents_are_erased_from_the_file(tmp_path: Path, clock: Clock) -> None:
    """An expired value must not be readable in the file either."""
    file = tmp_path / "database.sqlite"
    with closing(open_database(str(file), clock)) as database:
        stored = documents(database)
        stored.put({"old": b"a secret result" * 1000})
        clock.now += SECONDS + 1
        stored.put({"new": b"1"})
        with closing(sqlite3.connect(file)) as other:
            query = "SELECT key FROM documents"
            wait_until(lambda: other.execute(query).fetchall() == [("new",)])
    assert b"a secret result" not in file.read_bytes()


def test_a_value_that_became_text_is_read_as_bytes(tmp_path: Path) -> None:
    file = tmp_path / "database.sqlite"
    with closing(open_database(str(file))) as database:
        stored = documents(database)
        stored.put({"a": b"1"})
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE documents SET value = 'text'")
        assert stored.get("a") == b"text"
        stored.change("a", lambda old: (old or b"") + b"!")
        assert stored.get("a") == b"text!"


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with closing(open_database(str(folder / "d.sqlite"))) as database:
        documents(database).put({"a": b"1"})
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        names = ("d.sqlite", "d.sqlite-wal", "d.sqlite-shm", "d.sqlite-reserved")
        assert modes == dict.fromkeys(names, 0o600)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
