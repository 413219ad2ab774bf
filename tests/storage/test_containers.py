"""The Containers and Container Files APIs, through the official SDK and as bytes on the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.errors import BadRequest, EmulatorError, NotFound, TooLarge
from emulator.database import open_database
from emulator.settings.settings import Settings
from emulator.storage.blob_store import BlobStore, open_blob_store
from emulator.storage.container_files import MAX_FILES, ROOT, check_path
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from tests.conftest import StartProxy
from tests.support.openai_wire import recorded_requests, validator
from tests.support.processes import wait_until
from tests.support.raw_http import send
from tests.support.uploads import CSV, Clock, error_of, form, kept, sdk

CONTAINER = validator("ContainerResource")
CONTAINERS = validator("ContainerListResource")
FILE = validator("ContainerFileResource")
FILES = validator("ContainerFileListResource")
DAY = 86_400


def create(client: openai.OpenAI, **named: Any) -> str:
    return client.containers.create(**{"name": "c", **named}).id


def put(client: openai.OpenAI, container: str, name: str, content: bytes = CSV) -> Any:
    return client.containers.files.create(container, file=(name, content))


def test_a_container_is_created_read_listed_and_deleted(client: openai.OpenAI) -> None:
    container = client.containers.create(
        name="mine",
        expires_after={"anchor": "last_active_at", "minutes": 5},
        memory_limit="4g",
        network_policy={"type": "disabled"},
    )
    CONTAINER.validate(container.to_dict())
    assert container.id.startswith("cntr_")
    assert container.to_dict() == {
        "id": container.id,
        "object": "container",
        "created_at": container.created_at,
        "status": "running",
        "expires_after": {"anchor": "last_active_at", "minutes": 5},
        "last_active_at": container.created_at,
        "memory_limit": "4g",
        "name": "mine",
        "stateful": True,
        "approval": "never",
    }
    assert (
        client.containers.retrieve(container.id).to_dict().items()
        >= {
            "id": container.id,
            "name": "mine",
        }.items()
    )
    other = create(client, name="other")
    assert [each.id for each in client.containers.list()] == [other, container.id]
    assert [each.id for each in client.containers.list(name="mine")] == [container.id]
    client.containers.delete(container.id)
    assert [each.id for each in client.containers.list()] == [other]
    for gone in (
        client.containers.retrieve,
        client.containers.delete,
        client.containers.files.list,
    ):
        with pytest.raises(openai.NotFoundError) as failed:
            gone(container.id)
        assert error_of(failed.value) == (404, "container_id", "container_not_found")


def test_a_container_file_is_uploaded_listed_read_and_deleted(
    client: openai.OpenAI, tmp_path: Path
) -> None:
    container = create(client)
    file = put(client, container, "cities.csv")
    FILE.validate(file.to_dict())
    assert file.to_dict() == {
        "id": file.id,
        "object": "container.file",
        "created_at": file.created_at,
        "bytes": len(CSV),
        "container_id": container,
        "path": "/mnt/data/cities.csv",
        "source": "user",
    }
    files = client.containers.files
    assert files.retrieve(file.id, container_id=container).to_dict() == file.to_dict()
    assert files.content.retrieve(file.id, container_id=container).content == CSV
    assert [each.to_dict() for each in files.list(container)] == [file.to_dict()]
    files.delete(file.id, container_id=container)
    for gone in (files.retrieve, files.content.retrieve, files.delete):
        with pytest.raises(openai.NotFoundError) as failed:
            gone(file.id, container_id=container)
        assert error_of(failed.value) == (404, "file_id", "container_file_not_found")
    assert (list(files.list(container)), kept(tmp_path)) == ([], [])


def test_deleting_returns_the_deleted_object(client: openai.OpenAI, proxy: str) -> None:
    container = create(client)
    file = put(client, container, "x").id
    place = f"{proxy}/v1/containers/{container}"
    assert send(f"{place}/files/{file}", method="DELETE")[2] == {
        "id": file,
        "object": "container.file.deleted",
        "deleted": True,
    }
    assert send(place, method="DELETE")[2] == {
        "id": container,
        "object": "container.deleted",
        "deleted": True,
    }


def test_uploaded_files_are_copied_in_at_creation_and_later(client: openai.OpenAI) -> None:
    one, two = (
        client.files.create(file=(name, name.encode()), purpose="assistants") for name in "ab"
    )
    container = create(client, file_ids=[one.id])
    added = client.containers.files.create(container, file_id=two.id)
    for uploaded in (one, two):
        client.files.delete(uploaded.id)  # the copies stay
    files = client.containers.files
    assert {
        file.path: files.content.retrieve(file.id, container_id=container).content
        for file in files.list(container)
    } == {"/mnt/data/a": b"a", "/mnt/data/b": b"b"}
    assert added.path == "/mnt/data/b"


def test_a_form_may_name_an_uploaded_file(client: openai.OpenAI, proxy: str) -> None:
    """As the SDK documents ``file_id``, "multipart/form-data" without a file."""
    uploaded = client.files.create(file=("a.csv", CSV), purpose="user_data")
    place = f"{proxy}/v1/containers/{create(client)}/files"
    status, _, file = send(place, *form({"file_id": uploaded.id}))
    assert (status, file["path"], file["bytes"]) == (200, "/mnt/data/a.csv", len(CSV))


def test_a_file_of_the_same_name_replaces_the_earlier_one(
    client: openai.OpenAI, tmp_path: Path
) -> None:
    container = create(client)
    first, second = put(client, container, "x", b"old"), put(client, container, "x", b"newer")
    assert (first.id, first.bytes, second.bytes) == (second.id, 3, 5)
    files = client.containers.files
    assert files.content.retrieve(first.id, container_id=container).content == b"newer"
    assert kept(tmp_path) == [5]


@pytest.mark.parametrize(
    "recorded",
    [row for row in recorded_requests("/v1/containers") if row["method"] == "POST"],
    ids=lambda row: row["name"],
)
def test_a_recorded_request_creates_a_container(proxy: str, recorded: dict[str, Any]) -> None:
    status, _, container = send(f"{proxy}/v1/containers", recorded["body"])
    assert status == 200
    CONTAINER.validate(container)


BAD_CONTAINERS: list[tuple[Any, int, str | None]] = [
    (b"{", 400, None),
    (b"[]", 400, None),
    ({}, 400, "name"),
    ({"name": ""}, 400, "name"),
    ({"name": "x" * 257}, 400, "name"),
    ({"name": "x", "expires_after": {"minutes": 5}}, 400, "expires_after.anchor"),
    (
        {"name": "x", "expires_after": {"anchor": "created_at", "minutes": 5}},
        400,
        "expires_after.anchor",
    ),
    (
        {"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 0}},
        400,
        "expires_after.minutes",
    ),
    (
        {"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 10**30}},
        400,
        "expires_after.minutes",
    ),
    ({"name": "x", "memory_limit": "2g"}, 400, "memory_limit"),
    ({"name": "x", "memory_limit": "16g"}, 400, "memory_limit"),
    ({"name": "x", "file_ids": "file-1"}, 400, "file_ids"),
    ({"name": "x", "file_ids": ["file-1"]}, 404, "file_ids[0]"),
    ({"name": "x", "network_policy": {"type": "allowlist"}}, 400, "network_policy.type"),
    ({"name": "x", "skills": [{}]}, 400, "skills"),
    ({"name": "x", "approval": "maybe"}, 400, "approval"),
]


@pytest.mark.parametrize(("body", "status", "param"), BAD_CONTAINERS)
def test_a_container_that_cannot_be_made_is_refused_with_the_place(
    proxy: str, body: Any, status: int, param: str | None
) -> None:
    answered, _, answer = send(f"{proxy}/v1/containers", body)
    assert (answered, answer["error"]["param"]) == (status, param)
    assert send(f"{proxy}/v1/containers")[2]["data"] == []


def test_a_container_with_one_unknown_file_leaves_no_copies(
    client: openai.OpenAI, tmp_path: Path
) -> None:
    file = client.files.create(file=("x", CSV), purpose="user_data")
    with pytest.raises(openai.NotFoundError):
        create(client, file_ids=[file.id, "file-0"])
    assert kept(tmp_path) == [len(CSV)]


BAD_FILES: list[tuple[dict[str, str], tuple[str, bytes] | None, int, str | None]] = [
    ({}, None, 400, "file_id"),
    ({"file_id": "file-0"}, None, 404, "file_id"),
    ({}, ("", b""), 400, "file"),
    ({}, ("../../etc/passwd", b""), 400, "file"),
    ({}, ("a/b", b""), 400, "file"),
    ({}, ("a\\\\b", b""), 400, "file"),
    ({}, (".", b""), 400, "file"),
    ({}, ("..", b""), 400, "file"),
    ({}, ("a\0", b""), 400, "file"),
    ({}, ("a\x1b[2J", b""), 400, "file"),
    ({}, ("x" * 256, b""), 400, "file"),
]


@pytest.mark.parametrize(("parts", "file", "status", "param"), BAD_FILES)
def test_a_file_that_cannot_be_taken_is_refused_with_the_place(
    proxy: str,
    client: openai.OpenAI,
    tmp_path: Path,
    parts: dict[str, str],
    file: tuple[str, bytes] | None,
    status: int,
    param: str | None,
) -> None:
    place = f"{proxy}/v1/containers/{create(client)}/files"
    answered, _, answer = send(place, *form(parts, file))
    assert (answered, answer["error"]["param"]) == (status, param)
    assert (send(place)[2]["data"], kept(tmp_path)) == ([], [])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"file_id": 1}'])
def test_json_without_a_file_id_is_refused(proxy: str, client: openai.OpenAI, body: bytes) -> None:
    place = f"{proxy}/v1/containers/{create(client)}/files"
    assert send(place, body, {"content-type": "application/json"})[0] == 400


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 5, 6, 100])
def test_pages_hold_every_container_and_every_file_once_in_order(
    client: openai.OpenAI, proxy: str, order: Any, limit: int
) -> None:
    created = [create(client, name=str(n)) for n in range(5)]
    put_in = [put(client, created[0], str(n)).id for n in range(5)]
    listed = [each.id for each in client.containers.list(limit=limit, order=order)]
    files = [each.id for each in client.containers.files.list(created[0], limit=limit, order=order)]
    assert listed == (created if order == "asc" else created[::-1])
    assert files == (put_in if order == "asc" else put_in[::-1])
    query = f"limit={limit}&order={order}"
    for place, schema, expected in (
        ("", CONTAINERS, listed),
        (f"/{created[0]}/files", FILES, files),
    ):
        page = send(f"{proxy}/v1/containers{place}?{query}")[2]
        schema.validate(page)
        shown = expected[:limit]
        assert [item["id"] for item in page["data"]] == shown
        assert (page["first_id"], page["last_id"]) == (shown[0], shown[-1])
        assert page["has_more"] == (limit < 5)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("order=up", "order"),
        ("after=file-1", "after"),
    ],
)
@pytest.mark.parametrize("files", [False, True], ids=["containers", "files"])
def test_a_bad_page_is_refused_with_its_place(
    proxy: str, client: openai.OpenAI, query: str, param: str, files: bool
) -> None:
    place = f"/{create(client)}/files" if files else ""
    status, _, answer = send(f"{proxy}/v1/containers{place}?{query}")
    assert (status, answer["error"]["param"]) == (400, param)


def test_another_clients_container_is_not_found(start_proxy: StartProxy) -> None:
    proxy = start_proxy(client_keys=("first", "second"))
    first, second = sdk(proxy, "first"), sdk(proxy, "second")
    uploaded = first.files.create(file=("x", CSV), purpose="user_data")
    container = create(first)
    file = put(first, container, "x").id
    files = second.containers.files
    for refused in (
        lambda: second.containers.retrieve(container),
        lambda: second.containers.delete(container),
        lambda: files.list(container),
        lambda: files.create(container, file=("y", b"")),
        lambda: files.retrieve(file, container_id=container),
        lambda: files.content.retrieve(file, container_id=container),
        lambda: files.delete(file, container_id=container),
        lambda: create(second, file_ids=[uploaded.id]),
        # Nor does the way lead through a container of one's own.
        lambda: files.content.retrieve(file, container_id=create(second)),
    ):
        with pytest.raises(openai.NotFoundError):
            refused()
    assert [each.id for each in first.containers.files.list(container)] == [file]


LIMITS: list[tuple[dict[str, Any], list[int], tuple[int, str, str]]] = [
    ({"max_file_bytes": 9}, [10], (413, "file", "file_too_large")),
    ({"container_bytes": 9}, [10], (413, "file", "container_full")),
    ({"container_bytes": 9}, [5, 5], (413, "file", "container_full")),
    ({"container_bytes": 300_000}, [5, 500_000], (413, "file", "container_full")),
]


@pytest.mark.parametrize(("settings", "sizes", "error"), LIMITS)
def test_a_limit_is_reported_and_existing_files_stay(
    start_proxy: StartProxy,
    tmp_path: Path,
    settings: dict[str, Any],
    sizes: list[int],
    error: tuple[int, str, str],
) -> None:
    client = sdk(start_proxy(**settings))
    container = create(client)
    *fitting, last = sizes
    for size in fitting:
        put(client, container, f"{size} bytes", b"x" * size)
    with pytest.raises(openai.APIStatusError) as failed:
        put(client, container, "last", b"x" * last)
    assert error_of(failed.value) == error
    assert kept(tmp_path) == fitting


def test_a_replaced_file_does_not_count_against_the_limit(start_proxy: StartProxy) -> None:
    client = sdk(start_proxy(container_bytes=9))
    container = create(client)
    for size in (9, 8, 9):
        assert put(client, container, "x", b"x" * size).bytes == size


def test_copies_at_creation_are_bounded_too(start_proxy: StartProxy, tmp_path: Path) -> None:
    client = sdk(start_proxy(container_bytes=9))
    ids = [client.files.create(file=(n, b"12345"), purpose="batch").id for n in "ab"]
    with pytest.raises(openai.APIStatusError) as failed:
        create(client, file_ids=ids)
    assert error_of(failed.value) == (413, "file", "container_full")
    assert kept(tmp_path) == [5, 5]


def test_the_number_of_running_containers_is_limited(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.storage.containers._MAX_RUNNING", 2)
    client = sdk(proxy)
    first, _ = create(client), create(client)
    with pytest.raises(openai.BadRequestError) as failed:
        create(client)
    assert error_of(failed.value) == (400, None, "too_many_containers")
    client.containers.delete(first)
    create(client)


def test_containers_and_their_files_survive_a_restart(
    start_proxy: StartProxy, clock: Clock
) -> None:
    before = sdk(start_proxy(now=clock))
    container = before.containers.create(name="x")
    file = put(before, container.id, "a.csv")
    after = sdk(start_proxy(now=clock))
    assert after.containers.retrieve(container.id) == before.containers.retrieve(container.id)
    files = after.containers.files
    assert files.content.retrieve(file.id, container_id=container.id).content == CSV


def test_a_container_lives_as_long_as_it_is_used(start_proxy: StartProxy, clock: Clock) -> None:
    client = sdk(start_proxy(now=clock))
    container = create(client, expires_after={"anchor": "last_active_at", "minutes": 1})
    clock.now += 59
    file = put(client, container, "x").id
    files = client.containers.files
    for use in (
        lambda: client.containers.retrieve(container),
        lambda: files.list(container),
        lambda: files.retrieve(file, container_id=container),
        lambda: files.content.retrieve(file, container_id=container),
        lambda: files.delete(file, container_id=container),
    ):
        clock.now += 59
        use()
    assert client.containers.retrieve(container).last_active_at == clock.now


def test_an_expired_container_is_shown_for_a_day_but_cannot_be_used(
    start_proxy: StartProxy, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.storage.containers._MAX_RUNNING", 1)
    client = sdk(start_proxy(now=clock))
    container = create(client)
    file = put(client, container, "x").id
    began = clock.now
    clock.now += 20 * 60
    files = client.containers.files
    for refused in (
        lambda: files.list(container),
        lambda: files.create(container, file=("y", b"")),
        lambda: files.retrieve(file, container_id=container),
        lambda: files.content.retrieve(file, container_id=container),
        lambda: files.delete(file, container_id=container),
    ):
        with pytest.raises(openai.NotFoundError) as failed:
            refused()
        assert error_of(failed.value) == (404, "container_id", "container_expired")
    shown = client.containers.retrieve(container)
    assert (shown.status, shown.last_active_at) == ("expired", began)
    assert [each.status for each in client.containers.list()] == ["expired"]
    create(client)  # it does not count against those that run

    restarted = sdk(start_proxy(now=clock))  # a proxy sweeps as it starts
    wait_until(lambda: kept(tmp_path) == [])
    clock.now += DAY - 1
    assert restarted.containers.retrieve(container).status == "expired"
    clock.now += 1
    restarted = sdk(start_proxy(now=clock))
    wait_until(lambda: container not in [each.id for each in restarted.containers.list()])


# What the interpreter relies on


@pytest.fixture
def folder(tmp_path: Path, database: str, clock: Clock) -> Iterator[BlobStore]:
    opened = open_blob_store(open_database(database, clock), str(tmp_path / "files"))
    yield opened
    opened.close()


@pytest.fixture
def containers(folder: BlobStore) -> Containers:
    return open_containers(folder)


def open_containers(folder: BlobStore, **settings: Any) -> Containers:
    created = Settings(**settings)
    return Containers(folder, Files(folder, created), created)


def test_a_sweep_reports_each_expired_container_once(containers: Containers, clock: Clock) -> None:
    deleted, expired, kept_on = (
        containers.create("me", expires_minutes=minutes).id for minutes in (1, 1, 9)
    )
    assert containers.delete("me", deleted)
    clock.now += 60
    assert [list(containers.sweep()) for _ in range(2)] == [[expired], []]
    assert not containers.delete("me", expired)
    assert containers.get("me", kept_on).status == "running"


def test_a_swept_container_stays_gone_when_the_clock_is_set_back(
    containers: Containers, clock: Clock
) -> None:
    container = containers.create("me", expires_minutes=1).id
    clock.now += 60
    containers.sweep()
    clock.now -= 60
    containers.touch(container)
    with pytest.raises(NotFound):
        containers.get("me", container)


def test_the_version_changes_with_user_files_and_not_with_program_files(
    containers: Containers,
) -> None:
    container = containers.create("me").id
    seen = [containers.version(container)]

    def step(changes: bool) -> None:
        seen.append(containers.version(container))
        assert (seen[-1] != seen[-2]) == changes

    file = containers.put_file(container, f"{ROOT}x", b"1", "user")
    step(True)
    containers.put_file(container, f"{ROOT}out/plot.png", b"2", "assistant")
    step(False)
    containers.put_file(container, f"{ROOT}x", b"3", "assistant")
    step(False)
    containers.put_file(container, f"{ROOT}x", b"4", "user")
    step(True)
    containers.remove(container, file.id)
    step(True)


def test_the_interpreter_sees_every_file_whole(containers: Containers) -> None:
    container = containers.create("me").id
    created = [
        containers.put_file(container, f"{ROOT}{path}", path.encode(), "assistant")
        for path in ("a", "b/c", "b/d/e")
    ]
    assert list(containers.files(container)) == created
    assert [containers.read(container, file.id) for file in created] == [b"a", b"b/c", b"b/d/e"]
    assert [file.filename for file in created] == ["a", "c", "e"]


@pytest.mark.parametrize(("there", "added"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
def test_a_path_is_not_both_a_file_and_a_folder(
    containers: Containers, there: str, added: str
) -> None:
    container = containers.create("me").id
    containers.put_file(container, ROOT + there, b"", "assistant")
    with pytest.raises(BadRequest) as failed:
        containers.put_file(container, ROOT + added, b"", "user")
    assert failed.value.code == "path_taken"
    containers.put_file(container, f"{ROOT}ab", b"", "user")


def test_a_file_is_found_while_it_is_replaced_all_the_time(containers: Containers) -> None:
    """Its old contents must not be removed between the look into the index and the opening."""
    container = containers.create("me").id
    file = containers.put_file(container, f"{ROOT}x", b"0", "user")
    done = threading.Event()

    def replace() -> None:
        while not done.is_set():
            containers.put_file(container, f"{ROOT}x", b"1", "user")

    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        try:
            assert {containers.read(container, file.id) for _ in range(300)} <= {b"0", b"1"}
        finally:
            done.set()
        replacing.result()


def test_a_file_that_is_read_while_it_is_replaced_stays_whole(containers: Containers) -> None:
    container = containers.create("me").id
    file = containers.put_file(container, f"{ROOT}x", b"old" * 1000, "user")
    with containers.open(container, file.id) as content:
        begun = content.read(3)
        containers.put_file(container, f"{ROOT}x", b"new", "user")
        containers.delete("me", container)
        assert begun + content.read() == b"old" * 1000


@dataclass
class Stream:
    """Contents that come in pieces; ``between`` happens before the last one. Counts what was read."""

    pieces: list[bytes]
    between: Callable[[], object] = lambda: None
    read_bytes: int = 0

    def read(self, _size: int) -> bytes:
        if len(self.pieces) == 1:
            self.between()
        piece = self.pieces.pop(0) if self.pieces else b""
        self.read_bytes += len(piece)
        return piece


def test_an_upload_is_refused_if_another_upload_filled_the_container_meanwhile(
    folder: BlobStore, tmp_path: Path
) -> None:
    containers = open_containers(folder, container_bytes=10)
    container = containers.create("me").id
    other = containers.put_file(container, f"{ROOT}x", b"", "user")
    stream: Any = Stream(
        [b"123", b"456"], lambda: containers.put_file(container, f"{ROOT}x", b"12345", "user")
    )
    with pytest.raises(TooLarge) as failed:
        containers.put_file(container, f"{ROOT}y", stream, "user")
    assert failed.value.code == "container_full"
    assert [(file.id, file.bytes) for file in containers.files(container)] == [(other.id, 5)]
    assert kept(tmp_path) == [5]


def test_an_upload_is_read_only_up_to_the_free_space(folder: BlobStore) -> None:
    containers = open_containers(folder, container_bytes=10)
    container = containers.create("me").id
    endless: Any = Stream([b"1234"] * 1000)
    with pytest.raises(TooLarge):
        containers.put_file(container, f"{ROOT}x", endless, "user")
    assert endless.read_bytes == 12


def test_the_number_of_files_in_a_container_is_limited(containers: Containers) -> None:
    container = containers.create("me").id
    for n in range(MAX_FILES):
        containers.put_file(container, f"{ROOT}{n}", b"", "assistant")
    containers.put_file(container, f"{ROOT}0", b"again", "assistant")
    with pytest.raises(BadRequest) as failed:
        containers.put_file(container, f"{ROOT}more", b"", "assistant")
    assert failed.value.code == "too_many_files"


def test_concurrent_operations_leave_the_disk_and_the_index_in_agreement(
    containers: Containers, folder: BlobStore, tmp_path: Path
) -> None:
    container = containers.create("me").id

    def busy(n: int) -> None:
        for step in range(25):
            name = f"{ROOT}{(n + step) % 3}"
            try:
                file = containers.put_file(container, name, b"x" * (n + 1), "user")
                containers.read(container, file.id)
                if step % 3 == 0:
                    containers.remove(container, file.id)
            except NotFound:
                pass  # another thread was faster

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(busy, range(6)))
    assert kept(tmp_path) == sorted(file.bytes for file in containers.files(container))


def test_deleting_a_container_discards_an_upload_in_progress(
    containers: Containers, tmp_path: Path
) -> None:
    container = containers.create("me").id

    stream: Any = Stream([b"first", b"last"], lambda: containers.delete("me", container))
    with pytest.raises(NotFound) as failed:
        containers.put_file(container, f"{ROOT}x", stream, "user")
    assert (failed.value.code, kept(tmp_path)) == ("container_not_found", [])


def test_a_container_keeps_the_proxys_own_options(client: openai.OpenAI) -> None:
    created = client.containers.create(
        name="x", extra_body={"stateful": False, "approval": "required"}
    )
    shown = client.containers.retrieve(created.id).to_dict()
    assert (shown["stateful"], shown["approval"]) == (False, "required")


def test_a_container_has_the_requested_options(containers: Containers, clock: Clock) -> None:
    created = containers.create(
        "me", name="n", expires_minutes=3, memory_limit="4g", stateful=False
    )
    now = int(clock.now)
    assert created == Container(
        created.id, "me", "n", now, now, 3, "4g", status="running", stateful=False, approval=False
    )
    assert containers.get("me", created.id) == created


SEGMENT = st.text(st.characters(codec=None), max_size=12)


@given(st.lists(st.sampled_from(["a", "..", ".", "", "\\"]) | SEGMENT, max_size=10).map("/".join))
def test_a_path_that_is_accepted_lies_below_the_root(relative: str) -> None:
    try:
        check_path(ROOT + relative)
    except EmulatorError as error:
        json.dumps(error.body()).encode()
    else:
        segments = relative.split("/")
        assert 1 <= len(segments) <= 8
        assert not {"", ".", ".."} & set(segments)
        assert not any(letter < " " for letter in relative)


@pytest.mark.parametrize("path", ["", "/", "x", "/etc/passwd", "/mnt/data", "/mnt/data2/x", ROOT])
def test_a_path_outside_the_root_is_refused(containers: Containers, path: str) -> None:
    container = containers.create("me").id
    with pytest.raises(BadRequest):
        containers.put_file(container, path, b"", "assistant")
    assert containers.files(container) == []
