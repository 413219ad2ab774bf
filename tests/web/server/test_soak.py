"""Mixed requests, over and over: the proxy's memory stays flat, and nothing is left open.

A server process of its own. `make soak` makes 2,000 uses of it after a warm-up, the ordinary suite fewer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.processes import proxy, wait_until
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER
from tests.support.uploads import CSV, form, sdk

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "200"))
WARM_UP = 200
"""Requests before the first look: caches fill, allocators grow, threads start."""
GROWTH = 24 * 2**20
"""Bytes of resident memory that any number of requests may add."""
ASK = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "m", "messages": ASK}
TOOLS: dict[str, Any] = {**CHAT, "tools": [GET_WEATHER]}
LONG = {"model": "m", "messages": [{"role": "user", "content": "x" * 200_000}]}


def reply(body: Any) -> str | Reply:
    """By what the last message says: a call, a broken program, long prose."""
    last = str(body["messages"][-1]["content"])
    if "def get_weather" in str(body["messages"][0]["content"]):
        return "```python\nget_weather('Oslo')\n```" if len(last) % 2 else "```python\nget_(\n```"
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


def resident(master: int) -> int:
    [worker] = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_mixed_requests_leave_memory_flat(tmp_path: Path) -> None:
    options = ("--store", str(tmp_path / "s.sqlite"), "--engines", "monty", "--log-level", "error")
    with (
        ScriptedUpstream(default=reply) as upstream,
        proxy(upstream.base_url, tmp_path / "log", *options) as (process, url),
        ThreadPoolExecutor(4) as clients,
    ):

        def use(count: int) -> None:
            list(clients.map(lambda number: USES[number % len(USES)](url), range(count)))
            upstream.exchanges.clear()

        use(WARM_UP)
        before = resident(process.group)
        use(REQUESTS)
        grown = resident(process.group) - before
        sys.stdout.write(f"{REQUESTS} uses, {grown / 2**20:+.1f} MiB\n")
        assert grown < GROWTH
        wait_until(lambda: b"emulator_open_requests 0.0" in urlopen(f"{url}/metrics").read())
