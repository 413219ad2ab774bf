"""How the playground uses each API: make a request whole, show the answer, add the results of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.core.errors import BadRequest
from emulator.core.front_paths import CHAT, MESSAGES, RESPONSES
from emulator.core.json_codec import dumps
from emulator.core.protocol import parse_body
from emulator.fronts.anthropic.request import MessagesRequest
from emulator.fronts.anthropic.threads import Threads
from emulator.fronts.responses.conversations import Conversations

Json = dict[str, Any]
Results = Mapping[str, str]
"""Id of a call -> its result."""


@dataclass(frozen=True)
class PlaygroundCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class AnswerView:
    """An answer as a page shows it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[PlaygroundCall, ...] = ()
    body: Json | None = None
    """The request with this answer appended: results can be added to it."""
    error: str = ""
    request_id: str = ""
    """The id under which the request was recorded."""


@dataclass(frozen=True)
class Conversed:
    """Where conversations are that a request may only name."""

    conversations: Conversations
    threads: Threads


def _whole_chat(_conversed: Conversed, body: Json, _client: str) -> Json:
    return body


def _view_chat(body: Json, answer: Json) -> AnswerView:
    message: Json = answer["choices"][0]["message"]
    calls = tuple(
        PlaygroundCall(call["id"], of["name"], str(of.get("arguments", of.get("input", ""))))
        for call in message.get("tool_calls") or ()
        for of in [call.get("function") or call["custom"]]
    )
    after = {**body, "messages": [*body.get("messages", ()), message]}
    text, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    return AnswerView(text, reasoning, calls, after)


def _add_chat_results(body: Json, results: Results) -> Json:
    messages = [
        {"role": "tool", "tool_call_id": key, "content": result} for key, result in results.items()
    ]
    return {**body, "messages": [*_list(body, "messages"), *messages]} if messages else body


def _whole_response(conversed: Conversed, body: Json, client: str) -> Json:
    text = body.get("input")
    items = [{"role": "user", "content": text}] if isinstance(text, str) else _list(body, "input")
    request = {**body, "input": items, "store": False, "background": False}
    if conversation := request.pop("conversation", None):
        key = conversation.get("id") if isinstance(conversation, dict) else conversation
        request["input"] = [*conversed.conversations.get(client, str(key)).items, *items]
    return request


def _view_response(body: Json, answer: Json) -> AnswerView:
    output: list[Json] = answer["output"]
    calls = tuple(
        PlaygroundCall(
            item["call_id"], item["name"], str(item.get("arguments", item.get("input", "")))
        )
        for item in output
        if item["type"] in _CALL_OUTPUTS
    )
    texts = _texts(output, "message", "content")
    reasoning = [*_texts(output, "reasoning", "summary"), *_texts(output, "reasoning", "content")]
    after = {**body, "input": [*body["input"], *output]}
    return AnswerView("\n".join(texts), "\n".join(reasoning), calls, after)


_CALL_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}


def _add_response_results(body: Json, results: Results) -> Json:
    if not results:
        return body
    items = _list(body, "input")
    kinds = {
        str(item.get("call_id")): _CALL_OUTPUTS[item["type"]]
        for item in items
        if isinstance(item, dict) and str(item.get("type")) in _CALL_OUTPUTS
    }
    outputs = [
        {"type": kinds.get(key, "function_call_output"), "call_id": key, "output": result}
        for key, result in results.items()
    ]
    return {**body, "input": [*items, *outputs]}


def _list(body: Json, field: str) -> list[Any]:
    """Raises `BadRequest`."""
    value = body.get(field, [])
    if not isinstance(value, list):
        raise BadRequest(f"{field} must be a list here.", field)
    return value


def _texts(output: list[Json], kind: str, field: str) -> list[str]:
    return [
        part["text"]
        for item in output
        if item["type"] == kind
        for part in item.get(field) or ()
        if isinstance(part.get("text"), str)
    ]


def _whole_message(conversed: Conversed, body: Json, client: str) -> Json:
    if body.get("thread") is None:
        return body
    request = parse_body(dumps(body), MessagesRequest)
    joined = conversed.threads.joined(client, request)
    # The playground has the whole conversation, and leaves the client's thread as it is.
    return joined.model_copy(update={"thread": None}).model_dump(exclude_none=True)


def _view_message(body: Json, answer: Json) -> AnswerView:
    content: list[Json] = answer["content"]
    calls = tuple(
        PlaygroundCall(block["id"], block["name"], dumps(block["input"]).decode())
        for block in content
        if block["type"] == "tool_use"
    )
    after = [*body.get("messages", ()), {"role": "assistant", "content": content}]
    return AnswerView(
        "\n".join(block["text"] for block in content if block["type"] == "text"),
        "\n".join(block["thinking"] for block in content if block["type"] == "thinking"),
        calls,
        {**body, "messages": after},
    )


def _add_message_results(body: Json, results: Results) -> Json:
    blocks = [
        {"type": "tool_result", "tool_use_id": key, "content": result}
        for key, result in results.items()
    ]
    if not blocks:
        return body
    return {**body, "messages": [*_list(body, "messages"), {"role": "user", "content": blocks}]}


@dataclass(frozen=True)
class _Front:
    whole: Callable[[Conversed, Json, str], Json]
    """Returns a client's request with the conversation that it names. Raises `EmulatorError`."""
    view: Callable[[Json, Json], AnswerView]
    """Shows the answer to a request."""
    add_results: Callable[[Json, Results], Json]
    """Returns the request with the results of its calls. Raises `BadRequest`."""


PATHS: Mapping[str, _Front] = {
    CHAT: _Front(_whole_chat, _view_chat, _add_chat_results),
    RESPONSES: _Front(_whole_response, _view_response, _add_response_results),
    MESSAGES: _Front(_whole_message, _view_message, _add_message_results),
}


def path_of(path: str) -> str:
    """Return the key of `PATHS` for a recorded request's path, or "" if there is none."""
    return path if path in PATHS else ""
