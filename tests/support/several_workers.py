"""A proxy with two workers: its processes, and requests to a chosen worker. Linux only.

The master starts the workers, which listen on one port and share a database.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.processes import Process, proxy
from tests.support.programs import chat
from tests.support.raw_http import connect, post_bytes, read_page, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
SILENT = Reply(chunks=["Hello", "x"], fault="silent", after=1)
_LISTENING = "0A"


@dataclass
class TwoWorkers:
    """A running proxy; ``process`` is its master."""

    process: Process
    url: str

    def pids(self) -> list[int]:
        """The workers: those that listen on the port."""
        socket = f"socket:[{self._inode()}]"
        return sorted(pid for pid in self._children() if socket in _open_files(pid))

    def are(self, number: int) -> bool:
        """Return True if this number of workers serve.

        A worker that still starts may hold the database's lock and must not be stopped.
        """
        pids = self.pids()
        return len(pids) == number and self._serve() >= {*pids}

    @contextmanager
    def only(self, pid: int) -> Iterator[None]:
        """Stop all other workers: connections made in the block reach this one."""
        others = [other for other in self.pids() if other != pid]
        for other in others:
            os.kill(other, signal.SIGSTOP)
        try:
            self.process.wait_until(lambda: all(_state(other) == "T" for other in others))
            yield
        finally:
            for other in others:
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGCONT)

    def kill(self, pid: int) -> None:
        """``kill -9``, and wait for the replacement."""
        workers = len(self.pids())
        os.kill(pid, signal.SIGKILL)
        self.process.wait_until(lambda: pid not in self._children() and self.are(workers))

    def _serve(self) -> set[int]:
        """The workers that have logged it; some may be gone."""
        logged = re.findall(r"^.*a worker serves.*$", self.process.output, re.MULTILINE)
        return {int(json.loads(line)["pid"]) for line in logged}

    def _children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.group}/task/{self.process.group}/children")
        return [int(pid) for pid in tasks.read_text().split() if _state(int(pid)) not in "ZX"]

    def _inode(self) -> str:
        port = int(self.url.rpartition(":")[2])
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].partition(":")[2], 16) == port:
                return fields[9]
        raise AssertionError(f"no process listens on port {port}")

    def ask(self, worker: int, path: str, body: Any = None, method: str | None = None) -> Any:
        with self.only(worker):
            status, _, answer = send(f"{self.url}{path}", body, method=method)
        assert status == 200, answer
        return answer

    @contextmanager
    def pages(self, worker: int) -> Iterator[Callable[[str, str], str]]:
        """Yields a function that sends requests to this worker over one connection while the others run."""
        host = self.url.removeprefix("http://")
        with closing(http.client.HTTPConnection(host, timeout=60)) as connection:

            def ask(method: str, path: str) -> str:
                body = "{}" if method == "POST" else None
                connection.request(method, path, body, {"content-type": "application/json"})
                return connection.getresponse().read().decode()

            with self.only(worker):
                ask("GET", "/healthz")
            yield ask

    @contextmanager
    def connected(self, worker: int) -> Iterator[Callable[[str, str], Any]]:
        """As `pages`, with the JSON of each answer."""
        with self.pages(worker) as ask:
            yield lambda method, path: json.loads(ask(method, path))

    @contextmanager
    def stream(
        self,
        worker: int,
        until: bytes = b"Hello",
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> Iterator[None]:
        """Open a stream of this worker, and read it up to ``until``."""
        request = post_bytes(
            "/v1/chat/completions", {**HELLO, "stream": True, **(body or {})}, headers
        )
        with ExitStack() as opened:
            with self.only(worker):
                connection = opened.enter_context(connect(self.url, request))
                read_until(connection, until)
            yield

    def refusal(self, worker: int) -> str | None:
        """The error code of a request for an answer; None if it passes the limits (it asks nothing)."""
        with self.only(worker):
            status, _, answer = send(f"{self.url}/v1/chat/completions", {})
        assert status in (400, 429)
        code: str | None = answer["error"]["code"]
        return code

    def metrics(self) -> str:
        return read_page(f"{self.url}/metrics")

    def chat(self, worker: int, messages: list[Any], tools: list[Any]) -> Any:
        """The assistant's message, which is added to ``messages``."""
        return chat(partial(self.ask, worker), messages, tools)


@contextmanager
def two_workers(upstream: ScriptedUpstream, folder: Path, *arguments: str) -> Iterator[TwoWorkers]:
    options = ["--database", str(folder / "store.sqlite"), "--workers", "2"]
    with proxy(upstream.base_url, folder / "log", *options, *arguments) as (process, url):
        started = TwoWorkers(process, url)
        process.wait_until(lambda: started.are(2))
        yield started


def _open_files(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(str(entry.readlink()))
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
