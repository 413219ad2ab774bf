"""Clients that give up early and ask another replica, while replicas are killed: each act is made once.

CHAOS_SECONDS (20) is how long replicas are killed.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai

from tests.support import mcp_faults
from tests.support.postgres import Postgres
from tests.support.processes import proxy
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import strings

GET = {
    "type": "function",
    "function": {"name": "get", "description": "Get a value.", "parameters": strings("x")},
}
PROGRAM = (
    "```tool_code\na = get(x='{0}')\np = pay(id=a)\nb = get(x=p)\nprint('paid', '{0}', b)\n```"
)
PAID, UNKNOWN = "Paid.", "It is unknown."
CLIENTS = 6
_GIVE_UP_SECONDS = 0.8
"""Less than the bank needs."""


def model(body: Any) -> str:
    """Pay the bill of the last question, then say what the program has printed."""
    last = body["messages"][-1]["content"]
    if "its result is unknown" in last:
        return UNKNOWN
    asked = re.fullmatch(r"Pay bill (\S+)\.", last)
    return PROGRAM.format(asked[1]) if asked else PAID


class Client:
    """An agent that repeats a request at any replica until it has an answer."""

    def __init__(self, urls: list[str], seed: int) -> None:
        self._urls = urls
        self._random = random.Random(seed)
        self.retries = 0

    def pay(self, bill: str) -> str:
        """The last words of a conversation."""
        messages: list[Any] = [{"role": "user", "content": f"Pay bill {bill}."}]
        while True:
            message = self._ask(messages)
            if not message.tool_calls:
                return str(message.content)
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = bill if bill in call.function.arguments else "done"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def _ask(self, messages: list[Any]) -> Any:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            url = self._random.choice(self._urls)
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", timeout=_GIVE_UP_SECONDS)
            try:
                answer = client.chat.completions.create(model="m", messages=messages, tools=[GET])
            except openai.OpenAIError:
                self.retries += 1
                time.sleep(0.2)
            else:
                return answer.choices[0].message
        raise AssertionError("no replica answers")


def test_retrying_clients_lose_no_act_and_make_none_twice(
    upstream: ScriptedUpstream, postgres_server: Postgres, tmp_path: Path
) -> None:
    upstream.default = model
    bills: list[str] = []
    words: dict[str, str] = {}
    ends = threading.Event()

    def work(client: Client, name: int) -> None:
        number = 0
        while not ends.is_set():
            bill = f"bill-{name}-{number}"
            bills.append(bill)
            words[bill] = client.pay(bill)
            number += 1

    with ExitStack() as running:
        bank = running.enter_context(mcp_faults.http(tmp_path))
        options = ("--database", postgres_server.database(), "--mcp", f"bank={bank}")
        started = [
            running.enter_context(proxy(upstream.base_url, tmp_path / f"{n}.log", *options))
            for n in range(3)
        ]
        urls = [url for _, url in started]
        processes = [process for process, _ in started]
        clients = [Client(urls, seed) for seed in range(CLIENTS)]
        pool = running.enter_context(ThreadPoolExecutor(CLIENTS))
        running.callback(ends.set)
        working = [pool.submit(work, client, name) for name, client in enumerate(clients)]
        until = time.monotonic() + float(os.environ.get("CHAOS_SECONDS", "20"))
        victims = random.Random(7)
        while time.monotonic() < until:
            time.sleep(3)
            victim = victims.randrange(3)
            processes[victim].kill()
            log = tmp_path / f"{victim}-{time.monotonic_ns()}.log"
            processes[victim], urls[victim] = running.enter_context(
                proxy(upstream.base_url, log, *options)
            )
        ends.set()
        for one in working:
            one.result()
        lines = (tmp_path / "log").read_text()
    paid = Counter(re.findall(r"pay \{'id': '(\S+?)'\}", lines))
    retries = sum(client.retries for client in clients)
    assert words.keys() == {*bills}
    assert retries, "the clients did not try"
    assert not {bill: count for bill, count in paid.items() if count > 1}
    assert {words[bill] for bill in bills if not paid[bill]} <= {UNKNOWN}
    assert {*words.values()} <= {PAID, UNKNOWN}
