"""Native upstreams get conversations that strict servers accept, whatever the client's order is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import PATHS, Api, request_body
from tests.support.tools import GET_WEATHER

Json = dict[str, Any]
ASK = {"role": "user", "content": "Oslo?"}
WAIT = {"role": "user", "content": "wait"}


def calls(*keys: str) -> Json:
    function = {"name": "get_weather", "arguments": '{"location": "Oslo"}'}
    made = [{"id": key, "type": "function", "function": function} for key in keys]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(key: str, content: Any = "4") -> Json:
    return {"role": "tool", "tool_call_id": key, "content": content}


def call_item(key: str) -> Json:
    return {
        "type": "function_call",
        "call_id": key,
        "name": "get_weather",
        "arguments": '{"location": "Oslo"}',
    }


def output_item(key: str) -> Json:
    return {"type": "function_call_output", "call_id": key, "output": "4"}


def use(key: str) -> Json:
    return {"type": "tool_use", "id": key, "name": "get_weather", "input": {"location": "Oslo"}}


def used(key: str) -> Json:
    return {"type": "tool_result", "tool_use_id": key, "content": "4"}


NONE = "No result of this call came."
LOST = "The result of a call that is no longer part of this conversation:"
CONVERSATIONS: list[tuple[str, Api, list[Json], list[Any]]] = [
    (
        "words between a call and its result",
        "responses",
        [ASK, call_item("t1"), WAIT, output_item("t1")],
        ["Oslo?", ["t1"], ("t1", "4"), "wait"],
    ),
    (
        "words between the results of two calls",
        "responses",
        [ASK, call_item("a"), call_item("b"), output_item("b"), WAIT, output_item("a")],
        ["Oslo?", ["a", "b"], ("b", "4"), ("a", "4"), "wait"],
    ),
    (
        "the model's words between its call and the result",
        "responses",
        [ASK, call_item("a"), {"role": "assistant", "content": "Asked."}, output_item("a")],
        ["Oslo?", ["a"], ("a", "4"), "Asked."],
    ),
    (
        "a call that was never answered",
        "responses",
        [ASK, call_item("a"), WAIT, call_item("b"), output_item("b")],
        ["Oslo?", ["a"], ("a", NONE), "wait", ["b"], ("b", "4")],
    ),
    (
        "a result whose call was cut off",
        "responses",
        [output_item("a"), ASK],
        [f"{LOST}\n4", "Oslo?"],
    ),
    (
        "words before the result in one message",
        "messages",
        [
            ASK,
            {"role": "assistant", "content": [use("a"), use("b")]},
            {"role": "user", "content": [used("a"), {"type": "text", "text": "wait"}, used("b")]},
        ],
        ["Oslo?", ["a", "b"], ("a", "4"), ("b", "4"), "wait"],
    ),
    (
        "a valid conversation whose ids repeat",
        "chat",
        [ASK, calls("a", "b"), result("b"), result("a", "5"), WAIT, calls("a"), result("a", "6")],
        ["Oslo?", ["a", "b"], ("b", "4"), ("a", "5"), "wait", ["a"], ("a", "6")],
    ),
    (
        "a valid conversation without ids",
        "chat",
        [ASK, calls("", ""), result(""), result("", "5"), WAIT],
        ["Oslo?", ["", ""], ("", "4"), ("", "5"), "wait"],
    ),
    (
        "two results of one call",
        "chat",
        [ASK, calls("a"), result("a"), result("a", "5")],
        ["Oslo?", ["a"], ("a", "4"), f"{LOST}\n5"],
    ),
    (
        "a lost result with parts",
        "chat",
        [result("a", [{"type": "text", "text": "4"}]), ASK],
        [f"{LOST}\n\n4", "Oslo?"],
    ),
]
"""The conversation over an API -> the messages that the upstream gets."""


def short(message: Json) -> Any:
    if message.get("tool_calls"):
        return [call["id"] for call in message["tool_calls"]]
    if message["role"] == "tool":
        return message["tool_call_id"], message["content"]
    return message["content"]


@pytest.mark.parametrize(
    ("api", "conversation", "sent"),
    [pytest.param(*row, id=name) for name, *row in CONVERSATIONS],
)
def test_a_native_upstream_gets_a_valid_conversation(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    api: Api,
    conversation: list[Json],
    sent: list[Any],
) -> None:
    url = start_proxy(tools="native")
    upstream.reply("Fine.")
    field = "input" if api == "responses" else "messages"
    body = {**request_body(api, GET_WEATHER, stream=False), field: conversation}
    status, _, answer = send(url + PATHS[api], body)
    assert status == 200, answer
    assert [*map(short, upstream.requests[0]["messages"])] == sent
