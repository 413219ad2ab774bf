"""Convert input items of tools other than functions to function calls and their results.

An item of a hosted tool holds both the call and its result. Items without information for a model are
skipped. The items come from other servers' answers, so every field may be missing or malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from emulator.core import json_codec
from emulator.fronts.responses.hosted_items import SHELL_OUTPUT, item_id

Json: TypeAlias = dict[str, Any]

ConvertedCall: TypeAlias = tuple[str, Mapping[str, Any], str | None]
"""A call's name and arguments, and its result if the item has one."""


_OWN_SEARCH = re.compile(r"ws_[0-9a-f]{24}")


def _local_shell(item: Json) -> ConvertedCall:
    action = _without_empty(_object(item, "action"))
    action.pop("type", None)
    return "local_shell", action, None


def _shell(item: Json) -> ConvertedCall:
    return "shell", _without_empty(_object(item, "action")), None


def _apply_patch(item: Json) -> ConvertedCall:
    operation = _without_empty(_object(item, "operation"))
    return "apply_patch", {"operation": operation.pop("type", ""), **operation}, None


def _computer(item: Json) -> ConvertedCall:
    actions = item.get("actions") or [_object(item, "action")]
    return "computer", {"actions": actions}, None


def _web_search(item: Json) -> ConvertedCall | None:
    if _OWN_SEARCH.fullmatch(str(item.get("id"))):
        return None  # the call and its result are in the stored history
    action = _object(item, "action")
    kind = action.pop("type", "search")
    sources = [
        str(source["url"]) for source in _objects(action.pop("sources", None)) if source.get("url")
    ]
    if not sources:
        return None
    name = "web_search" if kind == "search" else f"web_{kind}"
    return name, _without_empty(action), "\n".join(sources)


def _file_search(item: Json) -> ConvertedCall | None:
    results = [
        f"{result.get('filename') or result.get('file_id') or 'file'}:\n{result['text']}"
        for result in _objects(item.get("results"))
        if result.get("text")
    ]
    if not results:
        return None
    return "file_search", {"queries": item.get("queries")}, "\n\n".join(results)


def _image(item: Json) -> ConvertedCall | None:
    if not item.get("result"):
        return None
    return "image_generation", {"prompt": item.get("revised_prompt")}, "[an image]"


CALLS: Mapping[str, Callable[[Json], ConvertedCall | None]] = {
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _apply_patch,
    "computer_call": _computer,
    "web_search_call": _web_search,
    "file_search_call": _file_search,
    "image_generation_call": _image,
}
"""A function returns None for an item without information for a model."""


def _shell_output(item: Json) -> str:
    """The output and the exit status of each command of a ``shell_call``; JSON if the proxy ran it."""
    if item.get("id") == item_id(SHELL_OUTPUT, str(item.get("call_id"))):
        return json_codec.dumps([*_objects(item.get("output"))]).decode()
    return "\n\n".join(map(_command_output, _objects(item.get("output"))))


def _command_output(command: Json) -> str:
    outcome = _object(command, "outcome")
    code = outcome.get("exit_code")
    status = "timed out" if outcome.get("type") == "timeout" else f"exit code {code}"
    texts = [str(command.get(name) or "").rstrip("\n") for name in ("stdout", "stderr")]
    return "\n".join([text for text in texts if text] + [f"[{status}]"])


def _patch_output(item: Json) -> str:
    status, text = item.get("status") or "completed", item.get("output")
    return f"[{status}]\n{_text(text)}" if text else f"[{status}]"


def output_status(item: Json) -> str:
    """`failed` if the item says so, or if one of its commands timed out or had a nonzero exit code."""
    for command in _objects(item.get("output")):
        outcome = _object(command, "outcome")
        if outcome.get("type") == "timeout" or outcome.get("exit_code") not in (None, 0):
            return "failed"
    status = item.get("status")
    return status if status in ("failed", "incomplete") else "completed"


def _screenshot(item: Json) -> Any:
    shot = _object(item, "output")
    url = shot.get("image_url")
    return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else "[a screenshot]"


OUTPUTS: Mapping[str, Callable[[Json], Any]] = {
    "local_shell_call_output": lambda item: item.get("output"),
    "shell_call_output": _shell_output,
    "apply_patch_call_output": _patch_output,
    "computer_call_output": _screenshot,
}

SKIPPED = frozenset(
    {
        "additional_tools",
        "compaction_trigger",
        "configuration_update",
        "mcp_list_tools",
    }
)
"""Types of items without information for a model. Added tools are tools of the request
(`tools.added_tools`), updates are its settings (`configuration`), a trigger asks for a summary
(`compaction`)."""


def _object(value: Json, name: str) -> Json:
    field = value.get(name)
    return dict(field) if isinstance(field, dict) else {}


def _objects(value: Any) -> Iterator[Json]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _without_empty(value: Json) -> Json:
    return {name: one for name, one in value.items() if one is not None and one != {}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_codec.dumps(value).decode()
