"""Files and containers of several replicas: an index in PostgreSQL, contents in a folder or a bucket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from io import BytesIO

import pytest

from emulator.core.errors import BadRequest, NotFound
from emulator.database import Database, DatabaseFailed, open_database
from emulator.settings.settings import Settings
from emulator.storage.blob_store import BlobStore, open_blob_store
from emulator.storage.container_files import ROOT
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from tests.support.postgres import Postgres
from tests.support.processes import wait_until

LARGE = os.urandom(600_000)


def open_store(files_dir: str, database: str, now: Callable[[], float] = time.time) -> BlobStore:
    """As another replica would open it."""
    opened = open_database(database, now)
    store = open_blob_store(opened, files_dir)
    store.owned.callback(opened.close)
    store.remove_leftovers()
    return store


class Replica:
    def __init__(self, store: BlobStore) -> None:
        made = Settings()
        self.store = store
        self.files = Files(store, made)
        self.containers = Containers(store, self.files, made)

    def upload(self, content: bytes, client: str = "me") -> str:
        return self.files.create(client, "a.bin", BytesIO(content), "user_data").id


@pytest.fixture
def replicas(
    postgres_server: Postgres, files_dir: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Replica]]:
    """Two that share all, where a client may have four files."""
    monkeypatch.setattr("emulator.storage.files._MAX_FILES", 4)
    index = postgres_server.database()
    with ExitStack() as opened:
        stores = [open_store(files_dir, index) for _ in range(2)]
        for store in stores:
            opened.callback(store.close)
        yield [Replica(store) for store in stores]


def test_another_replica_reads_and_removes_stored_files(replicas: list[Replica]) -> None:
    first, second = replicas
    file = first.upload(LARGE)
    with second.files.open("me", file) as content:
        assert content.read() == LARGE
    container = second.containers.create("me", file_ids=[file]).id
    written = first.containers.put_file(container, f"{ROOT}b.txt", b"by code", "assistant")
    assert second.containers.read(container, written.id) == b"by code"
    assert [each.path for each in first.containers.files(container)] == [
        f"{ROOT}a.bin",
        f"{ROOT}b.txt",
    ]
    second.files.delete("me", file)
    with pytest.raises(NotFound):
        first.files.open("me", file)
    assert second.containers.delete("me", container)
    assert first.store._contents.list_stored() == {}


def test_no_replica_shows_another_clients_file(replicas: list[Replica]) -> None:
    file = replicas[0].upload(b"mine")
    for replica in replicas:
        with pytest.raises(NotFound):
            replica.files.get("you", file)
        assert replica.files.list("you") == []


IN_THE_INDEX = """
import signal, sys
from emulator.database import open_database
with open_database(sys.argv[1]).transaction("files") as rows:
    rows.run("CREATE TABLE half_done (n INTEGER)")
    print("in", flush=True)
    signal.raise_signal(signal.SIGSTOP)
    rows.run("CREATE TABLE done (n INTEGER)")
"""


def test_a_replica_that_vanishes_inside_a_transaction_blocks_others_only_briefly(
    postgres_server: Postgres,
) -> None:
    """It had the lock, and its connection did not end: a process that is stopped says as little."""
    url = postgres_server.database()
    index = open_database(url)
    vanished = subprocess.Popen(
        [sys.executable, "-c", IN_THE_INDEX, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert vanished.stdout is not None
        assert vanished.stdout.readline() == b"in\n"
        wait_until(partial(_has_none, index, "half_done"))  # an attempt waits for five seconds
        vanished.send_signal(signal.SIGCONT)
        _, said = vanished.communicate(timeout=60)
        assert b"DatabaseFailed" in said, "its error says that it has lost the lock"
        with index.transaction("files") as rows:
            assert rows.one("SELECT to_regclass('done')") == (None,)
    finally:
        vanished.kill()
        vanished.wait()
        index.close()


def _has_none(index: Database, table: str) -> bool:
    with suppress(DatabaseFailed), index.transaction("files") as rows:
        return rows.one(f"SELECT to_regclass('{table}')") == (None,)
    return False


def test_a_quota_is_one_of_all_replicas_also_for_uploads_at_the_same_time(
    replicas: list[Replica],
) -> None:
    def upload(n: int) -> bool:
        try:
            replicas[n % 2].upload(b"x")
        except BadRequest as error:
            refused.append(error.code)
            return False
        return True

    refused: list[str | None] = []

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(upload, range(16))) == 4
    assert refused == ["too_many_files"] * 12
    assert len(replicas[0].store._contents.list_stored()) == 4


def test_each_expired_container_is_swept_by_exactly_one_replica(
    postgres_server: Postgres, files_dir: str
) -> None:
    """The replica that gets the id ends the kernel: without one it stays, with two a newer kernel ends."""
    index, now = postgres_server.database(), [time.time()]
    with ExitStack() as opened:
        stores = [open_store(files_dir, index, now=lambda: now[0]) for _ in range(2)]
        for store in stores:
            opened.callback(store.close)
        replicas = [Replica(store) for store in stores]
        old = [replicas[n % 2].containers.create("me", expires_minutes=1).id for n in range(20)]
        for container in old:
            replicas[0].containers.put_file(container, f"{ROOT}a.txt", b"x", "assistant")
        young = replicas[0].containers.create("me", expires_minutes=20).id
        used = old.pop()
        now[0] += 59
        replicas[1].containers.touch(used)
        now[0] += 2
        with ThreadPoolExecutor(8) as pool:
            swept = pool.map(lambda n: replicas[n % 2].containers.sweep(), range(8))
            assert sorted(each for some in swept for each in some) == sorted(old)
        for replica in replicas:
            found = replica.containers.list("me")
            assert {each.id for each in found if each.status == "running"} == {young, used}
            for container in old:
                with pytest.raises(NotFound) as gone:
                    replica.containers.files(container)
                assert gone.value.code == "container_expired"
                replica.containers.touch(container)  # a cell that ends now brings nothing back
                with pytest.raises(NotFound):
                    replica.containers.put_file(container, f"{ROOT}b.txt", b"y", "assistant")
        assert len(stores[0]._contents.list_stored()) == 1


def test_an_unfinished_upload_is_removed_only_after_an_hour(
    postgres_server: Postgres, files_dir: str
) -> None:
    """A replica that starts must not take what another is writing for what a dead one has left."""
    index = postgres_server.database()
    first = open_store(files_dir, index)
    with first.writing(BytesIO(b"half"), lambda _size: None) as unfinished:
        open_store(files_dir, index).close()
        with first.open(lambda _: unfinished.key) as content:
            assert content.read() == b"half"
        open_store(files_dir, index, now=lambda: time.time() + 3700).close()
        assert first._contents.list_stored() == {}
    first.close()
