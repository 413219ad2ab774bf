"""Two proxies, started by the command, behind nginx; tests send requests through nginx or to one of them."""

from __future__ import annotations

import json
import secrets
import signal
import threading
import time
import urllib.error
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import pytest

from tests.support.processes import Process
from tests.support.programs import CHAIN, HITS, INTERPRETER, PRICE, TOOLS, Ask, chat, results
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

CELL = "```tool_code\nx = 6\nprint('asking')\nprice = get_price(about='a')\nprint(x * price)\n```"
TOKEN = secrets.token_hex(16)


@dataclass
class Replicas:
    processes: list[Process]
    urls: list[str]
    balancer: str
    gateway: str
    asked: list[str] = field(default_factory=list)
    """The replica that served each request."""

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Through nginx, as a client that retries when a replica's connection breaks."""
        for _ in range(100):
            try:
                status, headers, answer = send(f"{self.balancer}{path}", body, method=method)
                break
            except json.JSONDecodeError:  # a page of nginx': 502
                time.sleep(0.1)
        else:
            raise AssertionError("no replica answers")
        assert status == 200, answer
        self.asked.append({name.lower(): value for name, value in headers.items()}["x-replica"])
        return answer

    def alternated(self) -> bool:
        """Return True if no two consecutive requests went to the same replica."""
        pairs = zip(self.asked, self.asked[1:], strict=False)
        return len(self.asked) > 1 and all(one != other for one, other in pairs)

    def at(self, replica: int, path: str, body: Any = None, method: str | None = None) -> Any:
        """To one replica, without nginx."""
        status, _, answer = send(f"{self.urls[replica]}{path}", body, method=method)
        assert status == 200, answer
        return answer

    def chat(self, messages: list[Any], tools: list[Any]) -> Any:
        """The assistant's message, which is added to ``messages``."""
        return chat(self.ask, messages, tools)

    def session(self, code: str = "", **container: Any) -> Session:
        """A new container of the first replica in which ``code`` has run."""
        made = self.at(0, "/v1/containers", {"name": "c", **container})
        session = Session(self, made["id"])
        if code:
            session.run(code, at=0)
        return session

    def kernels(self) -> set[str]:
        """The ids of the gateway's kernels that hold a session."""
        found = httpx2.get(
            f"{self.gateway}/api/kernels", headers={"authorization": f"token {TOKEN}"}
        ).json()
        return {kernel["id"] for kernel in found}

    def kill(self, replica: int) -> None:
        self.processes[replica].kill(signal.SIGKILL)


@dataclass(frozen=True)
class Session:
    replicas: Replicas
    container: str

    @property
    def path(self) -> str:
        """The path of the container."""
        return f"/v1/containers/{self.container}"

    @property
    def execute(self) -> str:
        return f"{self.path}/execute"

    def run(self, code: str, *, at: int | None = None) -> Any:
        """Run a cell at one replica or through nginx."""
        if at is None:
            return self.replicas.ask(self.execute, {"code": code})
        return self.replicas.at(at, self.execute, {"code": code})

    def run_interrupted(self, code: str) -> threading.Thread:
        """Start a cell at the first replica; the connection will break. The cell runs when this returns."""
        asked = (f"{self.replicas.urls[0]}{self.execute}", {"code": code})
        broken = threading.Thread(target=ask_interrupted, args=asked)
        broken.start()
        time.sleep(1.0)  # for the cell to be running; without it the test tries less
        return broken


def was_restarted(execution: Any) -> bool:
    """Return True if the notes say that the session was restarted."""
    return any("was restarted" in note for note in execution["notes"])


class StartedWork:
    """At the first replica: a pending program and cell, variables, a file, a chain of responses."""

    def __init__(self, replicas: Replicas, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        upstream.reply(CHAIN, CELL, "Good day.")
        self._program: list[Any] = [{"role": "user", "content": "Go."}]
        self._cell: list[Any] = [{"role": "user", "content": "How much?"}]
        self._program += results(chat_at(replicas, 0, self._program, TOOLS), HITS)
        self._cell += results(chat_at(replicas, 0, self._cell, [INTERPRETER, PRICE]), "2")
        self.response_id = replicas.at(0, "/v1/responses", {"model": "m", "input": "Hi"})["id"]
        self.session = replicas.session("x = 41\nopen('a.txt', 'w').write('kept')")

    @property
    def chain(self) -> dict[str, Any]:
        """The request that continues the chain."""
        return {"model": "m", "input": "And you?", "previous_response_id": self.response_id}

    def assert_continues(self, ask: Ask) -> None:
        """Assert that all of it continues as if nothing had happened, the program without a model turn."""
        asked = len(self._upstream.requests)
        booked = chat(ask, self._program, TOOLS)
        assert booked["tool_calls"][0]["function"]["name"] == "book"
        assert ask(self.session.execute, {"code": "print(x + 1)"})["stdout"] == "42\n"
        listed = ask(f"{self.session.path}/files", None)["data"]
        assert [file["path"] for file in listed] == ["/mnt/data/a.txt"]
        self._upstream.reply("Twelve.", "It is good.")
        answer = chat(ask, self._cell, [INTERPRETER, PRICE])
        assert answer["content"].startswith("Twelve.")
        assert "12" in json.dumps(self._upstream.requests[-1]["messages"])
        ask("/v1/responses", self.chain)
        assert "Good day." in json.dumps(self._upstream.requests[-1]["messages"])
        assert len(self._upstream.requests) == asked + 2


def chat_at(replicas: Replicas, replica: int, messages: list[Any], tools: list[Any]) -> Any:
    return chat(partial(replicas.at, replica), messages, tools)


def ask_interrupted(url: str, body: Any) -> None:
    """Send a request whose connection must break."""
    with pytest.raises((OSError, urllib.error.URLError, json.JSONDecodeError)):
        send(url, body)
