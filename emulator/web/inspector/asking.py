"""Ask a model from a page: the same line as any request takes, recorded like one.

A request of any front can be sent, and its calls be answered by hand: what comes next is made of it and the
answer. Nothing is streamed, kept, added to a conversation or made in the background for a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emulator import traces
from emulator.answering.asked import Asked
from emulator.answering.pipeline import Pipeline
from emulator.anthropic import front as anthropic
from emulator.anthropic.request import MessagesRequest
from emulator.anthropic.writer import collect as collect_message
from emulator.chat.chunks import collect as collect_chunks
from emulator.chat.front import complete
from emulator.errors import BadRequest, EmulatorError
from emulator.events import new_id
from emulator.json_codec import dumps
from emulator.protocol import ChatCompletionRequest, parse_body, parse_chat
from emulator.responses.front import ResponseFront, last
from emulator.responses.request import parse_request
from emulator.settings import Order
from emulator.traces import Traces
from emulator.upstream.routes import Route, Target

Json = dict[str, Any]
Results = Mapping[str, str]
"""Id of a call -> what it gave."""


@dataclass(frozen=True)
class AskedCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """An answer as a page shows it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[AskedCall, ...] = ()
    body: Json | None = None
    """The request with this answer in it, to which results are added."""


@dataclass(frozen=True)
class Answer:
    """``request`` is the id under which it was recorded."""

    request: str
    path: str
    said: Said
    error: str = ""


@dataclass(frozen=True)
class Asker:
    """Answers requests of a viewer."""

    pipeline: Pipeline
    responses: ResponseFront
    requests: Traces

    def ask(self, path: str, body: Json, client: str, profile: str = "") -> Answer:
        """``path`` is one of `PATHS`; ``profile``, if any, in place of the one that the model's name
        chooses. Does not raise."""
        key = new_id("req_")
        sent = dumps({**body, "stream": False})
        trace = self.requests.begin(key, "POST", path, str(client), sent, path)
        token = traces.current.set(trace)
        said = Said()
        failed: EmulatorError | None = None
        pipeline = self.pipeline
        if profile:
            pipeline = _Profiled(**vars(pipeline), chosen=profile)
        try:
            said = PATHS[path].ask(replace(self, pipeline=pipeline), body, client)
        except EmulatorError as error:
            failed = error
        finally:
            traces.current.reset(token)
        if trace is not None:
            trace.status = 200 if failed is None else failed.status
            if failed is None:
                trace.answered(dumps({"text": said.text, "calls": said.calls}))
            else:
                trace.failed(failed.message, failed.code)
            self.requests.finish(trace)
        return Answer(key, path, said, "" if failed is None else failed.message)


@dataclass(frozen=True, kw_only=True)
class _Profiled(Pipeline):
    """A pipeline that reads each request with one profile."""

    chosen: str

    def read(
        self,
        request: ChatCompletionRequest,
        client: str = "",
        *,
        interpreter_by_default: bool = False,
        order: Order | None = None,
    ) -> Asked:
        asked = super().read(
            request, client, interpreter_by_default=interpreter_by_default, order=order
        )
        return asked.instead(_with_profile(asked.route, self.chosen))


def _with_profile(route: Route, profile: str) -> Route:
    target = route.target
    settings = target.settings.model_copy(update={"profile": profile})
    named = Target(
        target.name, settings, target.patterns, target.strip, target.headers, target.query
    )
    return Route(named, route.model, route.asked)


def _ask_chat(asker: Asker, body: Json, client: str) -> Said:
    chat = parse_chat(dumps({**body, "stream": False}))
    chunks = complete(asker.pipeline, asker.pipeline.read(chat, client))
    next(chunks)
    message: Json = collect_chunks(chunks)["choices"][0]["message"]
    calls = tuple(
        AskedCall(call["id"], of["name"], str(of.get("arguments", of.get("input", ""))))
        for call in message.get("tool_calls") or ()
        for of in [call.get("function") or call["custom"]]
    )
    after = {**body, "messages": [*body.get("messages", ()), message]}
    text, reasoning = message.get("content") or "", message.get("reasoning_content") or ""
    return Said(text, reasoning, calls, after)


def _tell_chat(body: Json, results: Results) -> Json:
    told = [
        {"role": "tool", "tool_call_id": key, "content": result} for key, result in results.items()
    ]
    return {**body, "messages": [*_list(body, "messages"), *told]} if told else body


def _ask_response(asker: Asker, body: Json, client: str) -> Said:
    front = replace(asker.responses, pipeline=asker.pipeline)
    given = body.get("input", [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _list(body, "input")
    asked = {**body, "input": items, "stream": False, "store": False, "background": False}
    if conversation := asked.pop("conversation", None):
        key = conversation.get("id") if isinstance(conversation, dict) else conversation
        asked["input"] = [*front.conversations.get(client, str(key)).items, *items]
    answer = front.answer(client, *parse_request(dumps(asked)))
    next(answer.events)
    output: list[Json] = last(answer.events)["response"]["output"]
    calls = tuple(
        AskedCall(item["call_id"], item["name"], str(item.get("arguments", item.get("input", ""))))
        for item in output
        if item["type"] in _CALL_OUTPUTS
    )
    texts = _texts(output, "message", "content")
    return Said(
        "\n".join(texts),
        "\n".join(
            [*_texts(output, "reasoning", "summary"), *_texts(output, "reasoning", "content")]
        ),
        calls,
        {**asked, "input": [*asked["input"], *output]},
    )


_CALL_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}


def _tell_response(body: Json, results: Results) -> Json:
    if not results:
        return body
    items = _list(body, "input")
    kinds = {
        str(item.get("call_id")): _CALL_OUTPUTS[item["type"]]
        for item in items
        if isinstance(item, dict) and str(item.get("type")) in _CALL_OUTPUTS
    }
    told = [
        {"type": kinds.get(key, "function_call_output"), "call_id": key, "output": result}
        for key, result in results.items()
    ]
    return {**body, "input": [*items, *told]}


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


def _ask_message(asker: Asker, body: Json, client: str) -> Said:
    asked = parse_body(dumps({**body, "stream": False}), MessagesRequest)
    answer = anthropic.answer(asker.pipeline, asked, client)
    next(answer.events)
    content: list[Json] = collect_message(answer.events)["content"]
    calls = tuple(
        AskedCall(block["id"], block["name"], dumps(block["input"]).decode())
        for block in content
        if block["type"] == "tool_use"
    )
    return Said(
        "\n".join(block["text"] for block in content if block["type"] == "text"),
        "\n".join(block["thinking"] for block in content if block["type"] == "thinking"),
        calls,
        {
            **body,
            "messages": [*body.get("messages", ()), {"role": "assistant", "content": content}],
        },
    )


def _tell_message(body: Json, results: Results) -> Json:
    told = [
        {"type": "tool_result", "tool_use_id": key, "content": result}
        for key, result in results.items()
    ]
    if not told:
        return body
    return {**body, "messages": [*_list(body, "messages"), {"role": "user", "content": told}]}


@dataclass(frozen=True)
class _Front:
    ask: Callable[[Asker, Json, str], Said]
    """Raises `EmulatorError`."""
    tell: Callable[[Json, Results], Json]
    """The request with the results of its calls."""


PATHS: Mapping[str, _Front] = {
    "/v1/chat/completions": _Front(_ask_chat, _tell_chat),
    "/v1/responses": _Front(_ask_response, _tell_response),
    "/v1/messages": _Front(_ask_message, _tell_message),
}


def path_of(path: str) -> str:
    """The one of `PATHS` that a recorded request had asked; "" if it was none of them."""
    named = "/v1" + path.removeprefix("/v1")
    return named if named in PATHS else ""
