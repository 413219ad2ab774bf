"""The real server process: many open streams, prompt frames, a clean end."""

from __future__ import annotations

import re
import resource
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.places import needs_bubblewrap
from tests.support.processes import NEW_PROCESS, members, proxy, wait_until
from tests.support.programs import INTERPRETER
from tests.support.raw_http import connect, post_bytes, read_page, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

STREAMS = 320

# The proxy, with this many descriptors in use from the start on, of those that it, and its user, may have.
HOLDING = """
import os, resource, runpy, sys
held, own, most = (int(sys.argv.pop(1)) for _ in range(3))
resource.setrlimit(resource.RLIMIT_NOFILE, (own, most))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(held)]
sys.argv[0] = "app.py"
runpy.run_path("app.py", run_name="__main__")
"""


def holding(descriptors: int, most: int, own: int | None = None) -> tuple[str, ...]:
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < most:
        pytest.skip("this user may not open so many")
    return (sys.executable, "-c", HOLDING, str(descriptors), str(own or most), str(most))


def test_three_hundred_streams_stay_open_at_the_same_time(tmp_path: Path) -> None:
    """Each has its first words while all others are still open: none waits for a thread.

    Each takes two descriptors, of which many systems give a process fewer than its user may have. Nor does
    any wait for the collector of cycles, which in a full round looks at all objects while no thread runs.
    """
    command = holding(0, own=STREAMS, most=4 * STREAMS)
    reply = Reply(chunks=["Hello there", "x"], fault="silent", after=1)
    with (
        ScriptedUpstream(default=reply) as upstream,
        proxy(upstream.base_url, tmp_path / "log", "--database", ":memory:", command=command) as (
            process,
            url,
        ),
    ):
        process.wait_for("Try:")  # after it everything is ready
        before = collections(url)
        body = {
            "model": "m",
            "stream": True,
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [GET_WEATHER],
        }
        connections = [connect(url) for _ in range(STREAMS)]
        try:
            for connection in connections:
                connection.sendall(post_bytes("/v1/chat/completions", body))
            for connection in connections:
                assert b"Hello there" in read_until(connection, b"Hello there")
            assert collections(url) == before
        finally:
            for connection in connections:
                connection.close()


def collections(url: str) -> int:
    """How often Python has collected among all objects."""
    text = read_page(f"{url}/metrics")
    counted = dict(re.findall(r'python_gc_collections_total{generation="(\d)"} (\d+)', text))
    return int(counted["2"])


def test_a_terminated_server_leaves_no_process_behind(tmp_path: Path) -> None:
    options = ("--sandbox", "none")
    with (
        ScriptedUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", *options) as (process, url),
    ):
        group = process.group
        upstream.reply("```tool_code\nx = [get_weather(location=city) for city in 'ab']\n```")
        asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        send(f"{url}/v1/chat/completions", {**asked, "tools": [GET_WEATHER]})
        upstream.reply("```tool_code\nx = 1\n```", "Done.")
        send(f"{url}/v1/chat/completions", {**asked, "tools": [INTERPRETER]})
        for kind in ("ipykernel", "sandbox.programs"):
            process.wait_until(lambda kind=kind: any(kind in each for _, each in below(group)))
        started = {one for one, _ in below(group)}
        process.kill(signal.SIGTERM)
        wait_until(lambda: not members(group) and not started & running())


def below(process: int) -> list[tuple[int, str]]:
    """The processes that it has started, and those that these have: their ids and command lines."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, task.read_text().split()):
                command = Path(f"/proc/{child}/cmdline").read_text(errors="replace")
                found += [(child, command), *below(child)]
    return found


def running() -> set[int]:
    """The processes whose program may be seen; zombies have none."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/exe"):
        with suppress(OSError):  # of others: PermissionError, in some Pythons also from `exists`
            entry.readlink()
            found.add(int(entry.parent.name))
    return found


def test_the_master_imports_nothing_that_only_its_worker_needs(tmp_path: Path) -> None:
    """It took as much memory as a worker, and shared little of it."""
    with (
        ScriptedUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", command=NEW_PROCESS) as (process, url),
    ):
        assert url
        [worker] = Path(f"/proc/{process.group}/task/{process.group}/children").read_text().split()
        master, worker = (
            Path(f"/proc/{each}/maps").read_text() for each in (process.group, worker)
        )
    assert ("jsonschema_rs" in master, "jsonschema_rs" in worker) == (False, True)


@needs_bubblewrap
def test_a_server_with_more_than_1024_descriptors_still_starts_kernels(tmp_path: Path) -> None:
    """Whatever it opens from there on has a number that select(2) refuses."""
    command = holding(1100, most=4096)
    with (
        ScriptedUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", command=command) as (_, url),
    ):
        _, _, made = send(f"{url}/v1/containers", {"name": "c"})
        ran = send(f"{url}/v1/containers/{made['id']}/execute", {"code": "print(6 * 7)"})
        assert (ran[0], ran[2]["stdout"]) == (200, "42\n")


def test_connections_beyond_the_limit_of_descriptors_do_not_end_the_server(tmp_path: Path) -> None:
    """Those whose request has not come give way; gunicorn's worker would die, and all streams with it."""
    command = holding(180, most=256)
    with (
        ScriptedUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", command=command) as (process, url),
        ExitStack() as opened,
    ):
        host, port = url.removeprefix("http://").split(":")
        for _ in range(120):
            half = opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
            half.sendall(b"GET / HTTP")
        assert send(f"{url}/healthz")[0] == 200
        assert "Exception in worker" not in process.output


def test_requests_beyond_the_limit_of_descriptors_wait_and_those_that_came_are_answered(
    tmp_path: Path,
) -> None:
    """Each needs a second descriptor, for its upstream: without one it was a 500, and then a circuit breaker
    opened for an upstream that had done nothing."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    request = post_bytes("/v1/chat/completions", body)
    with (
        ScriptedUpstream(default=Reply("Hello.", first_delay=0.3)) as upstream,
        proxy(upstream.base_url, tmp_path / "log", command=holding(0, most=64)) as (process, url),
        ExitStack() as opened,
    ):
        process.wait_for("Try:")
        connections = [opened.enter_context(connect(url)) for _ in range(80)]
        for connection in connections:  # all bodies are late
            connection.sendall(request[:-1])
        time.sleep(0.5)
        for connection in connections:
            connection.sendall(request[-1:])
        for connection in connections:
            answer = read_until(connection, b"Hello.")
            assert answer.startswith(b"HTTP/1.1 200"), answer
        assert "Too many open files" not in process.output


CHUNKED = b"transfer-encoding: chunked\r\n"
BROKEN_BODIES = {
    "a chunk size that is no number": (CHUNKED, b"ZZ\r\n"),
    "a chunk size that is negative": (CHUNKED, b"-1\r\n"),
    "a chunk size without an end": (CHUNKED, b"1" * 100_000),
    "a chunk that is longer than declared": (CHUNKED, b"1\r\n{}}}}\r\n0\r\n\r\n"),
    "a trailer that is none": (CHUNKED, b"2\r\n{}\r\n0\r\n\x00\xff: \r\n\r\n"),
    "chunks that stop": (CHUNKED, b"5\r\n{"),
    "less than its length": (b"content-length: 50\r\n", b"{"),
}


def test_a_body_that_cannot_be_read_is_the_clients_fault(tmp_path: Path) -> None:
    """It was a 500: what gunicorn raises while a body is read looked like an error of ours."""
    with (
        ScriptedUpstream(default="Hello.") as upstream,
        proxy(upstream.base_url, tmp_path / "log", "--client-seconds", "1") as (process, url),
    ):
        for path, kind in (
            ("/v1/chat/completions", "application/json"),
            ("/v1/files", "multipart/form-data; boundary=B"),
            ("/v1/embeddings", "application/json"),
        ):
            for what, (headers, body) in BROKEN_BODIES.items():
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
                with connect(url, head.encode() + headers + b"\r\n" + body) as connection:
                    answer = connection.recv(65536)
                # Whoever sends no more may find the connection closed.
                assert answer[9:12] in (b"400", b"408", b""), (path, what, answer)
        assert "request failed" not in process.output
