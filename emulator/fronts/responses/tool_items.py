"""Convert input items of tools other than functions to function calls and their results.

An item of a hosted tool holds both the call and its result; one without information for a model becomes
nothing. The items come from other servers' answers, so every field may be missing or malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from emulator.core import json_codec
from emulator.core.events import IMAGE
from emulator.fronts.responses.hosted_items import FILES, IMAGES, SEARCH, SHELL_OUTPUT, item_id

Json: TypeAlias = dict[str, Any]

_OWN = re.compile(rf"({SEARCH}|{FILES}|{IMAGES})[0-9a-f]{{24}}")
"""The id of a call that ran here. The call and its result are in the stored history."""


def local_shell(item: Json) -> Iterator[Json]:
    action = _without_empty(_object(item, "action"))
    action.pop("type", None)
    yield _call(item, "local_shell", action)


def shell(item: Json) -> Iterator[Json]:
    yield _call(item, "shell", _without_empty(_object(item, "action")))


def apply_patch(item: Json) -> Iterator[Json]:
    operation = _without_empty(_object(item, "operation"))
    yield _call(item, "apply_patch", {"operation": operation.pop("type", ""), **operation})


def computer(item: Json) -> Iterator[Json]:
    yield _call(item, "computer", {"actions": item.get("actions") or [_object(item, "action")]})


def web_search(item: Json) -> Iterator[Json]:
    action = _object(item, "action")
    kind = action.pop("type", "search")
    sources = [
        str(source["url"]) for source in _objects(action.pop("sources", None)) if source.get("url")
    ]
    if sources and not _is_own(item):
        name = "web_search" if kind == "search" else f"web_{kind}"
        yield _call(item, name, _without_empty(action))
        yield _result(item, "\n".join(sources))


def file_search(item: Json) -> Iterator[Json]:
    results = [
        f"{result.get('filename') or result.get('file_id') or 'file'}:\n{result['text']}"
        for result in _objects(item.get("results"))
        if result.get("text")
    ]
    if results and not _is_own(item):
        yield _call(item, "file_search", {"queries": item.get("queries")})
        yield _result(item, "\n\n".join(results))


def image(item: Json) -> Iterator[Json]:
    if item.get("result") and not _is_own(item):
        yield _call(item, "image_generation", {"prompt": item.get("revised_prompt")})
        yield _result(item, IMAGE)


def shell_output(item: Json) -> Iterator[Json]:
    """The output and the exit status of each command of a ``shell_call``; JSON if the proxy ran it."""
    outputs = [*_objects(item.get("output"))]
    if item.get("id") == item_id(SHELL_OUTPUT, str(item.get("call_id"))):
        text = json_codec.dumps(outputs).decode()
    else:
        text = "\n\n".join(map(_command_output, outputs))
    yield _result(item, text, _status(item))


def patch_output(item: Json) -> Iterator[Json]:
    status, text = item.get("status") or "completed", item.get("output")
    output = f"[{status}]\n{_text(text)}" if text else f"[{status}]"
    yield _result(item, output, _status(item))


def local_shell_output(item: Json) -> Iterator[Json]:
    yield _result(item, item.get("output"), _status(item))


def screenshot(item: Json) -> Iterator[Json]:
    url = _object(item, "output").get("image_url")
    parts = (
        [{"type": "input_image", "image_url": url}] if isinstance(url, str) else "[a screenshot]"
    )
    yield _result(item, parts, _status(item))


def _call(item: Json, name: str, arguments: Mapping[str, Any]) -> Json:
    text = json_codec.dumps(arguments).decode()
    return {"type": "function_call", **_ids(item), "name": name, "arguments": text}


def _result(item: Json, output: Any, status: str = "completed") -> Json:
    if isinstance(output, str):
        output = [{"type": "input_text", "text": output}]
    fields = {"output": output, "status": status}
    return {"type": "function_call_output", **fields, **_ids(item)}


def _is_own(item: Json) -> bool:
    return _OWN.fullmatch(str(item.get("id"))) is not None


def _ids(item: Json) -> Json:
    # A local shell's output uses its call's id as its own.
    ids = {"id": item.get("id"), "call_id": item.get("call_id") or item.get("id")}
    return {**ids, "caller": item.get("caller")}


def _command_output(command: Json) -> str:
    outcome = _object(command, "outcome")
    code = outcome.get("exit_code")
    status = "timed out" if outcome.get("type") == "timeout" else f"exit code {code}"
    texts = [str(command.get(name) or "").rstrip("\n") for name in ("stdout", "stderr")]
    return "\n".join([text for text in texts if text] + [f"[{status}]"])


def _status(item: Json) -> str:
    """`failed` if the item says so, or if one of its commands timed out or had a nonzero exit code."""
    for command in _objects(item.get("output")):
        outcome = _object(command, "outcome")
        if outcome.get("type") == "timeout" or outcome.get("exit_code") not in (None, 0):
            return "failed"
    status = item.get("status")
    return status if status in ("failed", "incomplete") else "completed"


def _object(value: Json, name: str) -> Json:
    field = value.get(name)
    return dict(field) if isinstance(field, dict) else {}


def _objects(value: Any) -> Iterator[Json]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _without_empty(value: Json) -> Json:
    return {name: one for name, one in value.items() if one is not None and one != {}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_codec.dumps(value).decode()
