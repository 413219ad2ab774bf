"""What a second worker brings: requests a second and CPU a request with 1 and with 2 workers, interleaved.

python -m benchmarks.workers [--seconds 10] [--rounds 3] [--connections 16]

The upstream answers with fixed bytes, the clients send fixed bytes over connections that stay open, both are
processes of their own, and share the machine with the proxy. So the ratio of the rates is a lower bound
where there are no cores to spare; CPU a request says what the proxy itself takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import proxy
from tests.support.tools import GET_WEATHER
from tests.support.workers import Workers

REPLY = '```python\nget_weather(location="Oslo")\n```'
_TICKS = os.sysconf("SC_CLK_TCK")


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"


_BODY = _event({"role": "assistant", "content": REPLY}) + _event({}, "stop") + b"data: [DONE]\n\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
            writer.write(_ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _upstream(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_serve, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


def _client(port: int, connections: int, until: float) -> int:
    """How many answers came until then."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [GET_WEATHER]}
    ).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (port, len(body), body)
    )

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = 0
        while time.time() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            lines = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            await reader.readexactly(int(lines[0].partition(b":")[2]))
            answers += 1
        writer.close()
        return answers

    async def run() -> int:
        return sum(await asyncio.gather(*(one() for _ in range(connections))))

    return asyncio.run(run())


@contextmanager
def _running_upstream() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    process = multiprocessing.get_context("fork").Process(target=_upstream, args=(listener,))
    process.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        process.kill()
        process.join()


def _cpu(master: int) -> float:
    """CPU seconds of a proxy's processes so far."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    spent = 0.0
    for pid in (str(master), *children):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / _TICKS
    return spent


def measure(base_url: str, workers: int, seconds: float, connections: int) -> tuple[float, float]:
    """Requests a second, and milliseconds of CPU a request."""
    with (
        tempfile.TemporaryDirectory() as folder,
        proxy(
            base_url,
            Path(folder) / "log",
            *("--workers", str(workers), "--store", f"{folder}/store", "--log-level", "error"),
        ) as (process, url),
    ):
        port = int(url.rpartition(":")[2])
        each = Workers(process, url)
        process.wait_until(lambda: workers == 1 or each.are(workers))
        for pid in each.pids():
            with each.only(pid):  # it imports, and makes what it makes once
                _client(port, connections, time.time() + 1)
        before, began = _cpu(process.group), time.time()
        answers = _client(port, connections, began + seconds)
        passed = time.time() - began
        return answers / passed, 1000 * (_cpu(process.group) - before) / answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    ratios = []
    with _running_upstream() as base_url:
        for _ in range(options.rounds):
            one = measure(base_url, 1, options.seconds, options.connections)
            two = measure(base_url, 2, options.seconds, options.connections)
            ratios.append(two[0] / one[0])
            for workers, (rate, cpu) in ((1, one), (2, two)):
                print(f"{workers} worker(s): {rate:7.1f} requests/s, {cpu:.2f} ms of CPU a request")
    load = os.getloadavg()[0]
    print(f"2 workers / 1: {statistics.median(ratios):.2f} times the requests (load {load:.0f})")


if __name__ == "__main__":
    main()
