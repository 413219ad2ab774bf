"""Two proxies as the command starts them, behind nginx; how tests ask them, together or each by itself."""

from __future__ import annotations

import json
import secrets
import signal
import time
import urllib.error
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.support.processes import Process
from tests.support.raw_http import send

CELL = "```python\nx = 6\nprint('asking')\nprice = get_price(about='a')\nprint(x * price)\n```"
TOKEN = secrets.token_hex(16)


@dataclass
class Replicas:
    processes: list[Process]
    urls: list[str]
    balancer: str
    gateway: str
    asked: list[str] = field(default_factory=list)
    """The replica that each request went to."""

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Through nginx, as a client that tries again when a replica's connection has broken."""
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
        """Whether no request went to the same replica as the one before."""
        pairs = zip(self.asked, self.asked[1:], strict=False)
        return len(self.asked) > 1 and all(one != other for one, other in pairs)

    def at(self, replica: int, path: str, body: Any = None, method: str | None = None) -> Any:
        """At one replica, past nginx."""
        status, _, answer = send(f"{self.urls[replica]}{path}", body, method=method)
        assert status == 200, answer
        return answer

    def chat(self, messages: list[Any], tools: list[Any]) -> Any:
        """The assistant's message, which is added to ``messages``."""
        body = {"model": "m", "messages": messages, "tools": tools}
        message = self.ask("/v1/chat/completions", body)["choices"][0]["message"]
        messages.append(message)
        return message

    def kernels(self) -> set[str]:
        """Those of the gateway in which a container's session is."""
        found = httpx2.get(
            f"{self.gateway}/api/kernels", headers={"authorization": f"token {TOKEN}"}
        ).json()
        return {kernel["id"] for kernel in found}

    def kill(self, replica: int) -> None:
        self.processes[replica].kill(signal.SIGKILL)


def results(message: Any, content: str) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": content}
        for call in message["tool_calls"]
    ]


def chat_at(replicas: Replicas, replica: int, messages: list[Any], tools: list[Any]) -> Any:
    body = {"model": "m", "messages": messages, "tools": tools}
    answer = replicas.at(replica, "/v1/chat/completions", body)
    message = answer["choices"][0]["message"]
    messages.append(message)
    return message


def ask_in_vain(url: str, body: Any) -> None:
    """The connection breaks."""
    with pytest.raises((OSError, urllib.error.URLError, json.JSONDecodeError)):
        send(url, body)


def wait_until(true: Any) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)
