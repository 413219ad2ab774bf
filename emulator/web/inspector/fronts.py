"""How the playground uses each API: send a request, show the answer, add the results of its calls.

Each API uses the pipeline of the `ResponseFront` that it gets; only ``/v1/responses`` uses the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.anthropic import front as anthropic
from emulator.anthropic.message import collect as collect_message
from emulator.anthropic.request import MessagesRequest
from emulator.anthropic.threads import Threads, open_threads
from emulator.chat.chunks import collect as collect_chunks
from emulator.chat.front import complete
from emulator.errors import BadRequest
from emulator.json_codec import dumps
from emulator.protocol import parse_body, parse_chat
from emulator.responses.front import ResponseFront, last
from emulator.responses.request import parse_request

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


def _ask_chat(front: ResponseFront, body: Json, client: str) -> AnswerView:
    chat = parse_chat(dumps({**body, "stream": False}))
    chunks = complete(front.pipeline, front.pipeline.read(chat, client))
    next(chunks)
    message: Json = collect_chunks(chunks)["choices"][0]["message"]
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


def _ask_response(front: ResponseFront, body: Json, client: str) -> AnswerView:
    text = body.get("input")
    items = [{"role": "user", "content": text}] if isinstance(text, str) else _list(body, "input")
    request = {**body, "input": items, "stream": False, "store": False, "background": False}
    if conversation := request.pop("conversation", None):
        key = conversation.get("id") if isinstance(conversation, dict) else conversation
        request["input"] = [*front.conversations.get(client, str(key)).items, *items]
    answer = front.answer(client, *parse_request(dumps(request)))
    next(answer.events)
    output: list[Json] = last(answer.events)["response"]["output"]
    calls = tuple(
        PlaygroundCall(
            item["call_id"], item["name"], str(item.get("arguments", item.get("input", "")))
        )
        for item in output
        if item["type"] in _CALL_OUTPUTS
    )
    texts = _texts(output, "message", "content")
    return AnswerView(
        "\n".join(texts),
        "\n".join(
            [*_texts(output, "reasoning", "summary"), *_texts(output, "reasoning", "content")]
        ),
        calls,
        {**request, "input": [*request["input"], *output]},
    )


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


def _ask_message(front: ResponseFront, body: Json, client: str) -> AnswerView:
    request = parse_body(dumps({**body, "stream": False}), MessagesRequest)
    # The playground has the whole conversation, and leaves the client's thread as it is.
    joined = open_threads(front.stored.database).joined(client, request)
    joined = joined.model_copy(update={"thread": None})
    body = joined.model_dump(exclude_none=True)
    answer = anthropic.answer(front.pipeline, Threads(), joined, client)
    next(answer.events)
    content: list[Json] = collect_message(answer.events)["content"]
    calls = tuple(
        PlaygroundCall(block["id"], block["name"], dumps(block["input"]).decode())
        for block in content
        if block["type"] == "tool_use"
    )
    return AnswerView(
        "\n".join(block["text"] for block in content if block["type"] == "text"),
        "\n".join(block["thinking"] for block in content if block["type"] == "thinking"),
        calls,
        {
            **body,
            "messages": [*body.get("messages", ()), {"role": "assistant", "content": content}],
        },
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
    ask: Callable[[ResponseFront, Json, str], AnswerView]
    """Raises `EmulatorError`."""
    add_results: Callable[[Json, Results], Json]
    """Returns the request with the results of its calls. Raises `BadRequest`."""


PATHS: Mapping[str, _Front] = {
    "/v1/chat/completions": _Front(_ask_chat, _add_chat_results),
    "/v1/responses": _Front(_ask_response, _add_response_results),
    "/v1/messages": _Front(_ask_message, _add_message_results),
}


def path_of(path: str) -> str:
    """Return the key of `PATHS` for a recorded request's path, or "" if there is none."""
    return path if path in PATHS else ""
