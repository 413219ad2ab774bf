"""Function tools over chat completions: the model is offered Python functions, which are called here.

All that an agent is: ask the model, do what it calls, tell it the results, until it answers in words.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Any

import openai
from proxy import MODEL


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """A tool for a function whose arguments are strings, all of them required."""
    names = list(inspect.signature(function).parameters)
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": inspect.getdoc(function),
            "parameters": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in names},
                "required": names,
            },
        },
    }


def talk(client: openai.OpenAI, history: list[Any], functions: Iterable[Callable[..., Any]]) -> str:
    """The model's answer to ``history``, which grows by it and by the calls on the way."""
    offered = {function.__name__: function for function in functions}
    tools = [schema(function) for function in offered.values()]
    while True:
        completion = client.chat.completions.create(model=MODEL, messages=history, tools=tools)
        message = completion.choices[0].message
        history.append(message)
        for call in message.tool_calls or ():
            result = called(offered, call.function.name, call.function.arguments)
            history.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            return message.content or ""


def called(offered: dict[str, Callable[..., Any]], name: str, arguments: str) -> str:
    """The result of a call as JSON. What goes wrong is told to the model, who may do better."""
    if name not in offered:
        return f"error: there is no function {name}"
    try:
        return json.dumps(offered[name](**json.loads(arguments)))
    except (OSError, TypeError, ValueError, openai.APIError) as error:
        return f"error: {error}"
