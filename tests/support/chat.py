"""Ask for chat completions through the SDK, streamed or not, and read the calls of an answer."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

ASK: list[Any] = [{"role": "user", "content": "What's the weather in London?"}]

LONDON = '```tool_code\nget_weather(location="London")\n```'


def calls(completion: ChatCompletion) -> list[tuple[str, Any]]:
    tool_calls = completion.choices[0].message.tool_calls or []
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in tool_calls
        if call.type == "function"
    ]


def streamed(client: openai.OpenAI, **request: Any) -> ChatCompletion:
    with client.chat.completions.stream(**request) as stream:
        try:
            for _ in stream:
                pass
            return stream.get_final_completion()
        except openai.LengthFinishReasonError as error:  # the helper reads no answer that was cut
            return error.completion


def plain(client: openai.OpenAI, **request: Any) -> ChatCompletion:
    return client.chat.completions.create(**request)


BOTH = pytest.mark.parametrize("ask", [plain, streamed])
