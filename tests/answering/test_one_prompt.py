"""The same conversation is the same prompt, whichever API it comes over."""

from __future__ import annotations

import json
import random
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import StartProxy
from tests.support.examples import example_count
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import PATHS, fetch

Json = dict[str, Any]
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["city"],
}
NAMES = ("weather", "book", "list_files")
QUESTIONS = ("Hi", "Two\nlines", "```py\nx = 1\n```", "<b>&amp;</b>")
WORDS = ("It is 7.", "Done.\n\nMore.")
CITIES = ("Oslo", "São", 'a"b', "x\ny")
RESULTS = ("7", '{"a": 1}', "Error: no", "", " spaced ", "[1,2]")


def conversation(dice: random.Random) -> list[tuple[str, Any]]:
    """Turns: a question, perhaps with an image; words and calls; results, perhaps marked as failures."""
    turns: list[tuple[str, Any]] = []
    number = 0
    for _ in range(dice.randint(1, 4)):
        turns.append(("user", (dice.choice(QUESTIONS), dice.random() < 0.15)))
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            calls = []
            for _ in range(dice.choice((1, 1, 2, 3))):
                number += 1
                arguments: Json = {"city": dice.choice(CITIES)}
                if dice.random() < 0.5:
                    arguments["n"] = dice.randint(0, 9)
                calls.append((f"call_{number}", dice.choice(NAMES), arguments))
            turns.append(("calls", (dice.choice(("", "", "Let me see.")), calls)))
            answered = dice.sample(calls, len(calls)) if dice.random() < 0.3 else calls
            results = [(c[0], dice.choice(RESULTS), dice.random() < 0.2) for c in answered]
            turns.append(("results", results))
        turns.append(("words", dice.choice(WORDS)))
    return [*turns, ("user", ("Next?", False))]


def chat(turns: list[tuple[str, Any]]) -> Json:
    messages: list[Json] = [{"role": "system", "content": "S."}]
    for kind, turn in turns:
        match kind:
            case "user":
                url = {"url": f"data:image/png;base64,{IMAGE}"}
                parts = [{"type": "text", "text": turn[0]}, {"type": "image_url", "image_url": url}]
                messages.append({"role": "user", "content": parts if turn[1] else turn[0]})
            case "calls":
                calls = [
                    {
                        "id": key,
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments)},
                    }
                    for key, name, arguments in turn[1]
                ]
                content = turn[0] or None
                messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            case "results":
                messages += [
                    {"role": "tool", "tool_call_id": key, "content": text, "is_error": failed}
                    for key, text, failed in turn
                ]
            case _:
                messages.append({"role": "assistant", "content": turn})
    tools = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in NAMES]
    return {"messages": messages, "tools": tools}


def responses(turns: list[tuple[str, Any]]) -> Json:
    items: list[Json] = []
    for kind, turn in turns:
        match kind:
            case "user":
                url = f"data:image/png;base64,{IMAGE}"
                parts = [
                    {"type": "input_text", "text": turn[0]},
                    {"type": "input_image", "image_url": url},
                ]
                items.append({"role": "user", "content": parts if turn[1] else turn[0]})
            case "calls":
                if turn[0]:
                    items.append({"role": "assistant", "content": turn[0]})
                items += [
                    {
                        "type": "function_call",
                        "call_id": key,
                        "name": name,
                        "arguments": json.dumps(arguments),
                    }
                    for key, name, arguments in turn[1]
                ]
            case "results":
                items += [
                    {
                        "type": "function_call_output",
                        "call_id": key,
                        "output": text,
                        "status": "incomplete" if failed else "completed",
                    }
                    for key, text, failed in turn
                ]
            case _:
                items.append({"role": "assistant", "content": turn})
    tools = [{"type": "function", "name": n, "parameters": SCHEMA, "strict": False} for n in NAMES]
    return {"input": items, "instructions": "S.", "store": False, "tools": tools}


def messages(turns: list[tuple[str, Any]]) -> Json:
    sent: list[Json] = []

    def add(role: str, blocks: list[Json]) -> None:
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": blocks})

    for kind, turn in turns:
        match kind:
            case "user":
                source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
                image = [{"type": "image", "source": source}] if turn[1] else []
                add("user", [{"type": "text", "text": turn[0]}, *image])
            case "calls":
                words = [{"type": "text", "text": turn[0]}] if turn[0] else []
                calls = [
                    {"type": "tool_use", "id": key, "name": name, "input": arguments}
                    for key, name, arguments in turn[1]
                ]
                add("assistant", [*words, *calls])
            case "results":
                add(
                    "user",
                    [
                        {
                            "type": "tool_result",
                            "tool_use_id": key,
                            "content": text,
                            "is_error": failed,
                        }
                        for key, text, failed in turn
                    ],
                )
            case _:
                add("assistant", [{"type": "text", "text": turn}])
    tools = [{"name": n, "input_schema": SCHEMA} for n in NAMES]
    return {"messages": sent, "system": "S.", "max_tokens": 99, "tools": tools}


WRITERS = {"chat": chat, "responses": responses, "messages": messages}


@pytest.mark.parametrize("tools", ["emulate", "native"])
def test_a_conversation_is_one_prompt_over_three_apis(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str
) -> None:
    """Failures that a client marks included, which only Messages once told the model."""
    upstream.default = "Hello."
    proxy = start_proxy(tools=tools)

    @hypothesis.settings(max_examples=example_count(60))
    @hypothesis.given(seed=st.integers(0, 2**32))
    def converse(seed: int) -> None:
        turns = conversation(random.Random(seed))
        prompts = []
        for api, write in WRITERS.items():
            status, _, answer = fetch(proxy + PATHS[api], {"model": "m", **write(turns)})
            assert status == 200, answer
            prompts.append([plain(one) for one in upstream.requests[-1]["messages"]])
        upstream.exchanges.clear()
        assert prompts[0] == prompts[1] == prompts[2]

    converse()


def plain(message: Json) -> Json:
    """With the arguments of calls as values: a client may write their JSON with other white space."""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "content": message.get("content") or "", "tool_calls": calls}
