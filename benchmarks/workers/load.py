"""The upstream, which always writes the same call, and the clients, which always send the same request.

wrk and nginx if they are installed: they use little of the CPU that they share with the proxy. Otherwise
both are written in Python, and their own CPU makes the ratio of two workers to one a lower bound.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import free_port
from tests.support.tools import GET_WEATHER

REPLY = '```python\nget_weather(location="Oslo")\n```'
BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [GET_WEATHER]}
)
WRK = shutil.which("wrk")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def light() -> bool:
    """Return True if wrk and nginx are installed."""
    return WRK is not None and NGINX is not None


def name() -> str:
    """The names of both programs, for a table."""
    return "wrk and nginx" if light() else "Python clients and a Python upstream"


@dataclass(frozen=True)
class Upstream:
    base_url: str
    pid: int


@dataclass(frozen=True)
class LoadResult:
    answers: int
    cpu: float
    """Seconds that the clients have used."""


def upstream() -> AbstractContextManager[Upstream]:
    """While it runs."""
    return _nginx() if light() else _python_upstream()


def ask(port: int, connections: int, seconds: float) -> LoadResult:
    """The answers received on ``connections`` connections within ``seconds``."""
    return _wrk(port, connections, seconds) if light() else _python(port, connections, seconds)


def _event(delta: dict[str, str], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"


_EVENTS = _event({"role": "assistant", "content": REPLY}) + _event({}, "stop") + "data: [DONE]\n\n"
_NGINX = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/log crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        default_type text/event-stream;
        location / {{ return 200 "{reply}"; }}
    }}
}}
"""
_SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = [==[{body}]==]
function done(summary)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format("\\nanswers %d failed %d\\n", summary.requests, failed))
end
"""


@contextmanager
def _nginx() -> Iterator[Upstream]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        reply = _EVENTS.replace("\\", "\\\\").replace('"', '\\"')
        settings = Path(folder, "nginx.conf")
        settings.write_text(_NGINX.format(folder=folder, port=port, reply=reply))
        command = [str(NGINX), "-p", folder, "-e", f"{folder}/log", "-c", str(settings)]
        with subprocess.Popen(command) as process:
            try:
                _wait(port, process)
                yield Upstream(f"http://127.0.0.1:{port}/v1", process.pid)
            finally:
                process.terminate()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until somebody listens. Raises RuntimeError if the process has ended."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("nginx does not start")


def _wrk(port: int, connections: int, seconds: float) -> LoadResult:
    before = _of_children()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT.format(body=BODY))
        script.flush()
        told = subprocess.run(
            [
                str(WRK), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s",
                "-s", script.name, f"http://127.0.0.1:{port}/v1/chat/completions",
            ],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    answers, failed = map(int, told.rpartition("answers ")[2].split(" failed "))
    if failed:
        raise RuntimeError(told)
    return LoadResult(answers, _of_children() - before)


def _of_children() -> float:
    """Seconds that those used which have ended: wrk is the only one that does so meanwhile."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = _EVENTS.encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    answer = head % len(body) + body
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
            writer.write(answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _run(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_serve, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def _python_upstream() -> Iterator[Upstream]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(listener,))
    process.start()
    try:
        yield Upstream(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", process.pid or 0)
    finally:
        process.kill()
        process.join()


def _python(port: int, connections: int, seconds: float) -> LoadResult:
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}"
    ).encode()
    until = time.monotonic() + seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = 0
        while time.monotonic() < until:
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

    before = time.process_time()
    return LoadResult(asyncio.run(run()), time.process_time() - before)
