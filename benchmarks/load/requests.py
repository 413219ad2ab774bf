"""The requests of the benchmark, as bytes. What the upstream answers is in the model's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, and the next city to look at.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its English name."}},
            "required": ["city"],
        },
    },
}
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}
QUESTION = {"role": "user", "content": "What is the weather in Oslo, and what shall I wear there?"}


def chat(
    model: str,
    *,
    stream: bool = False,
    history: int = 0,
    tools: list[dict[str, Any]] | None = None,
    messages: list[dict[str, Any]] | None = None,
) -> bytes:
    """A request with so many messages before its question."""
    before: list[dict[str, Any]] = []
    for n in range(history):
        if n % 2:
            before.append({"role": "assistant", "content": f"Answer {n}: it is {n} degrees. " * 6})
        else:
            before.append({"role": "user", "content": f"Question {n}: and in city {n}? " * 6})
    body: dict[str, Any] = {"model": model, "messages": [SYSTEM, *before, QUESTION]}
    if messages is not None:
        body["messages"] = messages
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if tools:
        body["tools"] = tools
    return json.dumps(body).encode()


def tools(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """``get_weather`` and others, some with nested objects; another ``seed`` gives other schemas."""
    return [WEATHER, *(_tool(n, seed) for n in range(1, count))]


def _tool(n: int, seed: int) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "name": {"type": "string", "description": f"Name of record {n} of set {seed}."},
        "amount": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "state": {"type": "string", "enum": ["open", "closed", f"other_{seed}"]},
    }
    if n % 3 == 0:
        properties["address"] = {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street"],
        }
    parameters = {"type": "object", "properties": properties, "required": ["name"]}
    described = f"Change record {n} in the books, and tell what it was."
    function = {"name": f"change_{n}", "description": described, "parameters": parameters}
    return {"type": "function", "function": function}


def with_result(size: int) -> list[dict[str, Any]]:
    """A history that ends in a tool's result of so many characters."""
    called = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    call = {"id": "call_1", "type": "function", "function": called}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "cold " * (size // 5)}
    return [SYSTEM, QUESTION, asked, result]


def converse(ask: Callable[[bytes], bytes], count: int) -> int:
    """Make all calls of a program of ``count``; returns how many requests that took."""
    messages: list[dict[str, Any]] = [SYSTEM, QUESTION]
    # Another question each time: a program is found by its calls, and not by what was asked.
    for turns in range(1, count + 2):
        body = chat(
            f"calls-{count}" if turns == 1 else "say-20-4", messages=messages, tools=[WEATHER]
        )
        message = json.loads(ask(body))["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        if not calls:
            return turns
        messages.append(message)
        for call in calls:
            result = {"role": "tool", "tool_call_id": call["id"], "content": '{"next": "Bergen"}'}
            messages.append(result)
    return count + 1
