"""The length of a prompt is that of what the upstream is sent, also where it calls tools itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.answering.test_native import RIGHT
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import DONE, Reply, ScriptedUpstream, sse
from tests.support.three_apis import PATHS, request_body
from tests.support.tools import GET_WEATHER

Json = dict[str, Any]
CALL = {"type": "function_call", "call_id": "c", "name": "get_weather"}
INPUT = [
    {"role": "user", "content": "Oslo? " * 20},
    {**CALL, "arguments": json.dumps({"location": "Oslo " * 200})},
    {"type": "function_call_output", "call_id": "c", "output": "4 degrees. " * 50},
    {"role": "user", "content": "And now?"},
]
MESSAGES = [
    {"role": "user", "content": "Oslo? " * 20},
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool_use",
                "id": "c",
                "name": "get_weather",
                "input": {"location": "Oslo " * 200},
            }
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": "4 degrees. " * 50}],
    },
]


def tokens_of(sent: Json) -> int:
    """Of all that a model reads of a request."""
    calls = [call["function"] for one in sent["messages"] for call in one.get("tool_calls") or ()]
    functions = [tool["function"] for tool in sent.get("tools", ())]
    texts = [json.dumps(one, separators=(",", ":")) for one in (*calls, *functions)]
    texts += [one["content"] or "" for one in sent["messages"]]
    return math.ceil(sum(map(len, texts)) / 4)


@pytest.mark.parametrize("tools", ["native", "auto", "emulate"])
@pytest.mark.parametrize(
    ("api", "path", "conversation"),
    [("responses", "/input_tokens", INPUT), ("messages", "/count_tokens", MESSAGES)],
)
@pytest.mark.parametrize("tool", [GET_WEATHER, None], ids=["a tool", "no tool"])
def test_the_counted_tokens_are_those_of_the_request_that_is_sent(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    tools: str,
    api: Any,
    path: str,
    conversation: list[Json],
    tool: Json | None,
) -> None:
    """They were those of a prompt for Python."""
    url = start_proxy(tools=tools)
    probed = tools == "auto" and tool is not None
    upstream.reply(*[RIGHT, RIGHT] * probed, "Fine.")
    field = "input" if api == "responses" else "messages"
    body = {**request_body(api, tool, stream=False), field: conversation}
    assert send(url + PATHS[api], body)[0] == 200
    made = len(upstream.requests)
    status, _, counted = send(f"{url}{PATHS[api]}{path}", body)
    assert (status, counted["input_tokens"]) == (200, tokens_of(upstream.requests[-1]))
    assert len(upstream.requests) == made


def test_tokens_are_counted_without_asking_a_model_whether_it_calls_tools(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    body = {**request_body("responses", GET_WEATHER, stream=False), "input": INPUT}
    status, _, counted = send(f"{start_proxy(tools='auto')}/v1/responses/input_tokens", body)
    assert status == 200 and counted["input_tokens"] > 200
    assert upstream.requests == []


@pytest.mark.parametrize(("more", "compacts"), [(20, False), (-20, True)])
def test_a_native_conversation_is_compacted_by_the_length_that_is_sent(
    start_proxy: StartProxy, upstream: ScriptedUpstream, more: int, compacts: bool
) -> None:
    url = start_proxy(tools="native")
    body = {**request_body("responses", GET_WEATHER, stream=False), "input": INPUT}
    length = send(f"{url}/v1/responses/input_tokens", body)[2]["input_tokens"]
    upstream.reply(*["They asked."] * compacts, "Fine.")
    managed = {"type": "compaction", "compact_threshold": length + more}
    status, _, answer = send(f"{url}/v1/responses", {**body, "context_management": [managed]})
    assert status == 200
    assert [item["type"] for item in answer["output"]] == ["compaction"] * compacts + ["message"]


def test_an_unreported_prompt_is_estimated_by_what_was_sent(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(tools="native")
    chunk = {"choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]}
    upstream.reply(Reply(frames=[sse(chunk), DONE]))
    body = {**request_body("responses", GET_WEATHER, stream=False), "input": INPUT}
    usage = send(f"{url}/v1/responses", body)[2]["usage"]
    assert usage["input_tokens"] == tokens_of(upstream.requests[0])
