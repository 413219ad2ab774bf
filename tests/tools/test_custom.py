"""Grammars of custom tools: what a call must match, and which cannot be enforced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.tools.lark_grammar import LarkGrammar
from emulator.tools.problems import Problem
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
def test_an_input_must_match_its_regex(
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
        ({"type": "custom", "name": "when", "format": {"type": "ebnf"}}, "type"),
        ({"type": "custom", "name": "when", "format": "regex"}, "type"),
        (custom("start: nothing", "lark"), "definition"),
        (custom("start: /a(?=b)/", "lark"), "definition"),
        (custom("start: " + "(" * 9000 + '"a"' + ")" * 9000, "lark"), "definition"),
        (custom("start: /" + "(" * 9000 + "a" + ")" * 9000 + "/", "lark"), "definition"),
        (custom('start: %json {"$ref": "file:///etc/passwd"}', "lark"), "definition"),
        (custom('start: %json {"$ref": "http://127.0.0.1:9/x"}', "lark"), "definition"),
    ],
)
def test_a_grammar_that_cannot_be_enforced_is_refused(tool: dict[str, Any], place: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Toolset.parse([tool])
    assert raised.value.param.endswith(f"format.{place}")


# Lark

# As Codex CLI sends it, shortened by what moves and ends files.
PATCH = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
%import common.LF
"""
SUM = """start: term (("+" | "-") term)*
term: NUMBER | "(" start ")"
%import common.NUMBER
%import common.WS
%ignore WS
"""
ADDED = "*** Begin Patch\n*** Add File: größe.py\n+x = 1\n+\n*** End Patch"


@pytest.mark.parametrize("nested", [False, True], ids=["responses", "chat"])
@pytest.mark.parametrize(
    ("definition", "fits", "fails"),
    [
        (PATCH, [ADDED, f"{ADDED}\n"], ["", "ls", ADDED[:-1], ADDED.replace("+x", "x")]),
        (SUM, ["1", "1 + (2-3)"], ["1 +", "(1", "1)", "eins"]),
        ('start: "a"+', ["a", "aaa"], ["", "ab", "\u00e9", "a\ud800"]),
        (r"start: /[0-9]{4}(-[0-9]{2}){2}/", ["2026-01-31"], ["2026-1-31", "2026-01-310"]),
        ('start: "yes"i | "no"i', ["YES", "no"], ["yesno"]),
    ],
)
def test_an_input_must_match_its_lark_grammar(
    definition: str, fits: list[str], fails: list[str], nested: bool
) -> None:
    toolset = Toolset.parse([custom(definition, "lark", nested=nested)])
    for text in fits:
        assert toolset.bind("when", [text], {}) == {"input": text}
    for text in fails:
        with pytest.raises(BindError):
            toolset.bind("when", [text], {})


@pytest.mark.parametrize("edges", [("\n", ""), ("", "\n"), ("\r\n", "\r\n\r\n"), ("\n\n", "\n")])
@pytest.mark.parametrize("definition", ['start: "a"', 'start: "a\\n"'])
def test_line_ends_at_the_edges_of_a_text_are_corrected(
    definition: str, edges: tuple[str, str]
) -> None:
    """Text between triple quotes often begins and ends with one."""
    toolset = Toolset.parse([custom(definition, "lark")])
    meant = {'start: "a"': "a"}.get(definition, "a\n")
    assert toolset.bind("when", [f"{edges[0]}a{edges[1]}"], {}) == {"input": meant}


@pytest.mark.parametrize(
    ("definition", "text", "told"),
    [
        (PATCH, ADDED.replace("+x", "x"), 'line 3, column 1: expected "+", found "x = 1"'),
        (PATCH, "ls", 'line 1, column 1: expected "*** Begin Patch\\n*** ", found "ls"'),
        (PATCH, ADDED.removesuffix(" Patch"), 'expected " Patch", found the end of the text'),
        (SUM, "(1", "column 3: expected"),
        ('start: "\u00e9" ("a" | "b")', "\u00e9c", 'column 2: expected "a" or "b", found "c"'),
        ('start: "a" ("b" | "c")?', "ad", '"b" or "c" or the end of the text, found "d"'),
    ],
)
def test_the_problem_names_the_place_and_reason_of_a_mismatch(
    definition: str, text: str, told: str
) -> None:
    toolset = Toolset.parse([custom(definition, "lark")])
    with pytest.raises(BindError) as raised:
        toolset.bind("when", [text], {})
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ('start: x\nx: x x | "a"', "a" * 3000),
        ('start: x\nx: x x x | x x | "a" |', "a" * 3000),
        ("start: /(a*)*b/", "a" * 20_000),
        ("start: /(a|b)*a(a|b){2000}/", "ab" * 5_000),
        ("start: " + "x{1000} " * 500 + '\nx: y{1000}\ny: "a"{1000}', "a" * 100),
    ],
)
def test_a_hostile_grammar_or_text_ends(definition: str, text: str) -> None:
    with pytest.raises((BindError, SchemaError)):
        Toolset.parse([custom(definition, "lark")]).bind("when", [text], {})


def test_a_text_that_takes_too_long_is_refused() -> None:
    problem = LarkGrammar('start: "a"+', seconds=0.0).match("aaa")
    assert isinstance(problem, Problem)
    assert "too long" in problem.message


def test_the_model_sees_a_lark_grammar() -> None:
    toolset = Toolset.parse([custom('start: "a"+', "lark")])
    assert 'start: "a"+' in toolset.stubs


def test_a_text_that_does_not_fit_its_lark_grammar_is_repaired(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    wrong = ADDED.replace("+x", "x")
    upstream.reply(*(f"```python\nwhen({text!r})\n```" for text in (wrong, ADDED)))
    body = {"model": "m", "input": "Patch it.", "tools": [custom(PATCH, "lark")]}
    _, _, answer = send(f"{proxy}/v1/responses", body)
    assert answer["output"][0]["input"] == ADDED
    assert "line 3, column 1" in upstream.requests[1]["messages"][-1]["content"]


def test_a_call_that_does_not_match_is_repaired(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```python\nwhen('tomorrow')\n```", "```python\nwhen('2026-01-31')\n```")
    body = {"model": "m", "input": "When?", "tools": [custom(DATE)]}
    _, _, answer = send(f"{proxy}/v1/responses", body)
    assert answer["output"][0]["input"] == "2026-01-31"
    assert json.dumps(DATE)[1:-1] in json.dumps(upstream.requests[1]["messages"][-1])


def test_a_call_that_never_matches_is_an_error(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.default = "```python\nwhen('tomorrow')\n```"
    tool = custom(DATE, nested=True)
    kind = {"type": "custom", "custom": {k: v for k, v in tool.items() if k != "type"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "When?"}], "tools": [kind]}
    body["tool_choice"] = "required"
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (502, "model_invalid")
