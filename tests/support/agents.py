"""An ordinary tool loop over several user turns, and what the model was shown in it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openai

from tests.support.chat import plain


def converse(
    client: openai.OpenAI,
    spoken: Sequence[str | dict[str, Any]],
    *,
    tools: Sequence[Any],
    local: Mapping[str, Callable[..., Any]],
    model: str = "m",
    ask: Any = plain,
    turns: int = 12,
    **request: Any,
) -> list[Any]:
    """Say each of ``spoken`` (a message that is not the user's is a dict), and make all calls, until the
    model answers in words. Returns the conversation."""
    messages: list[Any] = []
    for words in spoken:
        if isinstance(words, dict):
            messages.append(words)
            continue
        messages.append({"role": "user", "content": words})
        for _ in range(turns):
            completion = ask(client, model=model, messages=messages, tools=tools, **request)
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                result = local[call.function.name](**json.loads(call.function.arguments))
                content = result if isinstance(result, str) else json.dumps(result)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        else:
            raise AssertionError("the agent does not come to an end")
    return messages


def broken_prefixes(requests: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """The prompts that do not begin with the prompt before: its number, and where the two part."""
    broken = []
    for number, (before, after) in enumerate(itertools.pairwise(requests), start=1):
        for old, new in zip(before["messages"], after["messages"], strict=False):
            if old != new:
                broken.append(
                    (number, str(old.get("content"))[-400:], str(new.get("content"))[-400:])
                )
                break
        if len(after["messages"]) < len(before["messages"]):
            broken.append((number, "longer", "shorter"))
    return broken
