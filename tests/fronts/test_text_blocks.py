"""Text blocks of a message are paragraphs on every front: a client that changes its API keeps the prefix."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

Json = dict[str, Any]
TOOL = GET_WEATHER["function"]
ARGUMENTS = {"location": "Oslo"}
BLOCKS = ["First.", "", "Second: 1\n2", "Third."]
JOINED = "First.\n\nSecond: 1\n2\n\nThird."


def blocks(kind: str) -> list[Json]:
    return [{"type": kind, "text": words} for words in BLOCKS]


def said(role: str, kind: str = "text") -> Json:
    return {"role": role, "content": blocks(kind)}


CALL = {"name": TOOL["name"], "arguments": '{"location":"Oslo"}'}
USE = {"type": "tool_use", "id": "c", "name": TOOL["name"], "input": ARGUMENTS}
WORDS = [said("user"), said("assistant")]
ITEMS = [said("user", "input_text"), said("assistant", "output_text")]
BODIES: dict[str, tuple[str, Json]] = {
    "chat": (
        "/v1/chat/completions",
        {
            "tools": [GET_WEATHER],
            "messages": [
                said("system"),
                *WORDS,
                {"role": "user", "content": "Go on."},
                {
                    **said("assistant"),
                    "tool_calls": [{"id": "c", "type": "function", "function": CALL}],
                },
                {**said("tool"), "tool_call_id": "c"},
            ],
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "store": False,
            "tools": [{"type": "function", **TOOL}],
            "input": [
                said("system", "input_text"),
                *ITEMS,
                {"role": "user", "content": "Go on."},
                said("assistant", "output_text"),
                {"type": "function_call", "call_id": "c", **CALL},
                {"type": "function_call_output", "call_id": "c", "output": blocks("input_text")},
            ],
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "max_tokens": 9,
            "tools": [
                {
                    "name": TOOL["name"],
                    "input_schema": TOOL["parameters"],
                    "description": TOOL.get("description", ""),
                }
            ],
            "system": blocks("text"),
            "messages": [
                *WORDS,
                {"role": "user", "content": "Go on."},
                {"role": "assistant", "content": [*blocks("text"), USE]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": blocks("text")}
                    ],
                },
            ],
        },
    ),
}


@pytest.mark.parametrize("with_tools", [True, False])
@pytest.mark.parametrize("tools", ["emulate", "native"])
def test_the_prompts_of_the_three_fronts_are_equal(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str, with_tools: bool
) -> None:
    """Blocks of an answer were joined by a line's end in Chat, by nothing in Responses, and by a blank line
    in Messages."""
    url = start_proxy(tools=tools)
    for path, body in BODIES.values():
        upstream.reply("Done.")
        fields = body if with_tools else {n: value for n, value in body.items() if n != "tools"}
        status, _, answer = send(url + path, {"model": "m", **fields})
        assert status == 200, answer
    chat, responses, messages = (
        [(one["role"], one["content"]) for one in request["messages"]]
        for request in upstream.requests
    )
    assert chat == responses == messages
    shown = "".join(content for _, content in chat)
    assert shown.count(JOINED) == 5
