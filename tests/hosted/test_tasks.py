"""Calls that an MCP server makes as tasks: polled, cancelled, and asked for again instead of made again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.hosted.hosted_tool import AwaitedTask
from emulator.hosted.mcp_servers import MCPServers
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.hosted.test_mcp_servers import called, chat
from tests.support import mcp_tasks
from tests.support.approver import Approver
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import connect, post_bytes, send
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
CHAT = "/v1/chat/completions"
SAME: Json = {"model": "m", "messages": [{"role": "user", "content": "Pay my bill."}]}
KEY = {"Idempotency-Key": "a"}
UNKNOWN = "may have been made; its result is unknown"


@dataclass(frozen=True)
class Bank:
    url: str
    log: Path

    def count(self, text: str) -> int:
        return self.log.read_text().count(text) if self.log.exists() else 0

    def row(self, **fields: Any) -> Json:
        return {"bank": {"url": self.url, "always": True, **fields}}


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with mcp_tasks.http(tmp_path) as url:
        yield Bank(url, tmp_path / "log")


def program(how: str, tool: str = "pay") -> str:
    return f"```tool_code\nprint({tool}(how={how!r}))\n```"


def prompt(upstream: ScriptedUpstream) -> str:
    return json.dumps(upstream.requests[-1]["messages"][-1])


@pytest.mark.parametrize("tool", ["look", "pay"])
def test_a_served_type_may_be_made_as_a_task(
    start_proxy: StartProxy, upstream: ScriptedUpstream, bank: Bank, tool: str
) -> None:
    """A repeated request asks for the task of an act, and makes no second one."""
    rows = {
        "look": {"web_search": {"tool": "bank.look", "query": "how"}},
        "pay": {"image_generation": {"tool": "bank.pay", "prompt": "how"}},
    }
    kind = next(iter(rows[tool]))
    url = start_proxy(mcp=bank.row(), serve=rows[tool])
    for _ in range(2):
        upstream.reply(f"```tool_code\nprint({kind}('0.3'))\n```", "Done.")
        send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": [{"type": kind}]}, KEY)
        told = {"look": "look is done", "pay": "The server made the call and sent no image."}
        assert told[tool] in prompt(upstream)
    assert bank.count(f"{tool} {{") == 1


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("0", "pay is done"),
        ("1", "pay is done"),
        ("2", "pay is done"),
        ("refuse", "no such bill"),
        ("fail", "MCP server 'bank' failed: no money left."),
        ("cancel", UNKNOWN),
        ("forget", UNKNOWN),
        ("stay busy", UNKNOWN),
        ("nonsense", UNKNOWN),
        ("no result", UNKNOWN),
        ("be another", "it answered with another task"),
        ("be of no known type", UNKNOWN),
        ("have no known result", "its result has the unknown type 'weird'"),
        ("answer", "its result has the unknown type 'weird'"),
    ],
)
def test_the_model_reads_the_result_of_a_task(
    start_proxy: StartProxy, upstream: ScriptedUpstream, bank: Bank, how: str, told: str
) -> None:
    url = start_proxy(mcp=bank.row())
    upstream.reply(program(how), "Paid.")
    assert send(url + CHAT, SAME)[0] == 200
    assert told in prompt(upstream)
    assert bank.count("pay {") == 1


def test_a_task_that_reads_is_cancelled_with_its_answer(
    start_proxy: StartProxy, upstream: ScriptedUpstream, bank: Bank
) -> None:
    url = start_proxy(mcp=bank.row())
    upstream.reply(program("20", "look"))
    with connect(url, post_bytes(CHAT, SAME)):
        wait_until(lambda: bank.count("get "))
    wait_until(lambda: bank.count("cancel "))


def test_a_task_has_the_deadline_of_a_call(
    start_proxy: StartProxy, upstream: ScriptedUpstream, bank: Bank
) -> None:
    url = start_proxy(mcp=bank.row(timeout=1))
    upstream.reply(program("20"), "It took too long.")
    assert send(url + CHAT, SAME)[0] == 200
    assert "its task did not end within 1 s" in prompt(upstream)
    assert UNKNOWN not in prompt(upstream)
    assert (bank.count("cancel "), bank.count("pay {")) == (1, 1)


def leave(url: str, bank: Bank, upstream: ScriptedUpstream) -> None:
    with connect(url, post_bytes(CHAT, SAME, KEY)):
        wait_until(lambda: bank.count("get ") > 5)
    wait_until(lambda: bank.count("cancel "))


def outlast(url: str, bank: Bank, upstream: ScriptedUpstream) -> None:
    upstream.reply("It took too long.")
    assert send(url + CHAT, SAME, KEY)[0] == 200
    assert bank.count("cancel ") == 1


@pytest.mark.parametrize("end", [leave, outlast])
@pytest.mark.parametrize(
    ("how", "told", "calls", "made"),
    [
        ("20, 1", "pay is done", 2, 1),
        ("end anyway", "pay is done", 1, 0),
        ("go on", UNKNOWN, 1, 0),
    ],
)
def test_a_task_is_cancelled_with_its_answer_and_made_once_if_the_request_is_repeated(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    bank: Bank,
    how: str,
    told: str,
    calls: int,
    made: int,
    end: Callable[[str, Bank, ScriptedUpstream], None],
) -> None:
    """A task of an act was polled to its end when its client had left, and never cancelled."""
    url = start_proxy(mcp=bank.row(timeout=10), answer_seconds=5.0)
    upstream.reply(program(how))
    end(url, bank, upstream)
    time.sleep(2)
    gets = bank.count("get ")
    time.sleep(1)
    assert (bank.count("get "), bank.count("cancel ")) == (gets, 1)
    upstream.reply(program(how), "Paid.")
    assert send(url + CHAT, SAME, KEY)[0] == 200
    assert told in prompt(upstream)
    assert (bank.count("pay {"), bank.count("made ")) == (calls, made)


def test_an_approved_task_is_cancelled_with_its_answer(
    start_proxy: StartProxy, upstream: ScriptedUpstream, bank: Bank
) -> None:
    url = start_proxy(mcp=bank.row(require_approval="always"), inspector="open")
    person = Approver(url)
    upstream.reply(program("20"))
    with connect(url, post_bytes(CHAT, SAME)):
        person.decide("approve")
        wait_until(lambda: bank.count("get "))
    wait_until(lambda: bank.count("cancel "))


def test_a_task_that_cannot_be_stored_is_not_asked_for(
    start_app: Any, upstream: ScriptedUpstream, bank: Bank
) -> None:
    """Its result would be lost with its process, and the request could be answered twice."""
    url, services = start_app(mcp=bank.row())
    database = services.stores.database
    upstream.reply(program("start late"), "It is unknown.")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(send, url + CHAT, SAME, KEY)
        wait_until(lambda: bank.count("pay {"))
        database.run("ALTER TABLE journal RENAME TO gone")
        assert asked.result(60)[0] == 200
        database.run("ALTER TABLE gone RENAME TO journal")
    assert "its task could not be stored" in prompt(upstream)
    upstream.reply(program("start late"), "It is unknown.")
    assert send(url + CHAT, SAME, KEY)[0] == 200
    assert UNKNOWN in prompt(upstream)
    assert (bank.count("pay {"), bank.count("get ")) == (1, 0)


def test_a_killed_process_is_asked_again_and_gets_the_result_of_its_task(
    upstream: ScriptedUpstream, bank: Bank, database: str, tmp_path: Path
) -> None:
    upstream.reply(program("3"), program("3"), "Paid.")
    options = ("--database", database, "--mcp", f"bank={bank.url}", "--log-level", "warning")
    with (
        proxy(upstream.base_url, tmp_path / "one.log", *options) as (process, url),
        connect(url, post_bytes(CHAT, SAME, KEY)),
    ):
        wait_until(lambda: bank.count("get "))
        process.kill()
    with proxy(upstream.base_url, tmp_path / "two.log", *options) as (_, url):
        assert send(url + CHAT, SAME, KEY)[0] == 200
        assert "pay is done" in prompt(upstream)
        gets = bank.count("get ")
        upstream.reply(program("3"), "Paid.")
        assert send(url + CHAT, SAME, KEY)[0] == 200
    assert (bank.count("pay {"), bank.count("get ")) == (1, gets)


def test_a_task_is_asked_for_only_at_its_server(bank: Bank) -> None:
    with closing(MCPServers(Settings(mcp=bank.row()))) as servers:
        hosted = servers.resolve(chat(), "")
        task = called(hosted, "pay", how="0").task
        tool = hosted.tools[0]
        assert tool.resume(AwaitedTask(task, math.inf)).result(30).content == "pay is done"
        gets = bank.count("get ")
        other = f"{'0' * 16} {task.split()[1]}"
        assert tool.resume(AwaitedTask(other, math.inf)).result(30).outcome == "unknown"
        assert bank.count("get ") == gets


@pytest.mark.parametrize(
    ("how", "decision", "told"),
    [
        ("seat", "approve", "pay is done, accept"),
        ("seat", "decline", "pay is done, decline"),
        ("password", "", "may ask for a credential"),
    ],
)
def test_a_task_may_ask_a_person(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    bank: Bank,
    how: str,
    decision: str,
    told: str,
) -> None:
    person = Approver(start_proxy(mcp=bank.row(), inspector="open"))
    upstream.reply(program(how), "Paid.")
    asked = person.ask(CHAT, SAME)
    if decision:
        person.decide(decision, **{"field-0": "12A"})
    assert asked.result(30)[0] == 200
    assert told in prompt(upstream)
    assert (bank.count("update "), bank.count("cancel ")) == ((1, 0) if decision else (0, 1))
    assert bank.count("'seat': '12A'") == (decision == "approve")
