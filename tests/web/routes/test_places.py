"""An error names the place of the fault in the client's own request, whatever the API."""

from __future__ import annotations

import copy
import json
import operator
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.mutations import request_bodies
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import fetch

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
WRONG: dict[type, tuple[Any, ...]] = {
    bool: ("maybe",),
    int: ("x",),
    float: ("x",),
    str: ({"x": 1}, 5),
    list: (5, "x"),
    dict: ("x", [1]),
}
"""Values of another type."""
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = [*value.items()]
    elif isinstance(value, list):
        items = [*enumerate(value)]
    for step, inner in items:
        yield (*at, step), inner
        yield from places(inner, (*at, step))


def faulty(path: str) -> Iterator[tuple[str, Any]]:
    """Requests with one value of a wrong type, and its place; places that differ by a number only, once."""
    tried = set()
    bodies = [{**body, "stream": False} for to, body in request_bodies() if to == path]
    for body, (place, value) in ((one, found) for one in bodies for found in places(one)):
        kinds = [str(one.get("type") or one.get("role")) for one in along(body, place)]
        alike = (*("*" if isinstance(step, int) else step for step in place), *kinds)
        if alike in tried or "$defs" in place:  # an error of a reference names the reference
            continue
        tried.add(alike)
        for wrong in WRONG.get(type(value), ()):
            changed = copy.deepcopy(body)
            *path_to, last = place
            reduce(operator.getitem, path_to, changed)[last] = wrong
            yield written(place), changed


def along(body: Any, place: Place) -> Iterator[dict[str, Any]]:
    for step in place:
        if isinstance(body, dict):
            yield body
        body = body[step]


def written(place: Place) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)[1:]


def named(path: str, error: dict[str, Any]) -> str:
    """Errors of Messages have no field for the place: their messages begin with it."""
    if path != "/v1/messages":
        return str(error["param"])
    found = re.match(r"(?:Invalid value for ')?([a-z_]+(?:\[\d+\]|\.[\w-]+)*)", error["message"])
    return found[1] if found else ""


@pytest.mark.parametrize("path", PATHS)
def test_an_error_names_the_place_of_a_value_of_a_wrong_type(
    start_proxy: StartProxy, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.default = lambda _: "Hello."
    proxy = start_proxy(repair_attempts=0)
    refused, elsewhere = 0, []
    for place, body in faulty(path):
        status, _, answer = fetch(f"{proxy}{path}", body)
        assert status != 500, (place, body)
        if status != 400:
            continue
        refused += 1
        error = json.loads(answer)["error"]
        # The whole of which the value is a part may be wrong, or a part of what should be there is missing.
        name = re.sub(r"\.(\d+)", r"[\1]", named(path, error))
        if not (name and (place.startswith(name) or name.startswith(place))):
            elsewhere.append((place, error["message"]))
    assert not elsewhere
    assert refused > 40


NOT_BASE64 = "data:application/pdf;base64,!!"
INTERPRETER = {"type": "code_interpreter", "container": "cntr_unknown"}
ANTHROPICS = {"type": "code_execution_20250825", "name": "code_execution"}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "s", "description": "", "tools": []}
HELLO = [{"role": "user", "content": "Hello."}]


def with_part(part: Any) -> list[Any]:
    return [*HELLO, {"role": "user", "content": [{"type": "text", "text": "Read."}, part]}]


FILES_AND_CONTAINERS: dict[str, tuple[str, Any, int, str]] = {
    "a chat's file": (
        PATHS[0],
        {
            "messages": with_part({"type": "file", "file": {"file_data": NOT_BASE64}}),
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        },
        *(400, "messages[1].content[1].file.file_data"),
    ),
    "a response's file": (
        PATHS[1],
        {"input": with_part({"type": "input_file", "file_data": NOT_BASE64})},
        *(400, "input[1].content[1].file_data"),
    ),
    "a message's file": (
        PATHS[2],
        {
            "messages": with_part(
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "!!"},
                }
            )
        },
        *(400, "messages.1.content.1.source.data"),
    ),
    "a chat's container": (
        PATHS[0],
        {"messages": HELLO, "tools": [{"type": "function", "function": FUNCTION}, INTERPRETER]},
        *(404, "tools[1].container"),
    ),
    "a response's container": (
        PATHS[1],
        {"input": HELLO, "tools": [SPACE, INTERPRETER]},
        *(404, "tools[1].container"),
    ),
    "a message's container": (
        PATHS[2],
        {"messages": HELLO, "tools": [ANTHROPICS], "container": "cntr_unknown"},
        *(404, "container: "),
    ),
    "a chat's uploaded file": (
        PATHS[0],
        {"messages": with_part({"type": "file", "file": {"file_id": "file-unknown"}})},
        *(404, "messages[1].content[1].file.file_id"),
    ),
    "a response's uploaded file": (
        PATHS[1],
        {"input": with_part({"type": "input_file", "file_id": "file-unknown"})},
        *(404, "input[1].content[1].file_id"),
    ),
    "a response's uploaded picture": (
        PATHS[1],
        {"input": with_part({"type": "input_image", "file_id": "file-unknown"})},
        *(404, "input[1].content[1].file_id"),
    ),
    "a message's uploaded file": (
        PATHS[2],
        {
            "messages": with_part(
                {"type": "document", "source": {"type": "file", "file_id": "file-unknown"}}
            )
        },
        *(404, "messages.1.content.1.source.file_id: "),
    ),
    "a message's upload to a container": (
        PATHS[2],
        {
            "messages": with_part({"type": "container_upload", "file_id": "file-unknown"}),
            "tools": [ANTHROPICS],
        },
        *(404, "messages.1.content.1.file_id: "),
    ),
    "a new container's file": (
        PATHS[1],
        {
            "input": HELLO,
            "tools": [
                SPACE,
                {
                    "type": "code_interpreter",
                    "container": {"type": "auto", "file_ids": ["file-unknown"]},
                },
            ],
        },
        *(404, "tools[1].container.file_ids[0]"),
    ),
    "a shell's container": (
        PATHS[1],
        {
            "input": HELLO,
            "tools": [
                {
                    "type": "shell",
                    "environment": {"type": "container_reference", "container_id": "cntr_unknown"},
                }
            ],
        },
        *(404, "tools[0].environment.container_id"),
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", FILES_AND_CONTAINERS)
def test_an_error_of_a_file_or_a_container_names_its_place(
    proxy: str, upstream: ScriptedUpstream, case: str, stream: bool
) -> None:
    """It named a field (`file_data`, `container_id`), of whichever message or tool."""
    path, body, status, place = FILES_AND_CONTAINERS[case]
    answered, _, data = fetch(
        proxy + path, {"model": "m", "max_tokens": 9, "stream": stream, **body}
    )
    error = json.loads(data)["error"]
    assert answered == status, error
    assert place in (error.get("param") or error["message"])
    assert upstream.requests == []
