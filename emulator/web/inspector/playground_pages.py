"""The playground: read a pasted reply, send a request and answer its calls by hand, replay a request."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field

from emulator.answering.explain import explain, read_tools
from emulator.answering.pipeline import Pipeline
from emulator.core import json_codec
from emulator.core.errors import BadRequest, EmulatorError, NotFound
from emulator.core.front_paths import CHAT
from emulator.core.protocol import ChatCompletionRequest
from emulator.fronts.anthropic.tools import chat_tools
from emulator.fronts.responses.tools import nested
from emulator.settings.settings import BUILT_IN_PROFILES, Settings
from emulator.traces import Archive
from emulator.web.inspector.fronts import PATHS, path_of
from emulator.web.inspector.playground import Playground
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer
from emulator.web.inspector.request_view import reply_of
from emulator.web.routes.replies import body_as

_MAX_CHARS = 2**20
_MAX_TOOL_SOURCES = 20
"""Recent requests whose tools can be chosen."""
_RESULT = "result:"
"""Prefix of the form fields with results; the call's id follows."""

TOOLS = """[{"type": "function", "function": {"name": "get_weather",
  "description": "Get the current weather of a place.",
  "parameters": {"type": "object", "properties": {"location": {"type": "string"}},
                 "required": ["location"]}}}]"""

REPLY = """```python
get_weather(location="Oslo")
```"""


class ReadForm(BaseModel):
    """A reply to read, and the tools (or the whole request) that it answers."""

    model_config = ConfigDict(extra="ignore")

    tools: str = Field(max_length=_MAX_CHARS)
    reply: str = Field("", max_length=_MAX_CHARS)
    profile: str = Field("", max_length=200)


class SendForm(BaseModel):
    """A request to send; extra fields are results of calls."""

    model_config = ConfigDict(extra="allow")

    path: str = Field(CHAT, max_length=100)
    body: str = Field("", max_length=_MAX_CHARS)
    tools: str = Field("[]", max_length=_MAX_CHARS)
    model: str = Field("", max_length=500)
    question: str = Field("", max_length=_MAX_CHARS)
    profile: str = Field("", max_length=200)


def add_playground(
    inspector: Blueprint,
    pages: Pages,
    playground: Playground,
    pipeline: Pipeline,
    settings: Settings,
    recorded: Archive,
) -> None:
    profiles = ("", *BUILT_IN_PROFILES, *(row.name for row in settings.profiles))

    @inspector.get("/inspector/playground")
    def show_playground() -> Response:
        body, path, reply = TOOLS, "", REPLY
        if key := request.args.get("replay", ""):
            trace = recorded.get(key, viewer().client)
            path = "" if trace is None else path_of(trace.path)
            if trace is None or not path:
                raise NotFound("This request is not stored (any more), or cannot be replayed.")
            body = trace.body.decode(errors="replace")
            reply = reply_of(trace.turns[-1]) if trace.turns else ""
        elif key := request.args.get("tools", ""):
            trace = recorded.get(key, viewer().client)
            if trace is None:
                raise NotFound("This request is not stored (any more).")
            body = _tools_of(trace.body)
        recent = recorded.page({}, viewer().client).rows
        tool_sources = [row for row in recent if row.words and path_of(row.path)][
            :_MAX_TOOL_SOURCES
        ]
        return pages.page(
            "playground.html", viewer=viewer(), here="playground", tools=body, path=path,
            tool_sources=tool_sources, replay=bool(path), profiles=profiles,
            models=_models(pipeline, viewer().sends_as), reply=reply,
        )  # fmt: skip

    @inspector.post("/inspector/playground/read")
    def read_reply() -> Response:
        form = body_as(ReadForm)
        chosen = settings
        if form.profile:
            chosen = settings.model_copy(update={"profile": _check_profile(form.profile, profiles)})
        chat = _read_tools(form.tools)
        explanation = explain(chosen, chat, form.reply or None, pipeline.programs)
        return pages.page("_explanation.html", explanation=explanation)

    @inspector.post("/inspector/playground/ask")
    def send() -> Response:
        form = body_as(SendForm)
        if form.path not in PATHS:
            raise BadRequest(f"{form.path!r} is not one of {', '.join(PATHS)}.", "path")
        profile = _check_profile(form.profile, profiles)
        if not (form.body or form.model):
            form.model = "".join(_models(pipeline, viewer().sends_as)[:1])
        answer = playground.send(form.path, _body(form), viewer().sends_as, profile)
        return pages.page(
            "_answer.html", answer=answer, path=form.path, profile=form.profile,
            body=json_codec.dumps(answer.body).decode(),
        )  # fmt: skip


def _body(form: SendForm) -> dict[str, Any]:
    """Return the request: the pasted one with the results of its calls, or one made of question and tools."""
    if form.body:
        body = _json(form.body, "The request")
        if not isinstance(body, dict):
            raise BadRequest("The request must be an object.")
        results = {
            name.removeprefix(_RESULT): str(value)
            for name, value in (form.model_extra or {}).items()
            if name.startswith(_RESULT)
        }
        return PATHS[form.path].add_results(body, results)
    tools = _read_tools(form.tools).tools or []
    messages = [{"role": "user", "content": form.question}]
    return {"model": form.model, "messages": messages, **({"tools": tools} if tools else {})}


def _read_tools(text: str) -> ChatCompletionRequest:
    _json(text, "The field Tools")
    return read_tools(text.encode())


def _tools_of(body: bytes) -> str:
    """Return the tools of a request of any API, as Chat Completions writes them. Raises `BadRequest`."""
    parsed = _json(body.decode(errors="replace"), "The request")
    tools = parsed.get("tools") if isinstance(parsed, dict) else None
    if not isinstance(tools, list):
        raise BadRequest("This request has no tools.")
    tools = [_as_chat(tool) for tool in tools if isinstance(tool, dict)]
    return json_codec.dumps(tools, option=json_codec.INDENTED).decode()


def _as_chat(tool: dict[str, Any]) -> dict[str, Any]:
    return chat_tools([tool], None)[0] if "input_schema" in tool else nested(tool)


def _json(text: str, name: str) -> Any:
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON as error:
        raise BadRequest(f"{name} is not JSON: {error}") from error


def _check_profile(profile: str, profiles: tuple[str, ...]) -> str:
    if profile not in profiles:
        raise BadRequest(f"There is no profile {profile!r}.")
    return profile


def _models(pipeline: Pipeline, client: str) -> list[str]:
    try:
        return [str(model["id"]) for model in pipeline.upstreams.models(client)]
    except EmulatorError:
        return []  # a name can still be typed
