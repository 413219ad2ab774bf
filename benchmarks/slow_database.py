"""How long 32 chats at the same time take with a PostgreSQL that answers late: `make bench-slow-database`.

A relay in front of a real PostgreSQL delays every byte by half of the round trip. Printed are seconds: of one
request alone (the best of five), and of 32 together until the last has its answer (three times). Each chat
is a new conversation with a tool call, whose program is stored before the answer ends. Then: plain chats per
second of 32 clients for some seconds, without and with limits of a client.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.postgres import postgres
from tests.support.processes import proxy
from tests.support.raw_http import send
from tests.support.relay import delayed
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
AT_ONCE = 32
_SECONDS = 5.0
_LIMITS = (
    "--client-requests-per-minute 1000000",
    "--client-open-requests 1000",
    "--client-requests-per-minute 1000000 --client-open-requests 1000",
)
_FUNCTION = {"type": "function", **GET_WEATHER["function"]}
REQUESTS: dict[str, tuple[str, Any]] = {
    "a plain chat": ("chat/completions", lambda text: {"messages": _user(text)}),
    "a chat with a call": (
        "chat/completions",
        lambda text: {"messages": _user(text), "tools": [GET_WEATHER]},
    ),
    "a response with a call": ("responses", lambda text: {"input": text, "tools": [_FUNCTION]}),
}


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--milliseconds", type=float, default=50, help="of a round trip")
    delay = parser.parse_args().milliseconds / 2000
    with (
        postgres() as server,
        ScriptedUpstream(default=CALL) as upstream,
        tempfile.TemporaryDirectory() as folder,
    ):
        late = delayed(server.database(), delay)
        with proxy(upstream.base_url, Path(folder) / "log", "--database", late) as (_, url):
            print(f"without limits: {_per_second(url):.0f} plain chats per second")
            for what, (path, body) in REQUESTS.items():
                alone = min(_seconds(url, path, body, 1) for _ in range(5))
                together = [_seconds(url, path, body, AT_ONCE) for _ in range(3)]
                print(f"{what}: {alone:.3f}; {AT_ONCE}:", *(f"{one:.3f}" for one in together))
        for limits in _LIMITS:
            options = ("--database", late, *limits.split())
            with proxy(upstream.base_url, Path(folder) / "log", *options) as (_, url):
                _per_second(url)  # connections are made
                print(f"{limits}: {_per_second(url):.0f} plain chats per second")


def _per_second(url: str) -> float:
    """Plain chats of `AT_ONCE` clients for `_SECONDS`."""
    path, body = REQUESTS["a plain chat"]
    until = time.monotonic() + _SECONDS

    def ask(_: int) -> int:
        count = 0
        while time.monotonic() < until:
            status = send(f"{url}/v1/{path}", {"model": "m", **body("Hi")})[0]
            assert status == 200
            count += 1
        return count

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(ask, range(AT_ONCE))) / _SECONDS


def _seconds(url: str, path: str, body: Any, count: int) -> float:
    texts = [f"Weather in {time.monotonic_ns()}-{n}?" for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        began = time.monotonic()
        statuses = pool.map(
            lambda text: send(f"{url}/v1/{path}", {"model": "m", **body(text)})[0], texts
        )
        assert set(statuses) == {200}
        return time.monotonic() - began


if __name__ == "__main__":
    main()
