"""Faults of the machine: kills, full and read-only disks, a PostgreSQL that stops.

Real server processes, each with a store and a folder of its own; `make test-faults` runs all of it.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from emulator.database import open_database
from tests.support.places import needs_bubblewrap
from tests.support.postgres import MISSING, OUTAGES, Postgres, SmallPostgres, postgres
from tests.support.processes import NEW_PROCESS, Process, free_port, proxy, wait_until
from tests.support.programs import CHAIN, HITS, TOOLS
from tests.support.raw_http import connect, fetch, post_bytes, read_page, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.uploads import CSV, form

pytestmark = pytest.mark.faults

ASK = [{"role": "user", "content": "Hi"}]
SILENT = Reply(chunks=["Hello there", "x"], fault="silent", after=1)
Start = Callable[[], AbstractContextManager[tuple[Process, str]]]


@pytest.fixture
def start(upstream: ScriptedUpstream, tmp_path: Path) -> Start:
    """`start()` runs the proxy on what the one before it has kept."""
    store = str(tmp_path / "programs.sqlite")
    return lambda: proxy(upstream.base_url, tmp_path / "log", "--database", store)


def upload(url: str, name: str, content: bytes) -> tuple[int, Any]:
    body, headers = form({"purpose": "user_data"}, (name, content))
    status, _, answer = send(f"{url}/v1/files", body, headers)
    return status, answer


def files(url: str) -> list[str]:
    return [file["filename"] for file in send(f"{url}/v1/files")[2]["data"]]


@dataclass(frozen=True)
class Kept:
    """What a client has of a proxy."""

    file: str
    container: str
    response: str
    conversation: str
    messages: list[Any]
    """Those of a program that waits, its result included."""

    @classmethod
    def made(cls, url: str, upstream: ScriptedUpstream) -> Kept:
        upstream.reply("Hello.", CHAIN)
        status, file = upload(url, "kept.csv", CSV)
        assert status == 200
        asked = {"name": "c", "file_ids": [file["id"]]}
        container = send(f"{url}/v1/containers", asked)[2]
        response = send(f"{url}/v1/responses", {"model": "m", "input": "Hi"})[2]
        item = {"type": "message", "role": "user", "content": "kept"}
        conversation = send(f"{url}/v1/conversations", {"items": [item]})[2]
        body = {"model": "m", "messages": ASK, "tools": TOOLS}
        message = send(f"{url}/v1/chat/completions", body)[2]["choices"][0]["message"]
        [call] = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": HITS}
        messages = [*ASK, message, result]
        return cls(file["id"], container["id"], response["id"], conversation["id"], messages)

    def check(self, url: str, upstream: ScriptedUpstream) -> None:
        """All of it is there, and nothing besides."""
        assert files(url) == ["kept.csv"]
        assert fetch(f"{url}/v1/files/{self.file}/content")[2] == CSV
        [listed] = send(f"{url}/v1/containers/{self.container}/files")[2]["data"]
        assert listed["bytes"] == len(CSV)
        response = send(f"{url}/v1/responses/{self.response}")[2]
        assert response["status"] == "completed"
        items = send(f"{url}/v1/conversations/{self.conversation}/items")[2]["data"]
        assert [item["content"][0]["text"] for item in items] == ["kept"]
        asked = len(upstream.requests)
        body = {"model": "m", "messages": self.messages, "tools": TOOLS}
        [call] = send(f"{url}/v1/chat/completions", body)[2]["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "book"
        assert len(upstream.requests) == asked, "the program resumes without the model"


def begun_json(url: str, path: str, body: Any) -> socket.socket:
    return connect(url, post_bytes(path, body))


def mid_turn(url: str, kept: Kept, upstream: ScriptedUpstream) -> Iterator[str]:
    upstream.reply(SILENT)
    seen = len(upstream.exchanges)
    with begun_json(url, "/v1/chat/completions", {"model": "m", "messages": ASK, "tools": TOOLS}):
        # Not the last one: the check at the start may arrive after this request.
        wait_until(lambda: any(exchange.sent > 0 for exchange in upstream.exchanges[seen:]))
        yield ""


def mid_stream(url: str, kept: Kept, upstream: ScriptedUpstream) -> Iterator[str]:
    upstream.reply(SILENT)
    body = {"model": "m", "input": "Hi", "stream": True}
    with begun_json(url, "/v1/responses", body) as connection:
        read = read_until(connection, b"Hello there").decode()
        yield "/v1/responses/" + read.partition('"id":"')[2].partition('"')[0]


def mid_cell(url: str, kept: Kept, upstream: ScriptedUpstream) -> Iterator[str]:
    code = (
        "import time\nopen('half.csv', 'w').write('x')\nprint('began', flush=True)\ntime.sleep(60)"
    )
    path = f"/v1/containers/{kept.container}/execute"
    with begun_json(url, path, {"code": code, "stream": True}) as connection:
        read_until(connection, b"began")
        yield ""


def mid_upload(url: str, kept: Kept, upstream: ScriptedUpstream) -> Iterator[str]:
    body, headers = form({"purpose": "user_data"}, ("half.csv", b"x" * 2**20))
    headers |= {"content-length": str(len(body))}
    with connect(url, post_bytes("/v1/files", body[: 2**19], headers)):
        wait_until(lambda: "emulator_open_requests 1.0" in read_page(f"{url}/metrics"))
        yield ""


@needs_bubblewrap
@pytest.mark.parametrize("moment", [mid_turn, mid_stream, mid_cell, mid_upload])
def test_a_killed_proxy_loses_no_stored_object_and_shows_no_partial_one(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path, moment: Any
) -> None:
    with start() as (process, url):
        kept = Kept.made(url, upstream)
        with contextmanager(moment)(url, kept, upstream) as half:
            process.kill()
    with start() as (_, url):
        kept.check(url, upstream)
        if half:
            assert send(f"{url}{half}")[0] == 404
        contents = list((tmp_path / "files").glob("contents-*/*"))
        assert sorted(place.stat().st_size for place in contents) == [len(CSV)] * 2
        code = {"code": "import os; print(sorted(os.listdir()))"}
        ran = send(f"{url}/v1/containers/{kept.container}/execute", code)[2]
        assert ran["stdout"] == "['kept.csv']\n"


def check_mounts(unshare: Sequence[str], folder: Path) -> None:
    probe = [*unshare, "mount", "-t", "tmpfs", "none", str(folder)]
    if shutil.which("unshare") is None or subprocess.run(probe, check=False).returncode:
        pytest.skip("no file system can be mounted here")


def on_a_disk(folder: Path, options: str) -> tuple[str, ...]:
    """The command of a proxy that sees a file system of its own at ``folder``."""
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    check_mounts(unshare, folder)
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    return (*unshare, "sh", "-c", script, str(folder), sys.executable, "app.py")


def test_a_full_disk_refuses_new_objects_and_serves_existing_ones(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.default = "Hello."
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ("--database", str(disk / "s.sqlite"), "--files-dir", str(disk / "files"))
    command = on_a_disk(disk, "size=5m")
    with proxy(upstream.base_url, tmp_path / "log", *options, command=command) as (_, url):
        chat = f"{url}/v1/chat/completions", {"model": "m", "messages": ASK, "tools": TOOLS}
        asked = f"{url}/v1/responses", {"model": "m", "input": "Hi"}
        status, first = upload(url, "first", b"x" * 2**19)
        container = send(f"{url}/v1/containers", {"name": "c", "file_ids": [first["id"]]})[2]
        before = send(*asked)[2]
        filled = [upload(url, "more", b"x" * 2**19) for _ in range(12)]
        assert {status for status, _ in filled} == {200, 507}
        small = [upload(url, "small", b"x" * 2**12) for _ in range(700)]
        assert {status for status, _ in small} == {200, 507}
        # Not even the form's temporary file has space: werkzeug's OSError was a 500.
        # What still fits into a buffer failed once more when the buffer was closed: a 400, "internal error".
        for size in (1, 2**10, 5000, 2**13, 2**16, 2**20):
            status, answer = upload(url, "large", b"x" * size)
            assert (status, answer["error"]["message"][:9]) == (507, "The proxy")
        assert small[-1][1]["error"]["message"].startswith("The proxy")
        # What needs no disk goes on, and what needs one says so.
        for _ in range(3):
            assert send(*chat)[0] == 200
            assert send(*asked)[0] == 200
        assert fetch(f"{url}/v1/files/{first['id']}/content")[2] == b"x" * 2**19
        assert send(f"{url}/v1/responses/{before['id']}")[0] == 200
        assert send(f"{url}/v1/containers/{container['id']}/files")[0] == 200
        # With room again, all is as before.
        for status, file in filled:
            if status == 200:
                assert send(f"{url}/v1/files/{file['id']}", method="DELETE")[0] == 200
        assert upload(url, "again", CSV)[0] == 200
        assert send(f"{url}/v1/containers/{container['id']}", method="DELETE")[0] == 200
        after = send(*asked)[2]
        assert send(f"{url}/v1/responses/{after['id']}")[0] == 200


@needs_bubblewrap
def test_an_interpreter_that_was_named_by_a_relative_path_has_its_sandbox(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """``../venv/bin/python app.py`` asked bubblewrap for folders that the sandbox does not have."""
    folder, environment = tmp_path / "folder", tmp_path / "environment"
    folder.mkdir()
    environment.symlink_to(sys.prefix)
    start = f'cd {folder} && exec ../environment/bin/{Path(sys.executable).name} "$0" "$@"'
    command = ("sh", "-c", start, str(Path("app.py").resolve()))
    with proxy(upstream.base_url, tmp_path / "log", command=command) as (_, url):
        container = send(f"{url}/v1/containers", {"name": "c"})[2]["id"]
        status, _, ran = send(f"{url}/v1/containers/{container}/execute", {"code": "print(6 * 7)"})
        assert (status, ran.get("stdout")) == (200, "42\n"), ran


def test_a_read_only_disk_ends_storage_but_not_the_service(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For this run all data is in memory and in the system's temporary folder."""
    upstream.default = "Hello."
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    command = on_a_disk(disk, "ro")
    with proxy(upstream.base_url, tmp_path / "log", command=command) as (process, url):
        body = {"model": "m", "messages": ASK, "tools": TOOLS}
        assert send(f"{url}/v1/chat/completions", body)[0] == 200
        response = send(f"{url}/v1/responses", {"model": "m", "input": "Hi"})
        assert response[0] == 200
        assert send(f"{url}/v1/responses/{response[2]['id']}")[0] == 200
        assert upload(url, "f.csv", CSV)[0] == 200
        assert "nothing is stored: the state folder cannot be used" in process.output


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_postgresql_whose_disk_is_full_refuses_what_needs_it_and_recovers(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    check_mounts(["unshare", "--mount"], tmp_path)  # its server needs a user of the host
    upstream.default = "Hello."
    asked = {"model": "m", "input": "Hi"}
    limits = ("--requests-per-minute", "1000")
    with postgres(SmallPostgres) as server:
        place = server.database()
        options = ("--database", place, "--files-dir", str(tmp_path / "files"), *limits)
        with (
            psycopg.connect(place, autocommit=True) as other,
            proxy(upstream.base_url, tmp_path / "log", *options) as (_, url),
        ):
            first = send(f"{url}/v1/responses", asked)[2]["id"]
            file = upload(url, "first", CSV)[1]["id"]
            other.execute("CREATE TABLE junk (data TEXT)")
            more = "INSERT INTO junk SELECT repeat(md5(random()::text), 60) FROM generate_series(1, {})"
            for rows in (1000, 100, 10, 1):
                with pytest.raises(psycopg.errors.DiskFull):
                    while True:
                        other.execute(more.format(rows).encode())
            chat = {"model": "m", "messages": ASK, "tools": TOOLS}
            big = {**asked, "input": os.urandom(200_000).hex()}
            for _ in range(2):
                assert send(f"{url}/v1/chat/completions", chat)[0] == 200
                answered = send(f"{url}/v1/responses", big)[2]
                assert (answered["status"], answered["store"]) == ("completed", False)
            assert send(f"{url}/v1/responses/{first}")[0] == 200
            assert fetch(f"{url}/v1/files/{file}/content")[2] == CSV
            assert send(f"{url}/v1/responses", {**big, "background": True})[0] == 503
            items = [{"role": "user", "content": big["input"]}]
            status, _, answer = send(f"{url}/v1/conversations", {"items": items})
            assert (status, "DiskFull" in answer["error"]["message"]) == (507, True)
            other.execute("DROP TABLE junk")
            again = send(f"{url}/v1/responses", big)[2]
            assert again["store"] is True
            assert send(f"{url}/v1/responses/{again['id']}")[0] == 200


def test_the_proxy_survives_a_postgresql_that_stops_and_restarts(
    upstream: ScriptedUpstream, postgres_server: Postgres, tmp_path: Path
) -> None:
    upstream.default = "Hello."
    options = ("--requests-per-minute", "1000", "--database", postgres_server.database())
    files = ("--files-dir", str(tmp_path / "files"))
    try:
        with proxy(upstream.base_url, tmp_path / "log", *options, *files) as (_, url):
            chat = f"{url}/v1/chat/completions", {"model": "m", "messages": ASK, "tools": TOOLS}
            asked = f"{url}/v1/responses", {"model": "m", "input": "Hi"}
            first = send(*asked)[2]["id"]
            assert send(f"{url}/v1/responses/{first}")[0] == 200
            postgres_server.stop()
            assert send(*chat)[0] == 200
            answered = send(*asked)
            assert answered[0] == 200 and "x-ratelimit-limit-requests" in answered[1]
            kinds = answered[1]["x-emulator-notes"].split(", ")
            assert {"limit-open", "not-stored"} <= {*kinds}
            assert "emulator_limits_alone_total 0.0" not in read_page(f"{url}/metrics")
            status, _, gone = send(f"{url}/v1/responses/{first}")
            assert (status, set(gone["error"])) == (503, {"message", "type", "param", "code"})
            postgres_server.start()

            def kept_again() -> bool:
                time.sleep(0.5)
                key = send(*asked)[2]["id"]
                return send(f"{url}/v1/responses/{key}")[0] == 200

            wait_until(kept_again)
    finally:
        postgres_server.start()


def test_a_proxy_whose_database_is_locked_does_not_start_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stored nothing for the whole run, because a backup had the lock for a second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "tool-use-api-emulator" / "emulator.sqlite"
    with closing(open_database(str(file))), writing(file):
        process = Process([*NEW_PROCESS, "--port", str(free_port())], tmp_path / "log")
        assert process.exit_code() == 1
    assert "the proxy cannot start: the setting database: database is locked" in process.output


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """What a backup does, from another process."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize(
    "outage", [*OUTAGES, None], ids=lambda outage: getattr(outage, "__name__", "sqlite")
)
def test_each_request_ends_while_the_database_does_not_answer_and_all_succeed_later(
    upstream: ScriptedUpstream, postgres_server: Postgres, tmp_path: Path, outage: Any
) -> None:
    """A locked table or a stopped server let every request hang for as long as it lasted."""
    upstream.default = "Hello."
    place = postgres_server.database() if outage else str(tmp_path / "d.sqlite")
    options = ("--database", place, "--client-requests-per-minute", "10000")
    with ExitStack() as opened:
        _, url = opened.enter_context(proxy(upstream.base_url, tmp_path / "log", *options))
        opened.callback(postgres_server.start)
        stored = send(f"{url}/v1/responses", {"model": "m", "input": "Hi"})[2]["id"]
        talk = send(f"{url}/v1/conversations", {})[2]["id"]
        item = {"type": "message", "role": "user", "content": "Hi"}
        requests: dict[str, Any] = {
            "/v1/chat/completions": {"model": "m", "messages": ASK, "tools": TOOLS},
            "/v1/responses": {"model": "m", "input": "Hi"},
            f"/v1/responses/{stored}": None,
            f"/v1/conversations/{talk}/items": {"items": [item]},
            "/v1/containers": {"name": "c"},
        }

        def ask(request: tuple[str, Any]) -> tuple[int, Any, Any]:
            return send(f"{url}{request[0]}", request[1])

        during = outage(postgres_server, place) if outage else writing(tmp_path / "d.sqlite")
        with during, ThreadPoolExecutor(20) as clients:
            for status, headers, answer in clients.map(ask, [*requests.items()] * 8):
                assert status in (200, 503), answer
                assert status == 200 or headers["retry-after"] == "1"
        for request in requests.items():
            wait_until(lambda request=request: ask(request)[0] == 200)


@needs_bubblewrap
def test_thirty_concurrent_containers_each_have_their_own_variables(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """More containers than kernels: without a free one a request gets a 503, and succeeds later."""
    options = ("--max-kernels", "12", "--interpreter-idle-seconds", "0", "--database", ":memory:")
    with proxy(upstream.base_url, tmp_path / "log", *options) as (_, url):

        def execute(path: str, code: str) -> Any:
            while True:
                status, headers, answer = send(f"{url}{path}", {"code": code})
                if status == 200:
                    return answer
                assert (status, answer["error"]["code"]) == (503, "overloaded"), answer
                time.sleep(float(headers["retry-after"]))

        def use(number: int) -> str:
            made = send(f"{url}/v1/containers", {"name": f"c{number}"})[2]
            path = f"/v1/containers/{made['id']}/execute"
            execute(path, f"mine = {number}\nopen('mine', 'w').write('{number}')")
            ran = execute(path, "print(open('mine').read(), globals().get('mine', 'gone'))")
            assert send(f"{url}/v1/containers/{made['id']}", method="DELETE")[0] == 200
            return str(ran["stdout"])

        with ThreadPoolExecutor(30) as clients:
            printed = list(clients.map(use, range(30)))
        for number, said in enumerate(printed):
            assert said in (f"{number} {number}\n", f"{number} gone\n")
