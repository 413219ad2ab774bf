"""Requests that users get wrong on their first day: each is answered with what to write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HELLO = [{"role": "user", "content": "Hello"}]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"location": "Oslo"}},
}
PLACE = {"location": {"type": "string"}}
INTERPRETER = {"type": "code_interpreter", "container": "auto"}
AS_TEXT = {**CALL, "function": {"name": "get_weather", "arguments": "{}"}}


def chat(**fields: Any) -> tuple[str, Any]:
    return CHAT, {"model": "m", "messages": HELLO, **fields}


# What the mistake is, the path and the body, words of the answer's message.
REQUESTS: dict[str, tuple[tuple[str, Any], list[str]]] = {
    "input to chat": ((CHAT, {"model": "m", "input": "Hi"}), ["send it to /v1/responses"]),
    "a prompt to chat": ((CHAT, {"model": "m", "prompt": "Hi"}), ["belongs to /v1/completions"]),
    "input to messages": (
        (MESSAGES, {"model": "m", "input": "Hi", "max_tokens": 9}),
        ["send it to /v1/responses"],
    ),
    "messages to Responses": (
        (RESPONSES, {"model": "m", "messages": HELLO}),
        ["input is missing", "belongs to /v1/chat/completions"],
    ),
    "no messages": ((CHAT, {"model": "m"}), ['such as [{"role": "user"']),
    "messages as a text": (chat(messages="Hi"), ['such as [{"role": "user"']),
    "no model": ((CHAT, {"messages": HELLO}), ["GET /v1/models"]),
    "no max_tokens": ((MESSAGES, {"model": "m", "messages": HELLO}), ["such as 4096"]),
    "a tool's name as the choice": (
        chat(tools=[GET_WEATHER], tool_choice="get_weather"),
        ['{"type": "function", "function": {"name": "..."}}'],
    ),
    "Anthropic's any": (
        chat(tools=[GET_WEATHER], tool_choice={"type": "any"}),
        ['"required" means any tool'],
    ),
    "a text as the choice of Messages": (
        (MESSAGES, {"model": "m", "messages": HELLO, "max_tokens": 9, "tool_choice": "auto"}),
        ['such as {"type": "auto"}'],
    ),
    "the choice of Responses": (
        chat(tools=[GET_WEATHER], tool_choice={"type": "function", "name": "get_weather"}),
        ['write {"type":"function","function":{"name":"get_weather"}}'],
    ),
    "one tool without a list": (chat(tools=GET_WEATHER), ["Put a single tool into a list"]),
    "a container's type": (
        (RESPONSES, {"model": "m", "input": "Hi", "tools": [INTERPRETER]}),
        ["tools[0].container", '{"type": "auto"}'],
    ),
    "arguments as an object": (
        chat(messages=[*HELLO, {"role": "assistant", "tool_calls": [CALL]}]),
        ["messages[1].tool_calls[0].function.arguments", "JSON in a string"],
    ),
    "a result as an object": (
        chat(
            messages=[
                *HELLO,
                {"role": "assistant", "tool_calls": [AS_TEXT]},
                {"role": "tool", "tool_call_id": "c1", "content": {"degrees": 4}},
            ]
        ),
        ["messages[2].content", "JSON in a string"],
    ),
    "an argument next to properties": (
        chat(
            tools=[
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"location": {"type": "string"}}},
                }
            ]
        ),
        ["tools[0].function.parameters.location", 'arguments belong in "properties"'],
    ),
    "Python instead of JSON": ((CHAT, b"{'model': 'm'}"), ["not valid JSON"]),
    "health": (("/health", None), ["/healthz", "/readyz"]),
    "v1 twice": (("/v1/v1/chat/completions", {}), ["use /v1/chat/completions"]),
    "GET": ((CHAT, None), ["use POST"]),
    "an unknown role": (
        chat(messages=[{"role": "human", "content": "Hi"}]),
        ["'user', 'assistant'"],
    ),
}


@pytest.mark.parametrize(("request_", "words"), REQUESTS.values(), ids=REQUESTS)
def test_a_wrong_request_says_what_to_write(
    proxy: str, request_: tuple[str, Any], words: list[str]
) -> None:
    path, body = request_
    status, _, text = fetch(proxy + path, body)
    message = json.loads(text)["error"]["message"]
    assert status in (400, 404, 405), message
    assert not [word for word in words if word not in message], message


def test_a_byte_order_mark_is_ignored(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("Hello.")
    body = b"\xef\xbb\xbf" + json.dumps({"model": "m", "messages": HELLO}).encode()
    assert fetch(proxy + CHAT, body)[0] == 200
