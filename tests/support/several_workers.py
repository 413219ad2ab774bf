"""A proxy of two workers, which can be asked one at a time."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import Process, proxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.workers import Workers

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
SILENT = Reply(chunks=["Hello", "x"], fault="silent", after=1)


@dataclass
class Served:
    """A proxy, and a request to one of its workers at a time."""

    process: Process
    url: str
    workers: Workers

    def ask(self, worker: int, path: str, body: Any = None, method: str | None = None) -> Any:
        with self.workers.only(worker):
            status, _, answer = send(f"{self.url}{path}", body, method=method)
        assert status == 200, answer
        return answer

    @contextmanager
    def connected(self, worker: int) -> Iterator[Callable[[str, str], Any]]:
        """Asks this worker while the others go on, over a connection that it has accepted."""
        host = self.url.removeprefix("http://")
        with closing(http.client.HTTPConnection(host, timeout=60)) as connection:

            def ask(method: str, path: str) -> Any:
                connection.request(method, path)
                return json.loads(connection.getresponse().read())

            with self.workers.only(worker):
                ask("GET", "/healthz")
            yield ask

    @contextmanager
    def stream(
        self,
        worker: int,
        until: bytes = b"Hello",
        headers: str = "accept: */*",
        body: dict[str, Any] | None = None,
    ) -> Iterator[None]:
        """A stream of this worker is open in the block, and has told as much as that."""
        host, port = self.url.removeprefix("http://").split(":")
        payload = json.dumps({**HELLO, "stream": True, **(body or {})}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n{headers}\r\n\r\n"
        )
        with ExitStack() as opened:
            with self.workers.only(worker):
                connected = socket.create_connection((host, int(port)), timeout=60)
                connection = opened.enter_context(connected)
                connection.sendall(head.encode() + payload)
                read = b""
                while until not in read:
                    data = connection.recv(65536)
                    assert data, read
                    read += data
            yield

    def looks(self, worker: int) -> tuple[int, str]:
        """The status, and the code of the error, that a request gets which no model is asked for."""
        with self.workers.only(worker):
            status, _, answer = send(f"{self.url}/v1/files")
        return status, answer.get("error", {}).get("code", "")

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            return str(response.read().decode())

    def chat(self, worker: int, messages: list[Any], tools: list[Any]) -> Any:
        """The assistant's message, which is added to ``messages``."""
        body = {"model": "m", "messages": messages, "tools": tools}
        message = self.ask(worker, "/v1/chat/completions", body)["choices"][0]["message"]
        messages.append(message)
        return message


@contextmanager
def served(upstream: ScriptedUpstream, folder: Path, *arguments: str) -> Iterator[Served]:
    kept = ["--store", str(folder / "store.sqlite"), "--workers", "2"]
    with proxy(upstream.base_url, folder / "log", *kept, *arguments) as (process, url):
        workers = Workers(process, url)
        process.wait_until(lambda: workers.are(2))
        yield Served(process, url, workers)


def results(message: Any, content: str) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": content}
        for call in message["tool_calls"]
    ]
