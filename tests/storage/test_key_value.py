"""Where programs wait: the same behaviour of memory, a file and a real Redis, and of a proxy without it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from structlog.testing import capture_logs

from emulator.events import ToolCall
from emulator.programs.program import Call, CallRecord, Program
from emulator.programs.saved import SavedProgram, save
from emulator.reading.readers import Statement
from emulator.storage.key_value import (
    MAX_VALUE_BYTES,
    PAUSE_SECONDS,
    KeyValueStore,
    RedisStore,
    SQLiteStore,
    StoreFailed,
    open_store,
)
from tests.conftest import StartProxy
from tests.support.chat import calls
from tests.support.processes import REDIS_MISSING, RedisServer
from tests.support.programs import CHAIN, HITS, TOOLS, plain, result, started
from tests.support.scripted import ScriptedUpstream

TTL = 600.0
BOUND = 2**20


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip(REDIS_MISSING)
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> Iterator[RedisServer]:
    """A running Redis that holds nothing."""
    shared_redis.start()
    with closing(connect(shared_redis)) as client:
        # The buffers of an earlier test's connections would count as used memory.
        client.client_kill_filter(_type="normal", skipme=True)
        client.config_set("maxmemory", 0)
        client.flushall()
    yield shared_redis


def connect(server: RedisServer) -> Any:
    import redis

    return redis.Redis.from_url(server.url)


@dataclass
class Clock:
    now: float = 1e9

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Kept:
    """A store, and the means to make time go by and room short in it."""

    store: KeyValueStore
    age: Callable[[float], None]
    another: Callable[[], KeyValueStore | None]
    """A further store over the same values, as another process would open it; None for memory."""


def _sqlite(path: str, max_bytes: int) -> Kept:
    clock = Clock()

    def open_it() -> SQLiteStore:
        return SQLiteStore(path, ttl_seconds=TTL, max_bytes=max_bytes, now=clock)

    def age(seconds: float) -> None:
        clock.now += seconds

    return Kept(open_it(), age, lambda: None if path == ":memory:" else open_it())


def _redis(server: RedisServer, max_bytes: int) -> Kept:
    def age(seconds: float) -> None:
        with closing(connect(server)) as client:
            for key in client.keys():
                client.pexpireat(key, client.pexpiretime(key) - int(1000 * seconds))

    with closing(connect(server)) as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory-policy", "volatile-ttl")
        client.config_set("maxmemory", used + max_bytes)

    def open_it() -> RedisStore:
        return RedisStore(server.url, ttl_seconds=TTL)

    return Kept(open_it(), age, open_it)


@pytest.fixture(params=["memory", "file", "redis"])
def open_kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    """`open_kept(max_bytes=...)`, for each kind of store."""
    with ExitStack() as opened:

        def open_it(max_bytes: int = 256 * 2**20) -> Kept:
            if request.param == "redis":
                subject = _redis(request.getfixturevalue("redis"), max_bytes)
            else:
                path = ":memory:" if request.param == "memory" else str(tmp_path / "kept.sqlite")
                subject = _sqlite(path, max_bytes)
            opened.callback(subject.store.close)
            return subject

        yield open_it


# What all stores do

VALUES: list[tuple[str, list[dict[str, bytes]]]] = [
    ("nothing", [{}]),
    ("one value", [{"a": b"1"}]),
    ("several at once", [{"a": b"1", "b": b"2", "c": b"3"}]),
    ("a value instead of another", [{"a": b"1", "b": b"2"}, {"a": b"3"}]),
    ("no bytes", [{"a": b""}]),
    ("bytes that are no text", [{"a": bytes(range(256))}]),
    ("keys with any characters", [{"call:a b'\"%;\n": b"1", "call:é": b"2"}]),
    ("a value of the largest size", [{"a": b"x" * MAX_VALUE_BYTES}]),
]


@pytest.mark.parametrize("puts", [row[1] for row in VALUES], ids=[row[0] for row in VALUES])
def test_what_was_put_is_there(
    open_kept: Callable[..., Kept], puts: list[dict[str, bytes]]
) -> None:
    store = open_kept().store
    expected: dict[str, bytes | None] = {"never put": None}
    for values in puts:
        store.put(values)
        expected |= values
    assert {key: store.get(key) for key in expected} == expected


def test_changes_that_are_made_at_the_same_time_follow_one_another(
    open_kept: Callable[..., Kept],
) -> None:
    """In another process, too. Two workers that added to one conversation lost what one of them added."""
    subject = open_kept()
    other = subject.another()
    stores = [subject.store, other or subject.store]

    def one_more(value: bytes | None) -> bytes:
        return b"%d" % (int(value or b"0") + 1)

    def count(store: KeyValueStore) -> None:
        for _ in range(25):
            store.change("count", one_more)

    with ThreadPoolExecutor() as pool:
        list(pool.map(count, stores * 2))
    assert subject.store.get("count") == b"100"
    with pytest.raises(ZeroDivisionError):
        subject.store.change("count", lambda _: b"%d" % (1 // 0))
    assert subject.store.get("count") == b"100"
    if other is not None:
        other.close()


def test_a_value_is_gone_when_its_time_is_up(open_kept: Callable[..., Kept]) -> None:
    subject = open_kept()
    subject.store.put({"old": b"1", "renewed": b"1"})
    subject.age(TTL / 2)
    subject.store.put({"renewed": b"2"})
    assert [subject.store.get(key) for key in ("old", "renewed")] == [b"1", b"2"]
    subject.age(TTL / 2 + 1)
    assert [subject.store.get(key) for key in ("old", "renewed")] == [None, b"2"]
    subject.age(TTL)
    assert [subject.store.get(key) for key in ("old", "renewed")] == [None, None]


def test_a_value_may_be_kept_for_a_time_of_its_own(open_kept: Callable[..., Kept]) -> None:
    subject = open_kept()
    subject.store.put({"long": b"1"}, 3 * TTL)
    subject.store.put({"short": b"1"}, TTL / 4)
    subject.store.put({"usual": b"1"})
    names = ("short", "usual", "long")
    for seconds, there in ((0, names), (TTL / 2, names[1:]), (TTL, names[2:]), (2 * TTL, ())):
        subject.age(seconds)
        assert [name for name in names if subject.store.get(name)] == [*there]


def test_what_is_deleted_is_gone(open_kept: Callable[..., Kept]) -> None:
    store = open_kept().store
    store.put(dict.fromkeys("abc", b"1"))
    store.delete(["a", "c", "never put"])
    store.delete([])
    assert [name for name in "abc" if store.get(name)] == ["b"]


def test_the_oldest_values_give_way_when_there_is_no_room(open_kept: Callable[..., Kept]) -> None:
    subject = open_kept(max_bytes=BOUND)
    value = b"x" * (BOUND // 16)
    for n in range(64):
        subject.store.put({f"{n}": value})
        subject.age(1)
    there = [n for n in range(64) if subject.store.get(f"{n}") is not None]
    # Redis looks for the oldest among samples.
    assert 4 <= len(there) <= 16
    assert 63 in there
    assert min(there) > 32


def test_threads_do_not_disturb_each_other(open_kept: Callable[..., Kept]) -> None:
    store = open_kept().store
    wrong: list[str] = []

    def work(thread: int) -> None:
        for n in range(40):
            key, value = f"{thread}:{n}", os.urandom(100 + n)
            store.put({key: value, "shared": value})
            if store.get(key) != value or store.get("shared") is None:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_stores_over_the_same_place_see_each_others_values(
    open_kept: Callable[..., Kept],
) -> None:
    subject = open_kept()
    other = subject.another()
    if other is None:
        return  # memory is nobody else's
    with closing(other):
        for n in range(20):
            one, two = (subject.store, other) if n % 2 else (other, subject.store)
            one.put({f"{n}": b"%d" % n})
            assert two.get(f"{n}") == b"%d" % n


@pytest.mark.parametrize(("excess", "is_kept"), [(0, True), (1, False)])
def test_a_program_is_kept_up_to_the_largest_value(
    open_kept: Callable[..., Kept], excess: int, is_kept: bool
) -> None:
    store = open_kept().store

    def program(result: str) -> SavedProgram:
        recorded = (CallRecord(Call("f", {}), result, known=True), CallRecord(Call("g", {})))
        return SavedProgram(Program((Statement("f(g())", 1),)), recorded, ("call_1", "call_2"), 7)

    room = MAX_VALUE_BYTES - len(program("").dump())
    with capture_logs() as logs:
        large_program = program("x" * (room + excess))
        save(store, large_program, [ToolCall("call_2", "g", {})])
    assert (store.get("call:call_2") is not None) is is_kept
    assert [(entry["log_level"], entry["event"]) for entry in logs] == (
        [] if is_kept else [("warning", "program not kept: its results are too large")]
    )


# SQLite alone


def test_what_has_expired_leaves_the_file_with_the_next_put(tmp_path: Path) -> None:
    """Nobody may read in the file what the store no longer gives out."""
    file = tmp_path / "kept.sqlite"
    clock = Clock()
    with closing(SQLiteStore(str(file), ttl_seconds=TTL, now=clock)) as store:
        store.put({"old": b"a secret result" * 1000})
        clock.now += TTL + 1
        store.put({"new": b"1"})
        with closing(sqlite3.connect(file)) as other:
            assert other.execute("SELECT key FROM kept").fetchall() == [("new",)]
    assert b"a secret result" not in file.read_bytes()


def test_values_that_live_long_do_not_drive_out_the_others() -> None:
    """What expires first gave way first: a store full of responses could keep no program."""
    with closing(SQLiteStore(":memory:", ttl_seconds=TTL, max_bytes=8 * BOUND)) as store:
        for n in range(20):
            store.put({f"{n}": b"x" * BOUND}, 30 * TTL)
        store.put({"program": b"x" * BOUND})
        store.put({"response": b"x" * BOUND}, 30 * TTL)
        assert store.get("program") is not None
        assert store.get("0") is None


def test_a_large_value_does_not_drive_out_more_than_it_needs(tmp_path: Path) -> None:
    """Values gave way in batches of 64, so that one put could empty a store of large programs."""
    clock = Clock()
    with closing(SQLiteStore(":memory:", ttl_seconds=TTL, max_bytes=8 * BOUND, now=clock)) as store:
        for n in range(9):
            store.put({f"{n}": b"x" * BOUND})
            clock.now += 1
        assert [n for n in range(9) if store.get(f"{n}")] == list(range(2, 9))


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with closing(SQLiteStore(str(folder / "kept.sqlite"), ttl_seconds=TTL)) as store:
        store.put({"a": b"1"})
        modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}
        assert modes == dict.fromkeys(
            ["kept.sqlite", "kept.sqlite-wal", "kept.sqlite-shm"], oct(0o600)
        )
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# Redis alone


def test_redis_may_start_late_go_and_come_back(tmp_path: Path, redis: RedisServer) -> None:
    redis.stop()
    clock = Clock()
    with closing(RedisStore(redis.url, ttl_seconds=TTL, now=clock)) as store:
        with pytest.raises(StoreFailed):
            store.get("a")
        for _ in range(2):
            redis.start()
            with pytest.raises(StoreFailed, match="was unreachable"):
                store.get("a")
            clock.now += PAUSE_SECONDS
            store.put({"a": b"1"})
            assert store.get("a") == b"1"
            redis.stop()
            with pytest.raises(StoreFailed):
                store.put({"a": b"1"})


def test_a_full_redis_that_does_not_evict_is_a_failed_store(redis: RedisServer) -> None:
    subject = _redis(redis, BOUND)
    with closing(connect(redis)) as client, closing(subject.store):
        client.config_set("maxmemory-policy", "noeviction")
        subject.store.put({"a": b"1"})
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFailed, match="maxmemory"):
            subject.store.put({"b": b"2"})
        assert subject.store.get("a") == b"1"  # it can be read, so it does not rest


# Opening


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/dev/null/nowhere.sqlite", "/dev/null/nowhere.sqlite: "),
        ("{folder}", "unable to open database file"),
        ("{folder}/no.database", "file is not a database"),
        ("redis://user:secret/word@host", "the redis:// address is invalid"),
    ],
)
def test_a_store_that_cannot_be_opened_is_off_with_a_warning(
    tmp_path: Path, url: str, reason: str
) -> None:
    (tmp_path / "no.database").write_text("Dear diary, " * 100)
    with capture_logs() as logs:
        assert open_store(url.format(folder=tmp_path), TTL) is None
    (entry,) = logs
    assert (entry["log_level"], entry["event"]) == (
        "warning",
        "store off: programs end with their turn, responses are not stored",
    )
    assert reason in entry["reason"]
    assert "secret" not in entry["reason"]


def test_redis_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)  # as if it were not installed
    with capture_logs() as logs:
        assert open_store("redis://127.0.0.1", TTL) is None
    assert [entry["reason"] for entry in logs] == [
        "redis:// needs the redis package: pip install redis"
    ]


# The proxy, when its store fails

Break = Callable[[], None]


@pytest.fixture(params=["file", "redis"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Break]:
    """The setting of a store, and what takes it down under the proxy's hands."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return server.url, server.stop
    file = tmp_path / "kept.sqlite"

    def drop() -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("DROP TABLE kept")

    return str(file), drop


def test_a_store_that_goes_down_costs_a_model_turn_not_an_answer(
    start_proxy: StartProxy, upstream: ScriptedUpstream, shared_place: tuple[str, Break]
) -> None:
    url, take_down = shared_place
    client = openai.OpenAI(
        base_url=start_proxy(
            store=url,
        ),
        api_key="k",
        max_retries=0,
    )
    upstream.reply(CHAIN, "```tool_code\nbook(id='a2')\n```", "Booked.")
    messages, message = started(client)
    messages.append(result(message.tool_calls[0], HITS))
    first = plain(client, model="m", messages=messages, tools=TOOLS)
    assert calls(first) == [("book", {"id": "a2"})]
    assert len(upstream.requests) == 1

    take_down()
    with capture_logs() as logs:
        second = plain(client, model="m", messages=messages, tools=TOOLS)
    assert calls(second) == [("book", {"id": "a2"})]
    assert len(upstream.requests) == 2
    choice = second.choices[0].message
    messages += [choice.model_dump(exclude_none=True), result(choice.tool_calls[0], "done")]
    last = plain(client, model="m", messages=messages, tools=TOOLS)
    assert last.choices[0].message.content == "Booked."
    warned = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert [event.partition(":")[0] for event in warned] == [
        "the history lacks hosted calls",
        "program dropped",
        "the history is shown as the client has it",
        "program not kept",
    ]


def _of(prefix: bytes, value: bytes) -> Callable[[bytes, bytes], bytes]:
    return lambda key, old: value if key.removeprefix(b"emulator:").startswith(prefix) else old


CORRUPTIONS: list[tuple[str, Callable[[bytes, bytes], bytes]]] = [
    ("no JSON", _of(b"program:", b"\x00\xff")),
    ("half of it", lambda key, old: old[: len(old) // 2]),
    ("nothing", lambda key, old: b""),
    ("a number", _of(b"program:", b"7")),
    ("a list", _of(b"program:", b"[]")),
    ("an object of something else", _of(b"program:", b"{}")),
    ("ids without calls", lambda key, old: old.replace(b'"ids":[', b'"ids":["x",')),
    ("a program that is no Python", lambda key, old: old.replace(b"search(to", b"search(((to")),
    ("a program of another meaning", lambda key, old: old.replace(b"min(", b"max(")),
    ("an alias of no program", _of(b"call:", b"0" * 64)),
    ("an alias that is no text", _of(b"call:", b"\xff\xfe")),
]


@pytest.mark.parametrize(
    "corrupt", [row[1] for row in CORRUPTIONS], ids=[row[0] for row in CORRUPTIONS]
)
def test_a_corrupt_value_means_an_ordinary_turn(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path, corrupt: Any
) -> None:
    file = tmp_path / "kept.sqlite"
    client = openai.OpenAI(
        base_url=start_proxy(
            store=str(file),
        ),
        api_key="k",
        max_retries=0,
    )
    upstream.reply(CHAIN, "As you like.")
    messages, message = started(client)
    with closing(sqlite3.connect(file)) as connection, connection:
        rows = connection.execute("SELECT key, value FROM kept").fetchall()
        spoilt = [(corrupt(key.encode(), value), key) for key, value in rows]
        assert spoilt != [(value, key) for key, value in rows]
        connection.executemany("UPDATE kept SET value = ? WHERE key = ?", spoilt)
    history = [*messages, result(message.tool_calls[0], HITS)]
    answer = plain(client, model="m", messages=history, tools=TOOLS)
    assert answer.choices[0].message.content == "As you like."


def test_a_value_that_became_text_is_still_read(tmp_path: Path) -> None:
    """A tool that edits the file may store text where bytes were; `get` promises bytes."""
    file = tmp_path / "kept.sqlite"
    with closing(SQLiteStore(str(file), ttl_seconds=TTL)) as store:
        store.put({"a": b"1"})
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE kept SET value = 'text'")
        assert store.get("a") == b"text"
