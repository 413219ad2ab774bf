"""Items of hosted calls in a request's input: ``mcp_list_tools``, ``mcp_call``, ``mcp_approval_request`` and
``mcp_approval_response``. Items of tool searches, here or at the client, too.

Their ids have the call's id after the prefix (`item_id`). The items may come from other servers' answers, so
every field may be missing or malformed. Knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from emulator.core import json_codec
from emulator.core.errors import BadRequest
from emulator.core.events import IMAGE

Json: TypeAlias = dict[str, Any]

CALL, APPROVAL, TOOL_SEARCH = "mcp_", "mcpr_", "tsc_"
"""The prefixes of the ids of calls, of approval requests and of tool searches."""
SEARCH, FILES, IMAGES = "ws_", "fs_", "ig_"
"""Of OpenAI's types: web searches, file searches and images."""
FOUND = "tso_"
SHELL_CALL, SHELL_OUTPUT = "sh_", "sho_"
_CALL_ID = "call_"


def item_id(prefix: str, call_id: str) -> str:
    """Return the id of the item of a call."""
    return prefix + call_id.removeprefix(_CALL_ID)


def call_id(item_id: str) -> str:
    """Return the id of the call to which an item belongs: of its ``mcp_call`` or its approval request."""
    for prefix in (APPROVAL, TOOL_SEARCH, FOUND, CALL):
        item_id = item_id.removeprefix(prefix)
    return _CALL_ID + item_id


def mcp_call(item: Json) -> Iterator[Json]:
    """A call and its output. One that has not ended is skipped: its approval request, if any, is another
    item."""
    if (output := _output(item)) is None:
        return
    call = _hosted_call(item)
    part, failed = {"type": "input_text", "text": output}, item.get("error") is not None
    status = "failed" if failed else "completed"
    yield call
    ids = {"id": item["id"], "call_id": call["call_id"]}
    yield {**ids, "type": "function_call_output", "output": [part], "status": status}


def approval_request(item: Json) -> Iterator[Json]:
    """A call without its output."""
    yield _hosted_call(item)


def _hosted_call(item: Json) -> Json:
    return {
        "id": item["id"],
        "call_id": call_id(str(item.get("approval_request_id") or item["id"])),
        "type": "function_call",
        "name": str(item.get("name") or "mcp"),
        "server": str(item.get("server_label") or ""),
        "arguments": _arguments(item.get("arguments")),
        "caller": item.get("caller"),
    }


def found_tools(item: Json) -> Iterator[Json]:
    """The output of a search for tools."""
    tools = item.get("tools")
    found = [t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []
    ids = {"id": item["id"], "call_id": item.get("call_id") or call_id(item["id"])}
    yield {"type": "function_call_output", **ids, "output": [], "found": found}


def tool_search(item: Json) -> Iterator[Json]:
    """The call of a search that the client or this proxy runs."""
    arguments, key = item.get("arguments"), str(item["id"])
    arguments = arguments if isinstance(arguments, dict) else {}
    call = {"type": "function_call", "id": key, "arguments": json_codec.dumps(arguments).decode()}
    if item.get("execution") == "client":
        yield {**call, "call_id": item.get("call_id") or key, "name": "tool_search"}
    elif key.startswith(TOOL_SEARCH) and "query" in arguments:
        yield {**call, "call_id": call_id(key), "name": "search_tools", "server": ""}


def check_approvals(history: Sequence[Json], input_items: Sequence[Json]) -> None:
    """Raises `BadRequest` if an approval answers a request that is not in the conversation."""
    items = [*history, *input_items]
    requested = {item["id"] for item in items if item["type"] == "mcp_approval_request"}
    for n, item in enumerate(input_items):
        if item["type"] == "mcp_approval_response":
            key = item.get("approval_request_id")
            if not isinstance(key, str) or key not in requested:
                place = f"input[{n}].approval_request_id"
                message = (
                    f"{place} is {key!r:.100}, which the conversation does not contain: send the"
                    " mcp_approval_request item too, or previous_response_id."
                )
                raise BadRequest(message, param=place)


def check_no_credentials(item: Json, place: str) -> None:
    """Raises `BadRequest` if an item adds a server with credentials, which must not be stored."""
    tools = item.get("tools")
    for n, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "mcp":
            for name in ("authorization", "headers"):
                if tool.get(name):
                    at = f"{place}.tools[{n}].{name}"
                    raise BadRequest(f"{at}: credentials belong in the request's tools.", param=at)


def listed_servers(items: Sequence[Json]) -> dict[str, list[Json]]:
    """Return the lists of tools that the conversation contains, by the server's label; the latest counts."""
    listed: dict[str, list[Json]] = {}
    for item in items:
        label, tools = item.get("server_label"), item.get("tools")
        if item["type"] != "mcp_list_tools" or not isinstance(label, str):
            continue
        if item.get("error") is None and isinstance(tools, list):
            listed[label] = [tool for tool in tools if isinstance(tool, dict)]
    return listed


def used_containers(items: Sequence[Json]) -> list[tuple[str, str]]:
    """Return the type of the tool and the container of each cell and shell call, the latest last."""
    used: list[tuple[str, Any]] = []
    for item in items:
        if item["type"] == "code_interpreter_call":
            used.append(("code_interpreter", item.get("container_id")))
        elif item["type"] == "shell_call" and isinstance(item.get("environment"), Mapping):
            used.append(("shell", item["environment"].get("container_id")))
    return [(kind, one) for kind, one in used if isinstance(one, str)]


def _arguments(text: Any) -> str:
    try:
        if isinstance(json_codec.loads(str(text or "{}")), dict):
            return str(text or "{}")
    except json_codec.NotJSON:
        pass
    return json_codec.dumps({"arguments": text}).decode()


def _output(item: Json) -> str | None:
    error = item.get("error")
    if isinstance(error, Mapping) and error.get("type") == "mcp_tool_execution_error":
        return text_of(error.get("content"))
    if error is not None:
        return f"error: {_text(error)}"
    output = item.get("output")
    return None if output is None else _text(output)


def text_of(content: Any) -> str:
    """Return a result's text; a part that is not text is only mentioned."""
    if not isinstance(content, list):
        return _text(content)
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    return "\n".join(text if isinstance(text, str) else IMAGE for text in texts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_codec.dumps(value).decode()
