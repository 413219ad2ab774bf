"""Mixed requests, over and over, and one in three clients leaves: the proxy's memory stays flat, and no
thread, descriptor, kernel or upstream connection remains.

A server process of its own. `make soak` makes 2,000 uses of it after a warm-up, the ordinary suite fewer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from tests.support.processes import proxy, wait_until
from tests.support.raw_http import connect, post_bytes, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER
from tests.support.uploads import CSV, form, sdk

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "200"))
WARM_UP = 600
"""Requests before the first look: caches fill, allocators grow, threads start."""
GROWTH = 40 * 2**20
"""Bytes of resident memory that requests may add: 2,000 added 26 MiB, 6,000 added 33."""
ASK = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "m", "messages": ASK}
TOOLS: dict[str, Any] = {**CHAT, "tools": [GET_WEATHER]}
LONG = {"model": "m", "messages": [{"role": "user", "content": "x" * 200_000}]}


def reply(body: Any) -> str | Reply:
    """By the last message: a call, a broken program, long prose, a long silence, an endless program."""
    last = str(body["messages"][-1]["content"])
    if last == "late":
        return Reply("late", first_delay=2)
    if last == "silent":
        return Reply("word " * 50, chunks=5, fault="silent", after=2)
    if last == "kernel":
        return "```tool_code\nclass A(dict): pass\nwhile True: get_weather(location=str(A()))\n```"
    if "def get_weather" in str(body["messages"][0]["content"]):
        return (
            "```tool_code\nget_weather('Oslo')\n```"
            if len(last) % 2
            else "```tool_code\nget_(\n```"
        )
    return Reply(chunks=["word " * 50] * 4)


def file_and_container(url: str) -> None:
    body, headers = form({"purpose": "user_data"}, ("f.csv", CSV * 1000))
    file = send(f"{url}/v1/files", body, headers)[2]
    made = send(f"{url}/v1/containers", {"name": "c", "file_ids": [file["id"]]})[2]
    send(f"{url}/v1/containers/{made['id']}/files")
    send(f"{url}/v1/containers/{made['id']}", method="DELETE")
    send(f"{url}/v1/files/{file['id']}", method="DELETE")


def kept_response(url: str) -> None:
    made = send(f"{url}/v1/responses", {"model": "m", "input": "Hi"})[2]
    send(f"{url}/v1/responses/{made['id']}")
    send(f"{url}/v1/responses/{made['id']}", method="DELETE")


def streams(url: str) -> None:
    with sdk(url) as client:
        for _ in client.chat.completions.create(**TOOLS, stream=True):
            pass
        with client.chat.completions.create(**CHAT, stream=True) as left:
            next(iter(left))


USES: tuple[Callable[[str], object], ...] = (
    lambda url: send(f"{url}/v1/chat/completions", CHAT),
    lambda url: send(f"{url}/v1/chat/completions", TOOLS),
    lambda url: send(f"{url}/v1/chat/completions", LONG),
    lambda url: send(f"{url}/v1/messages", {**CHAT, "max_tokens": 9}),
    lambda url: send(f"{url}/v1/chat/completions", b"{"),
    lambda url: send(f"{url}/v1/files/file-none"),
    lambda url: send(f"{url}/v1/conversations", {"metadata": {"a": "b"}}),
    file_and_container,
    kept_response,
    streams,
)  # fmt: skip


def leave(url: str, number: int) -> None:
    """Ask, plain or streamed, before or after the upstream's head, or for a kernel, and leave."""
    said = "kernel" if number % 60 == 0 else ("late", "silent")[number // 3 % 2]
    path = ("chat/completions", "responses", "messages")[number // 6 % 3]
    stream = number // 18 % 2 == 0
    asked: dict[str, Any] = {"model": "m", "max_tokens": 99, "stream": stream}
    if said == "kernel":
        path, asked = "chat/completions", {**asked, "tools": [GET_WEATHER]}
    if path == "responses":
        asked = {"model": "m", "stream": stream, "input": said}
    else:
        asked["messages"] = [{"role": "user", "content": said}]
    with connect(url, post_bytes(f"/v1/{path}", asked)) as connection:
        if stream and said == "silent":
            read_until(connection, b"word")
        else:
            time.sleep(0.05)


@dataclass(frozen=True)
class Footprint:
    """What a worker process holds."""

    threads: int
    descriptors: int
    kernels: int
    upstream_connections: int

    @classmethod
    def of(cls, worker: psutil.Process, upstream: ScriptedUpstream) -> Footprint:
        port = int(upstream.base_url.split(":")[2].split("/")[0])
        return cls(
            worker.num_threads(),
            worker.num_fds(),
            sum("ipykernel" in " ".join(child.cmdline()) for child in worker.children(True)),
            sum(bool(one.raddr) and one.raddr.port == port for one in worker.net_connections()),
        )

    def is_at_most(self, other: Footprint) -> bool:
        """No more than ``other``, but for idle threads and connections that wait for the next request."""
        return (
            self.threads <= other.threads + 16
            and self.descriptors <= other.descriptors + 32
            and self.kernels == 0
            and self.upstream_connections <= other.upstream_connections + 8
        )


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_thousand_mixed_requests_leave_no_resources(tmp_path: Path) -> None:
    options = ("--database", str(tmp_path / "s.sqlite"), "--log-level", "error")
    with (
        ScriptedUpstream(default=reply) as upstream,
        proxy(upstream.base_url, tmp_path / "log", *options) as (process, url),
        ThreadPoolExecutor(4) as clients,
    ):
        [worker] = psutil.Process(process.group).children()

        def use(number: int) -> None:
            if number % 3 == 0:
                leave(url, number)
            else:
                USES[number % len(USES)](url)

        def use_all(count: int) -> None:
            list(clients.map(use, range(count)))
            upstream.exchanges.clear()
            idle = b"emulator_open_requests 0.0"
            wait_until(lambda: idle in urlopen(f"{url}/metrics").read())

        use_all(WARM_UP)
        memory, before = worker.memory_info().rss, Footprint.of(worker, upstream)
        use_all(REQUESTS)
        grown = worker.memory_info().rss - memory
        sys.stdout.write(f"{REQUESTS} uses, {grown / 2**20:+.1f} MiB\n{before}\n")
        with suppress(AssertionError):  # the comparison below says what remains
            wait_until(lambda: Footprint.of(worker, upstream).is_at_most(before))
        after = Footprint.of(worker, upstream)
        sys.stdout.write(f"{after}\n")
        assert after.is_at_most(before), (before, after)
        assert grown < GROWTH
