"""A `configuration_update` item's setting applies until a later update replaces it, or is refused by name."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.responses_client import ask, fetch
from tests.support.scripted import ScriptedUpstream

USER = {"role": "user", "content": "How warm is it?"}
SAID = [USER, {"role": "assistant", "content": "5 degrees."}]
SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
JSON = {"type": "json_schema", "name": "warmth", "schema": SCHEMA}
TEXT = {"type": "text"}


def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **settings}


def effort(value: str | None) -> dict[str, Any]:
    return update(reasoning={"effort": value})


def form(value: dict[str, Any]) -> dict[str, Any]:
    return update(text={"format": value})


@pytest.mark.parametrize(
    ("asked", "items", "expected"),
    [
        (None, [effort("high"), USER], "high"),
        ("low", [effort("high"), USER], "high"),
        ("low", [USER, effort("high")], "high"),  # Codex puts it behind the user's message
        ("low", [*SAID, effort("high"), USER, effort("none")], "none"),
        ("low", [effort("high"), *SAID, form(JSON), USER], "high"),
        ("low", [effort(None), USER], None),
        ("low", [form(TEXT), USER], "low"),
        ("low", [update(reasoning={}), USER], "low"),
        ("low", [update(id="cu_1", status=None, internal_note={"turn": 1}), USER], "low"),
    ],
)
def test_the_last_reasoning_effort_applies(
    proxy: str,
    upstream: ScriptedUpstream,
    asked: str | None,
    items: list[Any],
    expected: str | None,
) -> None:
    """Codex and LangChain change the effort so; it was dropped in silence."""
    upstream.reply('{"degrees": 5}')
    fields = {} if asked is None else {"reasoning": {"effort": asked}}
    response = ask(proxy, {"model": "m", "input": items, **fields})
    assert upstream.requests[0].get("reasoning_effort") == expected
    assert response["reasoning"]["effort"] == expected


@pytest.mark.parametrize(
    ("asked", "items", "structured"),
    [
        (None, [form(JSON), USER], True),
        (None, [USER, form(JSON)], True),
        (None, [form(JSON), *SAID, effort("low"), USER], True),
        (None, [form({"type": "json_object"}), USER], True),
        (TEXT, [form(JSON), USER], True),
        (JSON, [form(TEXT), USER], False),
        (JSON, [form(JSON), *SAID, form(TEXT), USER], False),
    ],
)
def test_the_last_text_format_applies(
    proxy: str,
    upstream: ScriptedUpstream,
    asked: dict[str, Any] | None,
    items: list[Any],
    structured: bool,
) -> None:
    upstream.reply('It is ```json\n{"degrees": 5}\n```')
    fields = {} if asked is None else {"text": {"format": asked, "verbosity": "low"}}
    response = ask(proxy, {"model": "m", "input": items, **fields})
    said = response["output"][0]["content"][0]["text"]
    assert (said == '{"degrees":5}') == structured
    assert (response["text"]["format"]["type"] != "text") == structured
    assert response["text"]["verbosity"] == upstream.requests[0].get("verbosity", "medium")


def test_an_update_stays_in_effect_in_later_requests(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    conversation = client.conversations.create(items=[effort("high")]).id  # type: ignore[list-item]
    changed: Any = [form(JSON), USER]
    for kept in ({"conversation": conversation}, {}):
        upstream.reply('{"degrees": 5}', 'Still ```{"degrees": 6}```')
        first = client.responses.create(model="m", input=changed, **kept)  # type: ignore[call-overload]
        follow = kept or {"previous_response_id": first.id}
        second = client.responses.create(model="m", input="And now?", **follow)  # type: ignore[call-overload]
        assert second.output_text == '{"degrees":6}'
    assert [one.get("reasoning_effort") for one in upstream.requests] == ["high"] * 2 + [None] * 2


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (update(reasoning={"effort": 5}), "input[1].reasoning.effort"),
        (update(reasoning={"effort": "low", "summary": "auto"}), "input[1].reasoning.summary"),
        (update(reasoning="low"), "input[1].reasoning"),
        (update(text={"format": {"type": "xml"}}), "input[1].text.format.type"),
        (update(text={"format": TEXT, "verbosity": "low"}), "input[1].text.verbosity"),
        (update(text={}), "input[1].text.format"),
        (
            form(
                {"type": "json_schema", "name": "x", "schema": {"type": "object", "$ref": "file:a"}}
            ),
            "input[1].text.format.schema",
        ),
        (form({"type": "json_schema", "name": "x"}), "input[1].text.format.schema"),
        (update(tools=[]), "input[1].tools"),
        (update(model="other", reasoning={"effort": "low"}), "input[1].model"),
        (update(instructions="Be brief."), "input[1].instructions"),
    ],
)
def test_a_setting_that_an_update_cannot_change_is_refused_by_name(
    proxy: str, upstream: ScriptedUpstream, item: dict[str, Any], param: str
) -> None:
    status, data = fetch(f"{proxy}/v1/responses", {"model": "m", "input": [USER, item]})
    error = json.loads(data)["error"]
    assert (status, error["type"]) == (400, "invalid_request_error"), error
    assert error["param"].startswith(param), error
    assert error["param"].rpartition(".")[2] in error["message"], error
    assert not upstream.requests
