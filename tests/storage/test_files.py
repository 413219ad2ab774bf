"""The Files API, through the official SDK and as bytes on the wire; the folder in which files are kept."""

from __future__ import annotations

import json
import os
import posixpath
import socket
import stat
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.errors import BadRequest, StorageFailed
from emulator.database import open_database
from emulator.storage.blob_store import BlobStore, Content, open_blob_store
from emulator.storage.files import PURPOSES, check_name
from tests.conftest import StartProxy
from tests.support.openai_wire import validator
from tests.support.processes import wait_until
from tests.support.raw_http import connect, fetch, post_bytes, send
from tests.support.uploads import CSV, Clock, error_of, form, kept, sdk

FILE = validator("OpenAIFile")
FILES = validator("ListFilesResponse")


def test_a_file_is_uploaded_listed_read_and_deleted(client: openai.OpenAI, tmp_path: Path) -> None:
    file = client.files.create(file=("cities.csv", CSV), purpose="user_data")
    FILE.validate(file.to_dict())
    assert file.id.startswith("file-")
    assert (file.filename, file.bytes, file.purpose, file.expires_at) == (
        "cities.csv",
        len(CSV),
        "user_data",
        None,
    )
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == CSV
    assert list(client.files.list()) == [file]
    assert client.files.delete(file.id).to_dict() == {
        "id": file.id,
        "object": "file",
        "deleted": True,
    }
    for gone in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError) as failed:
            gone(file.id)
        assert error_of(failed.value) == (404, "file_id", "file_not_found")
    assert (list(client.files.list()), kept(tmp_path)) == ([], [])


@pytest.mark.parametrize("content", [b"", b"\r\n--B", b"\0\xff" * 700_000], ids=len)
def test_contents_are_returned_byte_for_byte(client: openai.OpenAI, content: bytes) -> None:
    file = client.files.create(file=("x.bin", content), purpose="assistants")
    assert (file.bytes, client.files.content(file.id).content) == (len(content), content)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_every_purpose_of_openais_is_accepted_and_listed_by(
    client: openai.OpenAI, purpose: Any
) -> None:
    client.files.create(file=("other", b""), purpose="vision" if purpose != "vision" else "batch")
    file = client.files.create(file=("x", b""), purpose=purpose)
    assert list(client.files.list(purpose=purpose)) == [file]


BAD_UPLOADS: list[tuple[dict[str, str], tuple[str, bytes] | None, str, str]] = [
    ({"purpose": "user_data"}, None, "file", "no file"),
    ({"purpose": "user_data"}, ("", b"x"), "file", "empty"),
    ({"purpose": "user_data"}, ("../x", b"x"), "file", "slash"),
    ({"purpose": "user_data"}, ("..", b"x"), "file", "folder"),
    ({"purpose": "user_data"}, ("a\\\\b", b"x"), "file", "slash"),
    ({"purpose": "user_data"}, ("/etc/passwd", b"x"), "file", "slash"),
    ({"purpose": "user_data"}, ("a\0b", b"x"), "file", "control"),
    ({"purpose": "user_data"}, ("é" * 128, b"x"), "file", "255"),
    ({}, ("x", b"x"), "purpose", "user_data"),
    ({"purpose": "fun"}, ("x", b"x"), "purpose", "user_data"),
    (
        {"purpose": "vision", "expires_after[anchor]": "now", "expires_after[seconds]": "3600"},
        ("x", b"x"),
        "expires_after[anchor]",
        "created_at",
    ),
    (
        {"purpose": "vision", "expires_after[anchor]": "created_at"},
        ("x", b"x"),
        "expires_after[seconds]",
        "3600",
    ),
    (
        {
            "purpose": "vision",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": "3599",
        },
        ("x", b"x"),
        "expires_after[seconds]",
        "3600",
    ),
    (
        {
            "purpose": "vision",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": "1e4",
        },
        ("x", b"x"),
        "expires_after[seconds]",
        "3600",
    ),
]


@pytest.mark.parametrize(("parts", "file", "param", "words"), BAD_UPLOADS)
def test_a_bad_upload_is_refused_with_its_place_and_leaves_nothing(
    proxy: str,
    tmp_path: Path,
    parts: dict[str, str],
    file: tuple[str, bytes] | None,
    param: str,
    words: str,
) -> None:
    status, _, answer = send(f"{proxy}/v1/files", *form(parts, file))
    error = answer["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert words in error["message"]
    assert kept(tmp_path) == []


BODY, HEADERS = form({"purpose": "user_data"}, ("x", b"content"))


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        (b"{}", {"content-type": "application/json"}, "file"),
        (BODY, {"content-type": "multipart/form-data"}, None),
        (BODY, {"content-type": "multipart/form-data; boundary=C"}, None),
        (b"", HEADERS, None),
        (BODY[:-9], HEADERS, None),
        (BODY.replace(b"Content-Disposition", b"Disposition"), HEADERS, None),
        (BODY.replace(b'"x"', b'"\xff"'), HEADERS, None),
    ],
)
def test_a_body_that_is_no_form_is_refused(
    proxy: str, tmp_path: Path, body: bytes, headers: dict[str, str], param: str | None
) -> None:
    status, _, answer = send(f"{proxy}/v1/files", body, headers)
    assert (status, answer["error"]["param"]) == (400, param)
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=١", "limit"),
        ("order=newest", "order"),
        ("after=x", "after"),
        ("after=cntr_" + "0" * 32, "after"),
        ("after=file-" + "0" * 33, "after"),
    ],
)
def test_a_bad_page_is_refused_with_its_place(proxy: str, query: str, param: str) -> None:
    query = urllib.parse.quote(query, safe="=&")
    status, _, answer = send(f"{proxy}/v1/files?{query}")
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 10_000])
def test_pages_hold_every_file_once_in_order(
    client: openai.OpenAI, proxy: str, order: Any, limit: int
) -> None:
    created = [client.files.create(file=(str(n), b""), purpose="batch").id for n in range(7)]
    expected = created if order == "asc" else created[::-1]
    assert [file.id for file in client.files.list(limit=limit, order=order)] == expected
    page = send(f"{proxy}/v1/files?limit={limit}&order={order}")[2]
    FILES.validate(page)
    shown = expected[:limit]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (shown[0], shown[-1], limit < 7)


def test_an_empty_list_is_one_in_openais_shape(proxy: str) -> None:
    page = send(f"{proxy}/v1/files")[2]
    FILES.validate(page)
    assert page["data"] == []


def test_a_list_can_be_read_while_its_files_are_deleted(client: openai.OpenAI) -> None:
    for n in range(5):
        client.files.create(file=(str(n), b""), purpose="batch")
    names = []
    for file in client.files.list(limit=2, order="asc"):
        names.append(file.filename)
        client.files.delete(file.id)
    assert names == list("01234")


def test_another_clients_files_are_not_found(start_proxy: StartProxy) -> None:
    proxy = start_proxy(client_keys=("first", "second"))
    first, second = sdk(proxy, "first"), sdk(proxy, "second")
    file = first.files.create(file=("x", b"mine"), purpose="user_data")
    for refused in (second.files.retrieve, second.files.content, second.files.delete):
        with pytest.raises(openai.NotFoundError):
            refused(file.id)
    assert list(second.files.list()) == []
    assert first.files.content(file.id).content == b"mine"


def test_files_survive_a_restart(start_proxy: StartProxy) -> None:
    file = sdk(start_proxy()).files.create(file=("x", CSV), purpose="user_data")
    again = sdk(start_proxy())
    assert list(again.files.list()) == [file]
    assert again.files.content(file.id).content == CSV


def test_a_file_expires_after_its_requested_time(
    start_proxy: StartProxy, clock: Clock, tmp_path: Path
) -> None:
    client = sdk(start_proxy(now=clock))
    file = client.files.create(
        file=("x", CSV),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    FILE.validate(file.to_dict())
    assert file.expires_at == file.created_at + 3600 == clock.now + 3600
    clock.now += 3599
    assert client.files.content(file.id).content == CSV
    clock.now += 1
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert list(client.files.list()) == []
    start_proxy(now=clock)  # a proxy sweeps as it starts
    wait_until(lambda: kept(tmp_path) == [])


LIMITS: list[tuple[dict[str, int], list[bytes], tuple[int, str, str]]] = [
    ({"max_file_bytes": 9}, [b"x" * 10], (413, "file", "file_too_large")),
    ({"max_file_bytes": 9}, [b"x" * 300_000], (413, "file", "file_too_large")),
    ({"files_bytes": 9}, [b"x" * 5, b"y" * 5], (413, "file", "files_full")),
    ({}, [b"", b"", b""], (400, "file", "too_many_files")),
]


@pytest.mark.parametrize(("settings", "contents", "error"), LIMITS)
def test_a_limit_is_reported_and_existing_files_stay(
    start_proxy: StartProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, int],
    contents: list[bytes],
    error: tuple[int, str, str],
) -> None:
    monkeypatch.setattr("emulator.storage.files._MAX_FILES", 2)
    client = sdk(start_proxy(**settings))
    *fitting, last = contents
    created = [client.files.create(file=("x", content), purpose="vision") for content in fitting]
    with pytest.raises(openai.APIStatusError) as failed:
        client.files.create(file=("x", last), purpose="vision")
    assert error_of(failed.value) == error
    assert list(client.files.list(order="asc")) == created
    assert kept(tmp_path) == [len(content) for content in fitting]


def test_an_upload_may_be_larger_than_a_json_body(start_proxy: StartProxy) -> None:
    client = sdk(start_proxy(max_body_bytes=1024))
    assert client.files.create(file=("x", b"x" * 5000), purpose="vision").bytes == 5000


def begin_upload(proxy: str, promised: int, sent: bytes, *, leave: bool = False) -> bytes:
    """The status line of the answer to an upload that is shorter than its declared length."""
    head = post_bytes("/v1/files", b"", {**HEADERS, "content-length": str(promised)})
    with connect(proxy, head + sent) as connection:
        if leave:
            connection.shutdown(socket.SHUT_WR)
        return connection.recv(65536).split(b"\r\n")[0]


def test_an_upload_whose_client_disconnects_leaves_nothing(proxy: str, tmp_path: Path) -> None:
    body, _ = form({"purpose": "user_data"}, ("x", b"x" * 1_000_000))
    # Depending on timing it is a disconnect or half a body; no client reads the answer.
    status = begin_upload(proxy, len(body), body[:700_000], leave=True)
    assert status.split()[1] in (b"400", b"499")
    assert send(f"{proxy}/v1/files")[2]["data"] == []
    assert kept(tmp_path) == []


def test_an_upload_that_will_be_too_large_is_refused_before_it_is_read(proxy: str) -> None:
    assert b" 413 " in begin_upload(proxy, 2**40, b"")


def test_files_that_a_browser_could_run_are_sent_as_downloads(
    client: openai.OpenAI, proxy: str
) -> None:
    kinds = {}
    for name in ("a.html", "a.svg", "a.xhtml", "a.js", "a", "A.PNG", "a.csv", 'ä"b.txt'):
        file = client.files.create(file=(name, b"<script>alert(1)</script>"), purpose="vision")
        _, sent, _ = fetch(f"{proxy}/v1/files/{file.id}/content")
        assert sent["x-content-type-options"] == "nosniff"
        assert sent["content-security-policy"] == "sandbox; default-src 'none'"
        assert sent["content-disposition"] == (
            f"attachment; filename*=UTF-8''{urllib.parse.quote(file.filename, safe='')}"
        )
        kinds[name] = sent["content-type"].split(";")[0]
    assert kinds == {
        "a.html": "application/octet-stream",
        "a.svg": "application/octet-stream",
        "a.xhtml": "application/octet-stream",
        "a.js": "application/octet-stream",
        "a": "application/octet-stream",
        "A.PNG": "image/png",
        "a.csv": "text/csv",
        'ä"b.txt': "text/plain",
    }


# The folder


def open_folder(path: Path, now: Callable[[], float] = time.time) -> BlobStore:
    """As another process would open it."""
    database = open_database(str(path / "database.sqlite"), now)
    store = open_blob_store(database, str(path))
    store.owned.callback(database.close)
    store.remove_leftovers()
    return store


def folder_of(path: Path) -> Path:
    [folder] = path.glob("contents-*")
    return folder


def test_only_its_owner_can_look_into_the_folder(client: openai.OpenAI, tmp_path: Path) -> None:
    client.files.create(file=("x", CSV), purpose="vision")
    places = [tmp_path / "files", *(tmp_path / "files").rglob("*")]
    modes = {stat.S_IMODE(place.stat().st_mode) for place in places}
    assert modes == {0o700, 0o600}


def test_the_next_start_removes_the_leftovers_of_a_crash(tmp_path: Path) -> None:
    with_row = open_folder(tmp_path)
    with with_row.transaction() as rows:
        rows.run("CREATE TABLE things (content TEXT REFERENCES contents ON DELETE CASCADE)")
    keys = [put(with_row, BytesIO(content)) for content in (b"whole", b"cut off", b"lost")]
    with_row.close()
    contents = folder_of(tmp_path)
    os.truncate(contents / keys[1], 3)
    (contents / keys[2]).unlink()
    (contents / "0123").write_bytes(b"no row")
    again = open_folder(tmp_path)
    with again.transaction() as rows:
        assert rows.all("SELECT content FROM things") == [(keys[0],)]
    assert [place.name for place in contents.iterdir()] == [keys[0]]
    again.close()


def put(folder: BlobStore, content: BytesIO) -> str:
    with folder.writing(content, lambda _size: None) as stored, folder.transaction() as rows:
        rows.run("INSERT INTO things VALUES (:key)", key=rows.add_content(stored))
    return stored.key


def test_a_folder_that_another_proxy_uses_stays_unchanged(tmp_path: Path) -> None:
    """The second proxy must not take the first one's unfinished uploads for leftovers."""
    first = open_folder(tmp_path)
    with first.writing(BytesIO(b"half"), lambda _size: None) as unfinished:
        open_folder(tmp_path).close()
        assert isinstance(unfinished, Content)
        with first.open(lambda _: unfinished.key) as content:
            assert content.read() == b"half"
    first.close()


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    (folder_of(tmp_path) / "link").symlink_to("/etc/hostname")
    with pytest.raises(StorageFailed, match="symbolic"):
        folder.open(lambda _: "link")
    folder.close()


def test_a_named_pipe_in_the_folder_does_not_hang_its_reader(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    os.mkfifo(folder_of(tmp_path) / "pipe")
    with pytest.raises(StorageFailed, match="regular"):
        folder.open(lambda _: "pipe")
    folder.close()


def test_contents_that_are_replaced_meanwhile_are_found_again(tmp_path: Path) -> None:
    """They are opened outside of the transaction that found them."""
    folder = open_folder(tmp_path)
    folder.make_tables("CREATE TABLE things (content TEXT REFERENCES contents ON DELETE CASCADE)")
    keys = iter(["gone", put(folder, BytesIO(b"new"))])
    with folder.open(lambda _: next(keys)) as content:
        assert content.read() == b"new"
    folder.close()


def test_contents_of_another_database_are_not_removed(tmp_path: Path) -> None:
    first = open_folder(tmp_path)
    first.make_tables("CREATE TABLE things (content TEXT REFERENCES contents ON DELETE CASCADE)")
    key = put(first, BytesIO(b"kept"))
    first.close()
    other = open_blob_store(open_database(str(tmp_path / "other.sqlite")), str(tmp_path))
    other.close()
    again = open_folder(tmp_path)
    with again.open(lambda _: key) as content:
        assert content.read() == b"kept"
    again.close()


def test_ids_sort_in_creation_order_even_if_the_clock_stops(
    tmp_path: Path,
) -> None:
    folder = open_folder(tmp_path, lambda: 2e9)
    ids = [folder.new_id("x_") for _ in range(100)]
    assert ids == sorted(set(ids))
    folder.close()


@given(st.text(st.characters(codec=None), max_size=260))
def test_a_name_that_is_accepted_is_one_file_in_its_folder(name: str) -> None:
    try:
        check_name(name)
    except BadRequest as error:
        json.dumps(error.body()).encode()
    else:
        path = f"/mnt/data/{name}"
        assert posixpath.normpath(path) == path and posixpath.basename(path) == name
        assert len(name.encode()) <= 255
        assert "\\" not in name and "\0" not in name and "\n" not in name
