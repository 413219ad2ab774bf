"""The playground: read a pasted reply, ask a model and answer its calls by hand, replay a request."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field

from emulator import json_codec
from emulator.answering.pipeline import Pipeline
from emulator.errors import BadRequest, EmulatorError, NotFound
from emulator.explain import explain, read_tools
from emulator.protocol import parse_body
from emulator.settings import BUILT_IN_PROFILES, Settings
from emulator.traces import TraceReader
from emulator.web.inspector.fronts import PATHS, path_of
from emulator.web.inspector.playground import Asker
from emulator.web.inspector.rendering import Pages
from emulator.web.inspector.request_pages import viewer

_MOST = 2**20
_MOST_LENDERS = 20
"""Requests whose tools are offered."""
_RESULT = "result:"
"""Begins the fields with the results of calls; the call's id follows."""

TOOLS = """[{"type": "function", "function": {"name": "get_weather",
  "description": "Get the current weather of a place.",
  "parameters": {"type": "object", "properties": {"location": {"type": "string"}},
                 "required": ["location"]}}}]"""


class Pasted(BaseModel):
    """A reply to be read, and the tools (or the whole request) that it answers."""

    model_config = ConfigDict(extra="ignore")

    tools: str = Field(max_length=_MOST)
    reply: str = Field("", max_length=_MOST)
    profile: str = Field("", max_length=200)


class Question(BaseModel):
    """A request to be sent; further fields are the results of calls."""

    model_config = ConfigDict(extra="allow")

    path: str = Field("/v1/chat/completions", max_length=100)
    body: str = Field("", max_length=_MOST)
    tools: str = Field("[]", max_length=_MOST)
    model: str = Field("", max_length=500)
    question: str = Field("", max_length=_MOST)
    profile: str = Field("", max_length=200)


def add_playground(
    inspector: Blueprint, pages: Pages, asker: Asker, settings: Settings, kept: TraceReader
) -> None:
    pipeline = asker.pipeline
    profiles = ("", *BUILT_IN_PROFILES, *(row.name for row in settings.profiles))

    @inspector.get("/inspector/playground")
    def playground() -> Response:
        body, path = TOOLS, ""
        if key := request.args.get("replay", ""):
            trace = kept.get(key, viewer().client)
            path = "" if trace is None else path_of(trace.path)
            if trace is None or not path:
                raise NotFound("This request is not kept (any more), or cannot be replayed.")
            body = trace.body.decode(errors="replace")
        elif key := request.args.get("tools", ""):
            trace = kept.get(key, viewer().client)
            if trace is None:
                raise NotFound("This request is not kept (any more).")
            body = _tools_of(trace.body)
        recent = kept.page({}, viewer().client).rows
        lenders = [row for row in recent if row.words and path_of(row.path)][:_MOST_LENDERS]
        return pages.page(
            "playground.html", viewer=viewer(), here="playground", tools=body, path=path,
            lenders=lenders, replay=bool(path), profiles=profiles, models=_models(pipeline, viewer().asks_as),
        )  # fmt: skip

    @inspector.post("/inspector/playground/read")
    def read_reply() -> Response:
        pasted = parse_body(request.get_data(), Pasted)
        chosen = settings
        if pasted.profile:
            chosen = settings.model_copy(update={"profile": _known(pasted.profile, profiles)})
        asked = read_tools(pasted.tools.encode())
        told = explain(chosen, asked, pasted.reply or None, pipeline.engines)
        return pages.page("_explanation.html", explanation=told)

    @inspector.post("/inspector/playground/ask")
    def ask() -> Response:
        asked = parse_body(request.get_data(), Question)
        if asked.path not in PATHS:
            raise BadRequest(f"{asked.path!r} is none of {', '.join(PATHS)}.", "path")
        profile = _known(asked.profile, profiles)
        answer = asker.ask(asked.path, _body(asked), viewer().asks_as, profile)
        return pages.page(
            "_answer.html", answer=answer, profile=asked.profile,
            body=json_codec.dumps(answer.said.body).decode(),
        )  # fmt: skip


def _body(asked: Question) -> dict[str, Any]:
    """The request: as it was pasted, or made of a question and tools; with the results that came."""
    if asked.body:
        body = _json(asked.body, "The request")
        if not isinstance(body, dict):
            raise BadRequest("The request must be an object.")
        results = {
            name.removeprefix(_RESULT): str(value)
            for name, value in (asked.model_extra or {}).items()
            if name.startswith(_RESULT)
        }
        return PATHS[asked.path].tell(body, results)
    tools = read_tools(asked.tools.encode()).tools or []
    messages = [{"role": "user", "content": asked.question}]
    return {"model": asked.model, "messages": messages, **({"tools": tools} if tools else {})}


def _tools_of(body: bytes) -> str:
    """The tools of a request, as the page's text; Messages and Responses write them otherwise than chats.

    Raises `BadRequest`.
    """
    asked = _json(body.decode(errors="replace"), "The request")
    tools = asked.get("tools") if isinstance(asked, dict) else None
    if not isinstance(tools, list):
        raise BadRequest("This request has no tools.")
    tools = [_as_chat(tool) for tool in tools if isinstance(tool, dict)]
    return json_codec.dumps(tools, option=json_codec.INDENTED).decode()


def _as_chat(tool: dict[str, Any]) -> dict[str, Any]:
    if "input_schema" in tool:
        parameters = {"parameters": tool["input_schema"]}
    elif tool.get("type") == "function" and "function" not in tool:
        parameters = {"parameters": tool.get("parameters") or {}}
    else:
        return tool
    named = {name: tool[name] for name in ("name", "description") if name in tool}
    return {"type": "function", "function": {**named, **parameters}}


def _json(text: str, what: str) -> Any:
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON as error:
        raise BadRequest(f"{what} is not JSON: {error}") from error


def _known(profile: str, profiles: tuple[str, ...]) -> str:
    if profile not in profiles:
        raise BadRequest(f"There is no profile {profile!r}.")
    return profile


def _models(pipeline: Pipeline, client: str) -> list[str]:
    try:
        return [str(model["id"]) for model in pipeline.upstreams.models(client)]
    except EmulatorError:
        return []  # a name can be typed all the same
