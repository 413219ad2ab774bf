"""The response object before its first item, and the parts of it that a client sees."""

from __future__ import annotations

import time
from collections.abc import Collection

from emulator.core.events import new_id
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.request import CODE_OUTPUTS, FILE_RESULTS, SOURCES, ResponseRequest
from emulator.hosted.credentials import without_credentials


def initial_response(request: ResponseRequest) -> Json:
    """Return a response in progress: the request's fields, with defaults for those that it omits."""
    text = request.text.model_dump(by_alias=True, exclude_none=True) if request.text else {}
    response = {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "background": bool(request.background),
        "error": None,
        "frequency_penalty": _number(request, "frequency_penalty", 0.0),
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "presence_penalty": _number(request, "presence_penalty", 0.0),
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {
            "effort": request.reasoning and request.reasoning.effort,
            "summary": _summary(request),
        },
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": request.store is not False,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": request.tool_choice or "auto",
        "tools": [_tool(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "usage": None,
        "truncation": "disabled",  # even if requested otherwise: the proxy never truncates the input
    }
    if request.conversation is not None:
        response["conversation"] = {"id": request.conversation}
    return {**response, "user": request.user} if request.user is not None else response


def _number(request: ResponseRequest, name: str, default: float) -> float:
    """Return a number from the fields that go upstream unchanged."""
    value = (request.model_extra or {}).get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _summary(request: ResponseRequest) -> str | None:
    """Return the requested summary if it is one of OpenAI's values; some clients send ``"none"``."""
    summary = request.reasoning.summary if request.reasoning else None
    return summary if summary in ("auto", "concise", "detailed") else None


def visible(event: Json, include: Collection[str] = ()) -> Json:
    """Return an event, a response or an item, without what a client gets only if its ``include`` names it."""
    if "response" in event:
        return {**event, "response": visible(event["response"], include)}
    if "output" in event and event.get("object") == "response":
        return {**event, "output": [visible(item, include) for item in event["output"]]}
    if "item" in event:
        return {**event, "item": visible(event["item"], include)}
    match event.get("type"):
        case "code_interpreter_call" if CODE_OUTPUTS not in include:
            return {**event, "outputs": None}
        case "file_search_call" if FILE_RESULTS not in include:
            return {**event, "results": None}
        case "web_search_call" if SOURCES not in include and isinstance(event.get("action"), dict):
            shown = {name: value for name, value in event["action"].items() if name != "sources"}
            return {**event, "action": shown}
    return event


def _tool(tool: Json) -> Json:
    """Return a tool as OpenAI echoes it: flat, with defaults for omitted fields, and without credentials."""
    kind = tool["type"]
    if kind == "mcp":
        return {**_MCP_DEFAULTS, **without_credentials(tool)}
    if kind not in ("function", "custom"):
        return tool
    inside = tool.get(kind)
    flat = {**(inside if isinstance(inside, dict) else tool), "type": kind}
    return (
        {"description": None, "strict": True, "parameters": None, **flat}
        if kind == "function"
        else flat
    )


_MCP_DEFAULTS: Json = {
    "allowed_tools": None,
    "headers": None,
    "require_approval": "always",
}
