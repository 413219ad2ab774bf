"""The real server process: many open streams, prompt frames, a clean end."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

from tests.support.processes import proxy
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

STREAMS = 320


def request(host: str, body: Any) -> bytes:
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


def read_until(connection: socket.socket, words: bytes) -> bytes:
    read = b""
    while words not in read:
        data = connection.recv(65536)
        assert data, read
        read += data
    return read


def test_three_hundred_streams_are_held_open_at_the_same_time(tmp_path: Path) -> None:
    """Each has its first words while all others are still open: none waits for a thread."""
    reply = Reply(chunks=["Hello there", "x"], fault="silent", after=1)
    with (
        ScriptedUpstream(default=reply) as upstream,
        proxy(upstream.base_url, tmp_path / "log", "--store", ":memory:") as (_, url),
    ):
        host = url.removeprefix("http://")
        address = (host.split(":")[0], int(host.split(":")[1]))
        body = {
            "model": "m",
            "stream": True,
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [GET_WEATHER],
        }
        connections = [socket.create_connection(address, timeout=60) for _ in range(STREAMS)]
        try:
            for connection in connections:
                connection.sendall(request(host, body))
            for connection in connections:
                assert b"Hello there" in read_until(connection, b"Hello there")
        finally:
            for connection in connections:
                connection.close()


def test_a_terminated_server_leaves_no_process_behind(tmp_path: Path) -> None:
    with (
        ScriptedUpstream() as upstream,
        proxy(upstream.base_url, tmp_path / "log", "--warm-kernels", "1") as (process, url),
    ):
        assert url
        group = process.group
        assert len(members(group)) > 1
        process.kill(signal.SIGTERM)
        process.wait_until_gone(lambda: not members(group))


def members(group: int) -> list[int]:
    """The processes of a process session, by the kernel's own table (proc(5), stat, field 6)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found
