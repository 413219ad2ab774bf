"""Native models behind Responses and Messages get their reasoning again; refusals reach the client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from sandbox.fences import probes
from tests.conftest import StartProxy
from tests.support.scripted import DONE, Reply, ScriptedUpstream, sse
from tests.support.tools import GET_WEATHER

FUNCTION = {"type": "function", **GET_WEATHER["function"]}
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "input_schema": GET_WEATHER["function"]["parameters"],
}
CALL = {"name": "get_weather", "arguments": {"location": "Oslo"}}
THOUGHT = Reply(reasoning="Look it up.", tool_calls=[CALL], finish_reason="tool_calls")
ROUNDS = (THOUGHT, Reply("4 degrees.", reasoning="Report it."), "You are welcome.")
NATIVE = pytest.mark.parametrize("tools", ["native", "emulate"])


def reasoning_sent(upstream: ScriptedUpstream) -> list[list[str]]:
    """The reasoning in the assistant messages of each request."""
    return [
        [m["reasoning_content"] for m in sent["messages"] if "reasoning_content" in m]
        for sent in upstream.requests
    ]


@NATIVE
@pytest.mark.parametrize("stored", [True, False])
def test_a_response_gives_the_reasoning_back(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str, stored: bool
) -> None:
    """As items in the input, or from the stored response."""
    upstream.reply(*ROUNDS)
    client = openai.OpenAI(base_url=f"{start_proxy(tools=tools)}/v1", api_key="k", max_retries=0)
    history: list[Any] = [{"role": "user", "content": "Oslo?"}]
    new, before = history, None
    for _ in range(3):
        given = {"previous_response_id": before, "input": new} if stored else {"input": history}
        answer = client.responses.create(model="m", tools=[FUNCTION], store=stored, **given)
        output = [item.to_dict() for item in answer.output]
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        new = [{"type": "function_call_output", "call_id": key, "output": "4"} for key in calls]
        new = new or [{"role": "user", "content": "Thanks."}]
        history, before = [*history, *output, *new], answer.id
    both = ["Look it up.", "Report it."]
    assert reasoning_sent(upstream) == ([[], both[:1], both] if tools == "native" else [[]] * 3)


@NATIVE
def test_a_message_gives_the_thinking_back(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str
) -> None:
    upstream.reply(*ROUNDS)
    client = anthropic.Anthropic(base_url=start_proxy(tools=tools), api_key="k", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "Oslo?"}]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    for _ in range(2):
        answer = client.messages.create(
            model="m", max_tokens=2048, messages=messages, tools=[TOOL], thinking=thinking
        )
        messages += [{"role": "assistant", "content": [b.to_dict() for b in answer.content]}]
        uses = [block for block in answer.content if block.type == "tool_use"]
        said: Any = [{"type": "tool_result", "tool_use_id": b.id, "content": "4"} for b in uses]
        messages += [{"role": "user", "content": said or "Thanks."}]
    client.messages.create(
        model="m", max_tokens=2048, messages=messages, tools=[TOOL], thinking=thinking
    )
    sent = reasoning_sent(upstream)
    assert sent == (
        [[], ["Look it up."], ["Look it up.", "Report it."]] if tools == "native" else [[]] * 3
    )


INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}
CODE_EXECUTION = {"type": "code_execution_20260120", "name": "code_execution"}
_PROBLEM = probes.problem()
KERNELS = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")
OFFERS = [
    pytest.param("native", [], [], id="no tools"),
    pytest.param("native", [FUNCTION], [TOOL], id="a function that the upstream calls"),
    pytest.param("emulate", [FUNCTION], [TOOL], id="a function that is emulated"),
    pytest.param("native", [INTERPRETER], [CODE_EXECUTION], id="code", marks=KERNELS),
    pytest.param(
        "native",
        [INTERPRETER, FUNCTION],
        [CODE_EXECUTION, TOOL],
        id="code and a function",
        marks=KERNELS,
    ),
]
"""The setting, and the tools of Responses and of Messages."""
REFUSAL: list[Any] = [
    {"role": "assistant", "refusal": "I cannot "},
    {"refusal": "do that."},
    {},
]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(("setting", "functions", "tools"), OFFERS)
def test_a_refusal_reaches_the_client(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    setting: str,
    functions: list[Any],
    tools: list[Any],
    stream: bool,
) -> None:
    """Emulated, it was an empty answer: asked for again, and a 502 at the end."""
    chunks = [
        {
            "id": "x",
            "choices": [{"index": 0, "delta": one, "finish_reason": None if one else "stop"}],
        }
        for one in REFUSAL
    ]
    frames = [*map(sse, chunks), DONE]
    url = start_proxy(tools=setting)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    upstream.reply(*[Reply(frames=frames)] * 2)
    if stream:
        with client.responses.stream(model="m", input="Hi", tools=functions) as events:
            answer = events.until_done().get_final_response()
    else:
        answer = client.responses.create(model="m", input="Hi", tools=functions)
    parts: list[Any] = [part for item in answer.output for part in getattr(item, "content", ())]
    words = [part.refusal if part.type == "refusal" else part.text for part in parts]
    assert "".join(words) == "I cannot do that."
    claude = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "tools": tools}
    asked["messages"] = [{"role": "user", "content": "Hi"}]
    if stream:
        with claude.messages.stream(**asked) as messages:
            message = messages.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert json.loads(message.to_json())["content"][0]["text"] == "I cannot do that."


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_thoughts_between_words_and_calls_are_kept(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str
) -> None:
    """Models that think between their steps; both are one message of a chat."""
    upstream.reply("Fine.")
    url = start_proxy(tools="native")
    if api == "responses":
        thoughts: list[Any] = [
            {"type": "reasoning", "id": f"rs_{n}", "summary": [{"type": "summary_text", "text": t}]}
            for n, t in enumerate(("Where?", "Look it up."))
        ]
        call = {"type": "function_call", "call_id": "call_1", "name": "get_weather"}
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        history: list[Any] = [
            {"role": "user", "content": "Oslo?"},
            thoughts[0],
            {"role": "assistant", "content": "One moment."},
            thoughts[1],
            {**call, "arguments": '{"location": "Oslo"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        ]
        client.responses.create(model="m", tools=[FUNCTION], input=history)
    else:
        content: list[Any] = [
            {"type": "thinking", "thinking": "Where?", "signature": ""},
            {"type": "text", "text": "One moment."},
            {"type": "thinking", "thinking": "Look it up.", "signature": ""},
            {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": CALL["arguments"]},
        ]
        claude = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        result: Any = {"type": "tool_result", "tool_use_id": "call_1", "content": "4"}
        messages: list[Any] = [
            {"role": "user", "content": "Oslo?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ]
        claude.messages.create(model="m", max_tokens=9, messages=messages, tools=[TOOL])
    assert reasoning_sent(upstream) == [["Where?\nLook it up."]]
    [said] = [m for m in upstream.requests[0]["messages"] if m["role"] == "assistant"]
    assert said["content"] == "One moment." and said["tool_calls"][0]["id"] == "call_1"


def test_the_thoughts_before_a_cell_stay_with_the_cell(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Fine.")
    cell = {"type": "code_interpreter_call", "id": "ci_1", "code": "print(2 + 2)"}
    history: list[Any] = [
        {"role": "user", "content": "Add."},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Compute."}],
        },
        {**cell, "status": "completed", "outputs": [{"type": "logs", "logs": "4"}]},
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Thanks."},
    ]
    url = start_proxy(tools="native")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    client.responses.create(model="m", tools=[FUNCTION], input=history)
    [thought] = [m for m in upstream.requests[0]["messages"] if "reasoning_content" in m]
    assert (thought["reasoning_content"], "print(2 + 2)" in thought["content"]) == (
        "Compute.",
        True,
    )
