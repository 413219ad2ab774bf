"""Grammars of custom tools: what a call must match, and which cannot be enforced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.tools.toolset import BindError, SchemaError, Toolset
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

DATE = r"\d{4}-\d{2}-\d{2}"


def custom(definition: Any, syntax: Any = "regex", *, nested: bool = False) -> dict[str, Any]:
    grammar = {"syntax": syntax, "definition": definition}
    form = {"type": "grammar", **({"grammar": grammar} if nested else grammar)}
    return {"type": "custom", "name": "when", "format": form}


@pytest.mark.parametrize("nested", [False, True], ids=["responses", "chat"])
@pytest.mark.parametrize(
    ("definition", "fits", "fails"),
    [
        (DATE, ["2026-01-31"], ["", "2026-1-31", "x2026-01-31", "2026-01-31\n", "2026-01-31x"]),
        ("yes|no", ["yes", "no"], ["yesno", "yes|no", "maybe", "nonsense"]),
        (r"(?s)a.b", ["a\nb"], ["ab"]),
        (r"(?P<sign>[+-])?[0-9]+", ["-12", "7"], ["--1"]),
        ("(a*)*b", ["b", "aab"], ["a" * 50_000]),
    ],
)
def test_an_input_is_held_to_its_regex(
    definition: str, fits: list[str], fails: list[str], nested: bool
) -> None:
    toolset = Toolset.parse([custom(definition, nested=nested)])
    for text in fits:
        assert toolset.bind("when", [text], {}) == {"input": text}
    for text in fails:
        with pytest.raises(BindError):
            toolset.bind("when", [text], {})


@pytest.mark.parametrize(
    ("tool", "place"),
    [
        (custom("(?=a)"), "definition"),
        (custom("("), "definition"),
        (custom("a)|(b"), "definition"),
        (custom("x" * 100_000), "definition"),
        (custom(7), "definition"),
        (custom("a", "bnf"), "syntax"),
    ],
)
def test_a_grammar_that_cannot_be_enforced_is_refused(tool: dict[str, Any], place: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Toolset.parse([tool])
    assert raised.value.param.endswith(f"format.{place}")


def test_a_lark_grammar_is_told_to_the_model() -> None:
    toolset = Toolset.parse([custom('start: "a"+', "lark")])
    assert 'start: "a"+' in toolset.stubs


def test_a_call_that_does_not_match_is_repaired(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```python\nwhen('tomorrow')\n```", "```python\nwhen('2026-01-31')\n```")
    body = {"model": "m", "input": "When?", "tools": [custom(DATE)]}
    _, _, answer = send(f"{proxy}/v1/responses", body)
    assert answer["output"][0]["input"] == "2026-01-31"
    assert json.dumps(DATE)[1:-1] in json.dumps(upstream.requests[1]["messages"][-1])


def test_one_that_never_matches_is_an_honest_error(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.default = "```python\nwhen('tomorrow')\n```"
    tool = custom(DATE, nested=True)
    kind = {"type": "custom", "custom": {k: v for k, v in tool.items() if k != "type"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "When?"}], "tools": [kind]}
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (502, "model_invalid")
