"""One question over each of the three APIs, plain or streamed, through the official SDKs' own readers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from anthropic.types import Message, RawMessageStreamEvent
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.raw_http import fetch

Json = dict[str, Any]
Api = Literal["chat", "responses", "messages"]
APIS: tuple[Api, ...] = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
# The SDKs build their values without checks; these check.
_CHUNK: TypeAdapter[Any] = TypeAdapter(ChatCompletionChunk)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_MESSAGE_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@dataclass(frozen=True)
class Outcome:
    status: int
    text: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    reasoning: str = ""
    error: str = ""
    """The message of an error, of its own status or at the end of a stream."""


def request_body(api: Api, tool: Json | None, *, stream: bool, model: str = "m") -> Json:
    """A question, with one function tool (in Chat's form) or none."""
    question = [{"role": "user", "content": "How is the weather?"}]
    tools: list[Json] = []
    if tool is not None:
        inner = tool["function"]
        as_message = {"name": inner["name"], "input_schema": inner["parameters"]}
        tools = [{"chat": tool, "responses": {"type": "function", **inner}}.get(api, as_message)]
    fields: Json = {"model": model, "stream": stream, "tools": tools}
    if not tools:
        del fields["tools"]
    match api:
        case "chat":
            return {**fields, "messages": question}
        case "responses":
            return {**fields, "input": question, "store": False}
        case "messages":
            return {**fields, "messages": question, "max_tokens": 999}


def ask(
    url: str, api: Api, tool: Json | None, *, stream: bool, model: str = "m", **fields: Any
) -> Outcome:
    """Asserts that every event and every answer is of the shape that the SDK of its API declares."""
    body = {**request_body(api, tool, stream=stream, model=model), **fields}
    status, _, raw = fetch(url + PATHS[api], body)
    if status != 200:
        error = json.loads(raw)["error"]
        return Outcome(status, error=error["message"])
    if stream:
        lines = raw.decode().split("\n")
        return _streamed(api, [line[6:] for line in lines if line.startswith("data: ")])
    answer = json.loads(raw)
    return {"chat": _completion, "responses": _response, "messages": _message}[api](answer)


def _streamed(api: Api, data: list[str]) -> Outcome:
    events = [json.loads(line) for line in data if line != "[DONE]"]
    if api == "chat":
        assert (data[-1] == "[DONE]") == ("error" not in events[-1])
    return {"chat": _chunks, "responses": _response_events, "messages": _message_events}[api](
        events
    )


def _chunks(events: list[Json]) -> Outcome:
    if "error" in events[-1]:
        return Outcome(200, error=events[-1]["error"]["message"])
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(_CHUNK.validate_python(event))
    answer = state.current_completion_snapshot.to_dict(mode="json", warnings=False)
    for call in answer["choices"][0]["message"].get("tool_calls") or ():  # type: ignore[index]
        call["function"].pop("parsed_arguments", None)
    return _completion(answer)


def _response_events(events: list[Json]) -> Outcome:
    for event in events:
        _EVENT.validate_python(event)
    last = events[-1]
    if last["type"] in ("error", "response.failed"):
        error = last.get("error") or last.get("response", {}).get("error") or last
        return Outcome(200, error=error["message"])
    return _response(last["response"])


def _message_events(events: list[Json]) -> Outcome:
    if events[-1]["type"] == "error":
        return Outcome(200, error=events[-1]["error"]["message"])
    content: list[Json] = []
    for event in events:
        if event["type"] == "ping":
            continue
        _MESSAGE_EVENT.validate_python(event)
        if event["type"] == "content_block_start":
            assert event["index"] == len(content)
            content.append({**event["content_block"], "partial_json": ""})
        elif event["type"] == "content_block_delta":
            for name, text in event["delta"].items():
                if name != "type":
                    content[-1][name] = content[-1].get(name, "") + text
    assert events[-1]["type"] == "message_stop"
    for block in content:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["partial_json"] or "{}")
    return _blocks(content)


def _completion(answer: Json) -> Outcome:
    ChatCompletion.model_validate(answer)
    [choice] = answer["choices"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    assert (choice["finish_reason"] == "tool_calls") == bool(calls)
    made = tuple((call["name"], json.loads(call["arguments"])) for call in calls)
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return Outcome(200, message.get("content") or message.get("refusal") or "", made, reasoning)


def _response(answer: Json) -> Outcome:
    Response.model_validate(answer)
    text, calls, reasoning = "", [], ""
    for item in answer["output"]:
        match item["type"]:
            case "message":
                text += "".join(part.get("text", "") for part in item["content"])
            case "function_call":
                calls.append((item["name"], json.loads(item["arguments"])))
            case "reasoning":
                parts = item.get("content") or item["summary"]
                reasoning += "".join(part["text"] for part in parts)
    return Outcome(200, text, tuple(calls), reasoning)


def _message(answer: Json) -> Outcome:
    Message.model_validate(answer)
    return _blocks(answer["content"])


def _blocks(content: list[Json]) -> Outcome:
    text = "".join(block["text"] for block in content if block["type"] == "text")
    calls = [(block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    reasoning = "".join(block["thinking"] for block in content if block["type"] == "thinking")
    return Outcome(200, text, tuple(calls), reasoning)
