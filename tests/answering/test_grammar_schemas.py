"""A grammar against its schema: all that it admits is valid, and what is valid it admits."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

from emulator.answering.call_policy import CallPolicy
from emulator.answering.grammar.calls import gbnf
from emulator.answering.grammar.fields import grammar_fields
from emulator.answering.grammar.rules import UnusableGrammar
from emulator.answering.grammar.words import PROSE
from emulator.tools.toolset import BindError, SchemaError, Toolset
from tests.support import schema_rows
from tests.support.gbnf import grammar
from tests.support.grammar_rows import ROWS, Json
from tests.support.read_reply import read_reply
from tests.support.replies import Case, cases
from tests.support.tools import function

NAMES = [row[0] for row in ROWS]
SAMPLES = 40


def made(parameters: Json) -> tuple[Toolset, Any]:
    toolset = Toolset.parse([function("f", parameters)])
    return toolset, grammar(gbnf(toolset.tools, required=True, parallel=False))


def bound(toolset: Toolset, line: str) -> Json:
    """The arguments of a call as the host binds them. Raises BindError."""
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    assert not call.args
    given = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return toolset.bind(call.func.id, [], given)


@pytest.mark.parametrize(
    ("parameters", "admitted", "refused"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_grammar_admits_valid_calls_and_no_others(
    parameters: Json, admitted: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    toolset, held = made(parameters)
    for arguments in admitted:
        assert bound(toolset, f"f({arguments})") is not None
    assert {arguments: held.admits(f"f({arguments})") for arguments in (*admitted, *refused)} == {
        **dict.fromkeys(admitted, True),
        **dict.fromkeys(refused, False),
    }


@pytest.mark.parametrize("parameters", [row[1] for row in ROWS], ids=NAMES)
def test_whatever_a_grammar_admits_is_a_valid_call(parameters: Json) -> None:
    toolset, held = made(parameters)
    chance = random.Random(16)
    for _ in range(SAMPLES):
        line = held.sample(chance)
        assert held.admits(line)
        bound(toolset, line)


NOT_SAID = {
    "uniqueItems": "each item would have to remember all before it",
    "contains": "as would a list that lacks one item",
    "oneOf that fits twice": "alternatives overlap",
    "allOf that contradicts itself": "nothing is valid",
}
"""What docs/upstreams.md says that a grammar does not hold."""


@pytest.mark.parametrize("row", schema_rows.ROWS, ids=lambda row: row[0])
def test_hostile_and_dated_schemas_make_grammars_that_hold(row: schema_rows.Row) -> None:
    try:
        toolset = Toolset.parse([function("f", row[1])])
    except SchemaError:
        return
    try:
        text = gbnf(toolset.tools, required=True, parallel=False)
    except UnusableGrammar:
        return
    if len(text) > 20_000:
        return  # is made, but takes long to read
    chance = random.Random(16)
    held = grammar(text)
    valid = True
    for _ in range(SAMPLES // 4):
        try:
            bound(toolset, held.sample(chance))
        except BindError:
            valid = False
    assert valid or row[0] in NOT_SAID


def test_tools_that_no_server_could_hold_go_without_a_grammar() -> None:
    words = [f"{n} {'word ' * 80}" for n in range(1000)]
    toolset = Toolset.parse(
        [function("f", {"type": "object", "properties": {"x": {"enum": words}}})]
    )
    assert grammar_fields("grammar", toolset, CallPolicy()) == {}
    assert grammar_fields("structural_tag", toolset, CallPolicy()) == {}


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.title)
def test_words_under_the_grammar_of_tiny_models_are_never_read_as_calls(case: Case) -> None:
    rules = [f"{name} ::= {body}" for name, body in PROSE.items()]
    if grammar("\n".join(["root ::= prose", *rules])).admits(case.reply):
        found = read_reply(case.reply)
        assert (found.calls, found.needs_repair) == ([], False)
