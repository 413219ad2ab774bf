"""Open Responses' compliance suite: its requests, and what it looks at in the answers.

After src/lib/compliance-tests.ts and schema/components/schemas/ResponseResource.json of
github.com/openresponses/openresponses.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.responses_client import ask, ask_stream, check_events
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]

REQUIRED = frozenset(
    """id object created_at completed_at status incomplete_details model previous_response_id instructions
    output error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty
    frequency_penalty top_logprobs temperature reasoning usage max_output_tokens max_tool_calls store
    background service_tier metadata safety_identifier prompt_cache_key""".split()
)
NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
IN_A_TOOL = frozenset({"type", "name", "description", "parameters", "strict"})

HEART = "data:image/png;base64,iVBORw0KGgo="
PICTURE = [
    {"type": "input_text", "text": "What is this?"},
    {"type": "input_image", "image_url": HEART},
]


def said(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


ROWS = [
    pytest.param([said("user", "Say hello.")], (), "message", id="basic text"),
    pytest.param([said("system", "Be a pirate."), said("user", "Hi.")], (), "message", id="system"),
    pytest.param([said("user", "Weather?")], (GET_WEATHER,), "function_call", id="tool calling"),
    pytest.param([said("user", PICTURE)], (), "message", id="image"),
    pytest.param(
        [said("user", "I am Ada."), said("assistant", "Hello."), said("user", "Who am I?")],
        (),
        "message",
        id="several turns",
    ),
]


@pytest.mark.parametrize(("given", "tools", "kind"), ROWS)
@pytest.mark.parametrize("stream", [False, True], ids=["", "stream"])
def test_the_compliance_suite_passes(
    proxy: str,
    upstream: ScriptedUpstream,
    given: list[Json],
    tools: tuple[Json, ...],
    kind: str,
    stream: bool,
) -> None:
    upstream.reply(LONDON if tools else "Hello there, you.")
    body: Json = {"model": "m", "input": given}
    if tools:
        body["tools"] = [{**tool, "strict": None} for tool in tools]
    if stream:
        events = ask_stream(proxy, body)
        responses = [event["response"] for event in events if "response" in event]
        check_events(events)
    else:
        responses = [ask(proxy, body)]
    assert (responses[-1]["status"], responses[-1]["output"][0]["type"]) == ("completed", kind)
    for response in responses:
        assert response.keys() >= REQUIRED
        assert all(isinstance(response[name], int | float) for name in NUMBERS)
        assert all(tool.keys() >= IN_A_TOOL for tool in response["tools"])
    assert all(response["usage"] is None for response in responses[:-1])
    assert responses[-1]["usage"].keys() >= {"input_tokens", "output_tokens", "total_tokens"}
