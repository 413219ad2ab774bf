"""One agent's loop over each of the three APIs: ask, run the calls, send their results back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai

Json = dict[str, Any]


@dataclass(frozen=True)
class ToolResult:
    """A result; ``is_error`` is the API's own signal, if it has one."""

    text: str
    is_error: bool = False


Answers = Callable[[str, Json], ToolResult]


def chat_rounds(
    url: str, tools: list[Json], answer: Answers, *, stream: bool = False, limit: int = 16
) -> list[list[tuple[str, Json]]]:
    """The calls of each message of Chat Completions, up to an answer without calls."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    rounds: list[list[tuple[str, Json]]] = []
    for _ in range(limit):
        request: Json = {"model": "m", "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**request) as events:
                for _ in events:
                    pass
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**request).choices[0].message
        if not message.tool_calls:
            return rounds
        calls = [
            (c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls
        ]
        messages.append(
            {
                "role": "assistant",
                "content": message.content,
                "tool_calls": [
                    {
                        "id": key,
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments)},
                    }
                    for key, name, arguments in calls
                ],
            }
        )
        rounds.append([(name, arguments) for _, name, arguments in calls])
        for key, name, arguments in calls:
            content = answer(name, arguments).text
            messages.append({"role": "tool", "tool_call_id": key, "content": content})
    raise AssertionError("the agent does not come to an end")


def messages_rounds(
    url: str, tools: list[Json], answer: Answers, *, stream: bool = False, limit: int = 16
) -> list[list[tuple[str, Json]]]:
    """The calls of each message of Anthropic's Messages."""
    offered = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in tools
    ]
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    rounds: list[list[tuple[str, Json]]] = []
    with anthropic.Anthropic(
        base_url=url.removesuffix("/v1"), api_key="k", max_retries=0
    ) as client:
        for _ in range(limit):
            request: Json = {
                "model": "m",
                "max_tokens": 512,
                "messages": messages,
                "tools": offered,
            }
            if stream:
                with client.messages.stream(**request) as events:
                    for _ in events:
                        pass
                    message: Any = events.get_final_message()
            else:
                message = client.messages.create(**request)
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return rounds
            rounds.append([(call.name, call.input) for call in calls])
            messages.append({"role": "assistant", "content": message.content})
            results = []
            for call in calls:
                result = answer(call.name, call.input)
                block = {"type": "tool_result", "tool_use_id": call.id, "content": result.text}
                results.append(block | ({"is_error": True} if result.is_error else {}))
            messages.append({"role": "user", "content": results})
    raise AssertionError("the agent does not come to an end")


def responses_rounds(
    url: str, tools: list[Json], answer: Answers, *, stream: bool = False, limit: int = 16
) -> list[list[tuple[str, Json]]]:
    """The calls of each response."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    offered: list[Any] = [{"type": "function", **tool["function"]} for tool in tools]
    items: list[Any] = [{"role": "user", "content": "Go."}]
    rounds: list[list[tuple[str, Json]]] = []
    for _ in range(limit):
        request: Json = {"model": "m", "input": items, "tools": offered, "store": False}
        if stream:
            with client.responses.stream(**request) as events:
                for _ in events:
                    pass
                response: Any = events.get_final_response()
        else:
            response = client.responses.create(**request)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return rounds
        rounds.append([(call.name, json.loads(call.arguments)) for call in calls])
        items += [item.model_dump(exclude_none=True) for item in response.output]
        for call in calls:
            result = answer(call.name, json.loads(call.arguments))
            item = {"type": "function_call_output", "call_id": call.call_id, "output": result.text}
            items.append(item | ({"status": "failed"} if result.is_error else {}))
    raise AssertionError("the agent does not come to an end")


APIS = {"chat": chat_rounds, "messages": messages_rounds, "responses": responses_rounds}
