"""A program of three calls over turns, its tools, and the messages of a conversation about it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import openai

from tests.support.agents import converse
from tests.support.chat import plain
from tests.support.tools import function, strings

TOOLS = [
    function("search", strings("to")),
    function("book", strings("id", optional=("note",))),
    function("check", strings("id")),
]
PRICE = function("get_price", strings("about"))
"""The function that a cell of the code interpreter calls, offered next to `INTERPRETER`."""
INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}

FLIGHTS = {"Oslo": [{"id": "a1", "price": 90}, {"id": "a2", "price": 50}], "Rome": []}


def search(to: str) -> Any:
    return FLIGHTS[to]


def book(id: str, note: str = "") -> Any:
    return {"booked": id, "note": note}


def check(id: str) -> Any:
    return "on time" if id == "a2" else json.dumps({"late": 10})


LOCAL: dict[str, Callable[..., Any]] = {"search": search, "book": book, "check": check}

CHAIN = """```tool_code
hits = search(to="Oslo")
cheap = min(hits, key=lambda f: f["price"])
done = book(id=cheap["id"])
print(done["booked"], check(id=done["booked"]))
```"""


def started(client: openai.OpenAI, reply: str = CHAIN) -> tuple[list[Any], Any]:
    """The first turn: the messages so far, and the assistant's message."""
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    first = plain(client, model="m", messages=messages, tools=TOOLS)
    message = first.choices[0].message
    return [*messages, message.model_dump(exclude_none=True)], message


def result(call: Any, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


HITS = json.dumps(FLIGHTS["Oslo"])


def rounds(client: openai.OpenAI, tools: list[Any], **request: Any) -> list[list[str]]:
    """The calls of each message up to the answer in words, written as ``f(a='1')``; each result is "ok"."""
    local: Any = defaultdict(lambda: lambda **_: "ok")
    messages = converse(client, ["Go."], tools=tools, local=local, turns=20, **request)
    return [
        [_written(c["function"]) for c in m["tool_calls"]] for m in messages if "tool_calls" in m
    ]


def _written(function: Any) -> str:
    arguments = json.loads(function["arguments"]).items()
    return f"{function['name']}({', '.join(f'{key}={value!r}' for key, value in arguments)})"


Ask = Callable[[str, Any], Any]
"""Sends a request for a path, with an optional body, and returns the response's JSON."""


def chat(ask: Ask, messages: list[Any], tools: list[Any]) -> Any:
    """The assistant's message, which is added to ``messages``."""
    body = {"model": "m", "messages": messages, "tools": tools}
    message = ask("/v1/chat/completions", body)["choices"][0]["message"]
    messages.append(message)
    return message


def results(message: Any, content: str) -> list[dict[str, Any]]:
    """The same result for each call of an assistant's message."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": content}
        for call in message["tool_calls"]
    ]
