"""How many hosted calls an answer makes, how many at the same time, and when they stop."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest

from tests.support.chat import BOTH, plain
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.inspected import Inspected
from tests.support.raw_http import connect, post_bytes
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

PING, WAIT = (function(name, strings("id")) for name in ("get_ping", "get_wait"))
WAIT["function"]["annotations"] = {"readOnlyHint": True}
GO: list[Any] = [{"role": "user", "content": "Go."}]
THREE = "```tool_code\nprint([get_ping(i) for i in 'abc'])\n```"


def chat_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="k", max_retries=0)


@BOTH
def test_calls_that_are_sent_together_run_at_the_same_time(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any
) -> None:
    all_here = threading.Barrier(3, timeout=20)
    server = HostedFunctions({"get_ping": lambda id: str(all_here.wait() < 3)}, [PING])
    client = chat_client(start_proxy(hosted=server))
    upstream.reply(THREE, "Done.")
    answer = ask(client, model="m", messages=GO, tools=[SERVER]).choices[0].message
    assert upstream.requests[1]["messages"][-1]["content"].count("True") == 3
    shown = answer.reasoning_content
    assert shown.count('shop.get_ping(id="a")') + shown.count("True") >= 4


HINTS: dict[str, tuple[dict[str, bool], int]] = {
    "read-only": ({"readOnlyHint": True}, 2),
    "idempotent, not destructive": ({"idempotentHint": True, "destructiveHint": False}, 1),
    "destructive": ({"destructiveHint": True}, 1),
    "no hints": ({}, 1),
}


@pytest.mark.parametrize(("hints", "most"), HINTS.values(), ids=HINTS)
def test_hints_of_a_server_decide_which_calls_run_at_the_same_time(
    start_proxy: Any, upstream: ScriptedUpstream, hints: dict[str, bool], most: int
) -> None:
    """The names of the tools say nothing about what they do."""
    lock, running, seen = threading.Lock(), 0, 0
    together = threading.Event()

    def handle(id: str) -> str:
        nonlocal running, seen
        with lock:
            running += 1
            seen = max(seen, running)
            if seen == 2:
                together.set()
        together.wait(20 if most == 2 else 0.2)
        with lock:
            running -= 1
        return id

    tools = [function(name, strings("id")) for name in ("handle", "treat")]
    for tool in tools:
        tool["function"]["annotations"] = hints
    server = HostedFunctions({"handle": handle, "treat": handle}, tools)
    upstream.reply("```tool_code\na = handle('1')\nb = treat('1')\nprint(a, b)\n```", "Done.")
    plain(chat_client(start_proxy(hosted=server)), model="m", messages=GO, tools=[SERVER])
    assert seen == most
    assert sorted(server.made) == ["handle(id='1')", "treat(id='1')"]


def test_calls_beyond_the_concurrency_limit_wait_for_a_slot(
    start_proxy: Any, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.answering.running_calls.MAX_CONCURRENT", 2)
    lock, running, most = threading.Lock(), 0, 0

    def ping(id: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.05)
        with lock:
            running -= 1
        return f"pong {id}"

    server = HostedFunctions({"get_ping": ping}, [PING])
    upstream.reply("```tool_code\nprint([get_ping(i) for i in 'abcdefg'])\n```", "Done.")
    plain(chat_client(start_proxy(hosted=server)), model="m", messages=GO, tools=[SERVER])
    assert most == 2
    assert upstream.requests[1]["messages"][-1]["content"].count("pong") == 7


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_cancels_its_readers(
    start_proxy: Any, upstream: ScriptedUpstream, stream: bool
) -> None:
    started, never = threading.Event(), threading.Event()

    def wait(id: str) -> str:
        started.set()
        never.wait(60)
        return id

    server = HostedFunctions({"get_wait": wait}, [WAIT])
    upstream.reply("```tool_code\nget_wait('a')\n```")
    body = {"model": "m", "messages": GO, "tools": [SERVER], "stream": stream}
    url = start_proxy(hosted=server, ping_seconds=3600.0)
    with connect(url, post_bytes("/v1/chat/completions", body)):
        assert started.wait(20)
    assert server.is_cancelled.wait(5)
    never.set()


def test_calls_beyond_the_limit_are_not_made_and_then_the_model_answers_without_tools(
    start_proxy: Any, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.answering.hosted_calls._MAX_CALLS", 2)
    server = HostedFunctions({"get_ping": lambda id: id}, [PING])
    client = chat_client(start_proxy(hosted=server))
    upstream.reply(THREE, "```tool_code\nget_ping('d')\n```", "Two of them.")
    answer = plain(client, model="m", messages=GO, tools=[SERVER]).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("Two of them.", "stop")
    assert sorted(server.made) == ["get_ping(id='a')", "get_ping(id='b')"]
    first, second, third = upstream.requests
    assert "at most 2 calls" in second["messages"][-1]["content"]
    assert "get_ping(id: str)" in str(second) and "get_ping(id: str)" not in str(third)
    assert first["messages"] == second["messages"][: len(first["messages"])]


def test_the_requests_own_limit_counts_too(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    server = HostedFunctions({"get_ping": lambda id: id}, [PING])
    upstream.reply(THREE, "One.")
    request = {"model": "m", "messages": GO, "tools": [SERVER], "extra_body": {"max_tool_calls": 1}}
    plain(chat_client(start_proxy(hosted=server)), **request)
    assert server.made == ["get_ping(id='a')"]


def test_a_reader_that_outlasts_the_answer_is_cancelled(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    never = threading.Event()
    server = HostedFunctions({"get_wait": lambda id: str(never.wait(60))}, [WAIT])
    upstream.reply("```tool_code\nget_wait('a')\n```")
    client = chat_client(start_proxy(hosted=server, answer_seconds=1))
    with pytest.raises(openai.APIStatusError):
        plain(client, model="m", messages=GO, tools=[SERVER])
    assert server.is_cancelled.wait(5)
    never.set()


@BOTH
def test_a_truncated_answer_ends_as_truncated(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any
) -> None:
    server = HostedFunctions({"get_ping": lambda id: id}, [PING])
    client = chat_client(start_proxy(hosted=server))
    upstream.reply("```tool_code\nget_ping('a')\nget_ping('b", finish_reason="length")
    answer = ask(client, model="m", messages=GO, tools=[SERVER]).choices[0]
    assert answer.finish_reason == "length"
    assert server.made == ["get_ping(id='a')"]


@BOTH
@pytest.mark.parametrize("stream_calls", ["statement", "block"])
def test_a_long_hosted_call_is_not_streamed_to_the_client(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any, stream_calls: str
) -> None:
    server = HostedFunctions(
        {"write": lambda text: f"{len(text)} letters"}, [function("write", strings("text"))]
    )
    client = chat_client(start_proxy(hosted=server, stream_calls=stream_calls))
    upstream.reply(f"```tool_code\nwrite('{'long ' * 200}')\n```", "Written.", chunks=16)
    answer = ask(client, model="m", messages=GO, tools=[SERVER]).choices[0]
    assert (answer.message.content, answer.message.tool_calls) == ("Written.", None)
    assert "1000 letters" in upstream.requests[1]["messages"][-1]["content"]


def test_usage_is_that_of_all_turns(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    server = HostedFunctions({"get_ping": lambda id: id}, [PING])
    upstream.reply("```tool_code\nget_ping('a')\n```", "```tool_code\nget_ping('b')\n```", "Done.")
    usage = plain(
        chat_client(start_proxy(hosted=server)), model="m", messages=GO, tools=[SERVER]
    ).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 9)
    assert usage.model_extra == {"emulator": {"model_turns": 3, "prompt_tokens": 21}}


def test_the_inspector_shows_each_call_with_its_time(
    start_app: Any, upstream: ScriptedUpstream
) -> None:
    server = HostedFunctions({"get_ping": lambda id: id}, [PING])
    url, services = start_app(hosted=server, inspector="open")
    upstream.reply(THREE, "Done.")
    inspected = Inspected(url, services.requests)
    key = inspected.ask(tools=[SERVER])
    page = inspected.get(f"/inspector/requests/{key}/timing")[2]
    assert page.count("mcp shop.get_ping</th>") == 3
