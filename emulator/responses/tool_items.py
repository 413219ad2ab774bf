"""Input items of tools other than functions, told as calls of functions and their results.

A hosted tool's item holds both, the call and what came of it; those that hold nothing for a model are left
out. They come from other servers' answers, so nothing in them is taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from emulator import json_codec

Json: TypeAlias = dict[str, Any]

Told: TypeAlias = tuple[str, Mapping[str, Any], str | None]
"""A call's name and arguments, and its result if the item has one."""


def call(item: Json) -> Told | None:
    """The call that an item of a type in `CALLS` stands for; None if it tells a model nothing."""
    return CALLS[item["type"]](item)


def output(item: Json) -> Any:
    """The output of an item of a type in `OUTPUTS`: text or parts."""
    return OUTPUTS[item["type"]](item)


def _local_shell(item: Json) -> Told:
    action = _without_nothing(_object(item, "action"))
    action.pop("type", None)
    return "local_shell", action, None


def _shell(item: Json) -> Told:
    return "shell", _without_nothing(_object(item, "action")), None


def _apply_patch(item: Json) -> Told:
    operation = _without_nothing(_object(item, "operation"))
    return "apply_patch", {"operation": operation.pop("type", ""), **operation}, None


def _computer(item: Json) -> Told:
    actions = item.get("actions") or [_object(item, "action")]
    return "computer", {"actions": actions}, None


def _tool_search(item: Json) -> None:
    """What it found has become tools of the request (`tools.further`)."""


def _web_search(item: Json) -> Told | None:
    action = _object(item, "action")
    kind = action.pop("type", "search")
    sources = [
        str(source["url"]) for source in _objects(action.pop("sources", None)) if source.get("url")
    ]
    if not sources:
        return None
    name = "web_search" if kind == "search" else f"web_{kind}"
    return name, _without_nothing(action), "\n".join(sources)


def _file_search(item: Json) -> Told | None:
    found = [
        f"{result.get('filename') or result.get('file_id') or 'file'}:\n{result['text']}"
        for result in _objects(item.get("results"))
        if result.get("text")
    ]
    return ("file_search", {"queries": item.get("queries")}, "\n\n".join(found)) if found else None


def _mcp(item: Json) -> Told | None:
    error = item.get("error")
    result = item.get("output") if error is None else f"error: {_text(error)}"
    if result is None:
        return None
    try:
        arguments = json_codec.loads(str(item.get("arguments") or "{}"))
    except json_codec.NotJSON:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"arguments": item.get("arguments")}
    return str(item.get("name") or "mcp"), arguments, _text(result)


def _picture(item: Json) -> Told | None:
    if not item.get("result"):
        return None
    return "image_generation", {"prompt": item.get("revised_prompt")}, "[a picture]"


CALLS: Mapping[str, Callable[[Json], Told | None]] = {
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _apply_patch,
    "computer_call": _computer,
    "tool_search_call": _tool_search,
    "web_search_call": _web_search,
    "file_search_call": _file_search,
    "mcp_call": _mcp,
    "image_generation_call": _picture,
}


def _streams(item: Json) -> str:
    """What each command of a ``shell_call`` wrote, and how it ended."""
    return "\n\n".join(_ended(one) for one in _objects(item.get("output")))


def _ended(command: Json) -> str:
    outcome = _object(command, "outcome")
    code = outcome.get("exit_code")
    how = "timed out" if outcome.get("type") == "timeout" else f"exit code {code}"
    texts = [str(command.get(name) or "").rstrip("\n") for name in ("stdout", "stderr")]
    return "\n".join([text for text in texts if text] + [f"[{how}]"])


def _patched(item: Json) -> str:
    status, said = item.get("status") or "completed", item.get("output")
    return f"[{status}]\n{_text(said)}" if said else f"[{status}]"


def _screen(item: Json) -> Any:
    shot = _object(item, "output")
    url = shot.get("image_url")
    return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else "[a screenshot]"


OUTPUTS: Mapping[str, Callable[[Json], Any]] = {
    "local_shell_call_output": lambda item: item.get("output"),
    "shell_call_output": _streams,
    "apply_patch_call_output": _patched,
    "computer_call_output": _screen,
}

SKIPPED = frozenset(
    {
        "additional_tools",
        "compaction_trigger",
        "configuration_update",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_list_tools",
        "program",
        "program_output",
        "tool_search_output",
    }
)
"""Types of items that hold nothing for a model. A program's calls are items of their own."""


def _object(value: Json, name: str) -> Json:
    found = value.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _objects(value: Any) -> Iterator[Json]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _without_nothing(value: Json) -> Json:
    return {name: one for name, one in value.items() if one is not None and one != {}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_codec.dumps(value).decode()
