"""Ask a proxy for responses over HTTP, and hold every byte that comes to OpenAI's schemas and rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.support import raw_http
from tests.support.openai_wire import validator

Json = dict[str, Any]

RESPONSE = validator("Response")
EVENT = validator("ResponseStreamEvent")

_IDS = re.compile(r"\b(resp|msg|rs|fc|call|ctc|fco)_[0-9a-f]{16,}\b")


def fetch(
    url: str, body: Mapping[str, Any] | None = None, *, method: str | None = None, key: str = "k"
) -> tuple[int, bytes]:
    """The status and the bytes of the answer."""
    status, _, data = raw_http.fetch(url, body, {"authorization": f"Bearer {key}"}, method)
    return status, data


def ask(proxy: str, body: Mapping[str, Any]) -> Json:
    """A response, as OpenAI describes one."""
    status, data = fetch(f"{proxy}/v1/responses", {**body, "stream": False})
    assert status == 200, data
    response = json.loads(data)
    RESPONSE.validate(response)
    return response


def ask_stream(proxy: str, body: Mapping[str, Any]) -> list[Json]:
    """The events of a stream, as OpenAI describes them."""
    status, data = fetch(f"{proxy}/v1/responses", {**body, "stream": True})
    assert status == 200, data
    return read_stream(data)


def read_stream(data: bytes) -> list[Json]:
    """Frames are exactly ``event: TYPE`` and ``data: JSON``, and there is no ``[DONE]``."""
    *frames, rest = data.decode().split("\n\n")
    assert rest == ""
    events = []
    for frame in frames:
        if frame.startswith(":"):
            continue  # a ping
        name, line = frame.split("\n")
        event = json.loads(line.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate(as_published(event))
        events.append(event)
    return events


def as_published(event: Json) -> Json:
    """The schema does not know ``"usage": null``, which OpenAI sends and Open Responses wants at first."""
    response = event.get("response", {})
    if response.get("usage", 0) is not None:
        return event
    return {**event, "response": {k: v for k, v in response.items() if k != "usage"}}


def check_events(events: list[Json]) -> Json:
    """The response that the events make: put together from them, and equal to what the last one holds.

    Asserts each rule that some client relies on.
    """
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    first, second, *between, last = events
    between = [one for one in between if one["type"] != "response.in_progress"]  # pings
    assert (first["type"], second["type"]) == ("response.created", "response.in_progress")
    assert first["response"] == second["response"]
    assert first["response"]["status"] == "in_progress" and first["response"]["output"] == []
    assert last["response"]["id"] == first["response"]["id"]
    output: dict[int, Json] = {}
    added: list[Json] = []
    open_items: dict[int, str] = {}
    """Output index -> the item's deltas so far."""
    for event in between:
        kind = event["type"].removeprefix("response.")
        index = event["output_index"]
        if kind == "output_item.added":
            assert index == len(added), "output indices are dense"
            may_be_open = {"mcp_call"}
            if event["item"]["type"] in ("mcp_call", "shell_call", "shell_call_output"):
                # a cell waits for the call
                may_be_open.add("code_interpreter_call")
            only_calls = all(added[one]["type"] in may_be_open for one in open_items)
            assert only_calls, "an item begins before the last one is done"
            added.append(event["item"])
            open_items[index] = ""
            continue
        assert index in open_items
        if kind == "output_item.done":
            item = output[index] = event["item"]
            assert item["id"] == added[index]["id"] and item["type"] == added[index]["type"]
            assert open_items.pop(index) == whole_text(item), "the deltas make the item"
            continue
        assert event.get("item_id", added[index]["id"]) == added[index]["id"]
        if kind == "shell_call_command.added":
            assert event["command_index"] == open_items[index].count("\0")
        if kind.startswith("shell_call_output_content"):
            if kind.endswith(".delta"):
                open_items[index] += event["delta"]["stdout"] + event["delta"]["stderr"]
            continue
        open_items[index] += event.get("delta", "")
        if kind == "shell_call_command.done":
            open_items[index] += "\0"
            continue
        if kind.endswith(".done"):
            [text] = [
                event[name]
                for name in ("text", "arguments", "input", "code", "part")
                if name in event
            ]
            assert (text if isinstance(text, str) else text["text"]) == open_items[index]
    assert not open_items, "every item is done"
    assert last["response"]["output"] == [item for _, item in sorted(output.items())]
    ids = [item["id"] for item in output.values()]
    assert len(set(ids)) == len(ids)
    return last["response"]


def whole_text(item: Json) -> str:
    match item["type"]:
        case "message":
            return "".join(part["text"] for part in item["content"])
        case "reasoning":
            return "".join(part["text"] for part in item["summary"])
        case "function_call" | "mcp_call":
            return str(item["arguments"])
        case "shell_call_output":
            return "".join(one["stdout"] + one["stderr"] for one in item["output"])
        case "custom_tool_call":
            return str(item["input"])
        case "code_interpreter_call":
            return str(item["code"])
        case "shell_call":
            return "".join(f"{command}\0" for command in item["action"]["commands"])
        case "local_shell_call" | "apply_patch_call":
            return ""  # they come without deltas
        case "web_search_call" | "file_search_call" | "image_generation_call":
            return ""
        case (
            "mcp_list_tools" | "mcp_approval_request" | "program" | "program_output" | "compaction"
        ):
            return ""
    raise AssertionError(item)


def without_ids(value: Json) -> Json:
    """``value`` with ids numbered as they come, and without times."""
    text = json.dumps(value)
    numbers: dict[str, int] = {}
    text = _IDS.sub(lambda m: f"{m[1]}_{numbers.setdefault(m[0], len(numbers))}", text)
    return {k: v for k, v in json.loads(text).items() if k not in ("created_at", "completed_at")}
