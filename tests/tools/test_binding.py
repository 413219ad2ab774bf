"""Binding: the arguments of a call, and the error of a call that matches no signature."""

# ruff: noqa: E501 - tables: one row, one line

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.tools.toolset import BindError, Problem, Toolset
from tests.support.examples import example_count
from tests.support.toolsets import offered, toolset
from tests.tools.schema_rows import FILTER, PERSON, ROWS, one

LEFT = object()  # the value is left as it is, whether valid or not

STRINGS = {"type": "array", "items": {"type": "string"}}
UNIT = {"enum": ["celsius", "km/h", "Fahrenheit", "very-high"]}

#: (schema of an optional x, value written, value bound | LEFT | KeyError for dropped)
COERCIONS: list[tuple[Any, Any, Any]] = [
    ({"type": "integer"}, "3", 3),
    ({"type": "integer"}, " -3 ", -3),
    ({"type": "integer"}, "+3", 3),
    ({"type": "integer"}, 3.0, 3),
    ({"type": "integer"}, "3.0", 3),
    ({"type": "integer"}, "3.5", LEFT),
    ({"type": "integer"}, 3.5, LEFT),
    ({"type": "integer"}, "3e2", LEFT),
    ({"type": "integer"}, "1,000", LEFT),
    ({"type": "integer"}, "three", LEFT),
    ({"type": "integer"}, "٣", LEFT),
    ({"type": "integer"}, "", LEFT),
    ({"type": "integer"}, True, LEFT),
    ({"type": "integer"}, [3], LEFT),
    ({"type": "integer"}, "9" * 40, LEFT),
    ({"type": "number"}, "2.5", 2.5),
    ({"type": "number"}, "3", 3),
    ({"type": "number"}, "1e3", 1000.0),
    ({"type": "number"}, 3, 3),
    ({"type": "number"}, 3.0, 3.0),
    ({"type": "number"}, "5 km", LEFT),
    ({"type": "number"}, "inf", LEFT),
    ({"type": "number"}, "nan", LEFT),
    ({"type": "number"}, "0x10", LEFT),
    ({"type": "number"}, False, LEFT),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": "boolean"}, " TRUE ", True),
    ({"type": "boolean"}, "yes", LEFT),
    ({"type": "boolean"}, 1, LEFT),
    ({"type": "boolean"}, 0, LEFT),
    ({"type": "string"}, 10115, "10115"),
    ({"type": "string"}, 2.5, "2.5"),
    ({"type": "string"}, 1e22, "1e+22"),
    ({"type": "string"}, True, "true"),
    ({"type": "string"}, None, KeyError),
    ({"type": "string"}, ["a"], LEFT),
    ({"type": "string"}, {"a": 1}, LEFT),
    ({"type": "string"}, "3", "3"),
    ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
    ({"type": "null"}, "null", None),
    (STRINGS, "a", ["a"]),
    (STRINGS, '{"a": 2}', LEFT),
    ({"type": "array"}, '{"a": 2}', LEFT),
    ({"type": "array", "items": {"type": "object"}}, '{"a": 2}', [{"a": 2}]),
    (STRINGS, "a,b", ["a,b"]),
    (STRINGS, '["a", "b"]', ["a", "b"]),
    (STRINGS, "['Lakers', 'Clippers']", ["Lakers", "Clippers"]),
    (STRINGS, "('a', 'b')", ["a", "b"]),
    (STRINGS, """["it's", 'a "b"',]""", ["it's", 'a "b"']),
    (STRINGS, "[1, None]", LEFT),
    (STRINGS, "[a, b]", LEFT),
    (STRINGS, "['a'", ["['a'"]),
    (STRINGS, "[draft] report", ["[draft] report"]),
    (STRINGS, "(see below)", ["(see below)"]),
    (STRINGS, "[__import__('os').name]", LEFT),
    (STRINGS, "{'a', 'b'}", ["{'a', 'b'}"]),
    ({"type": "array", "items": STRINGS}, "[('a', 'b'), ['c']]", [["a", "b"], ["c"]]),
    ({"type": "array"}, "['a', {'b': (1, True)}]", ["a", {"b": [1, True]}]),
    ({"type": "array", "items": PERSON}, "[{'name': 'a'}]", [{"name": "a"}]),
    ({"type": "array", "items": PERSON}, "{'name': 'a'}", [{"name": "a"}]),
    ({"type": "array", "items": {"type": "number"}}, "[1e999]", LEFT),
    ({"type": "string"}, "['a', 'b']", "['a', 'b']"),
    ({"anyOf": [{"type": "string"}, STRINGS]}, "['a']", "['a']"),
    ({"anyOf": [STRINGS, {"type": "null"}]}, "['a', 'b']", ["a", "b"]),
    (STRINGS, 3, ["3"]),
    (STRINGS, [1, "b"], ["1", "b"]),
    (STRINGS, ("a", "b"), ["a", "b"]),
    (STRINGS, None, KeyError),
    (STRINGS, {"a": 1}, LEFT),
    ({"type": "array", "items": {"type": "integer"}}, "3", [3]),
    ({"type": "array", "items": {"type": "integer"}}, "1,2", LEFT),
    ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
    ({"type": "array", "items": {"type": "integer"}}, ["1", 2.0], [1, 2]),
    ({"type": "array", "items": PERSON}, {"name": "a"}, [{"name": "a"}]),
    ({"type": "array", "items": STRINGS}, "a", LEFT),
    ({"type": "array"}, "a", ["a"]),
    ({"type": "array", "minItems": 2, "items": {"type": "string"}}, "a", LEFT),
    (UNIT, "celsius", "celsius"),
    (UNIT, "Celsius", "celsius"),
    (UNIT, "FAHRENHEIT", "Fahrenheit"),
    (UNIT, "KM_H", "km/h"),
    (UNIT, "very high", "very-high"),
    (UNIT, "kelvin", LEFT),
    (UNIT, "C", LEFT),
    (UNIT, "", LEFT),
    ({"enum": ["a-b", "a_b"]}, "A B", LEFT),
    ({"enum": ["a-b", "a_b"]}, "a_b", "a_b"),
    ({"enum": ["+", "-"]}, "*", LEFT),
    ({"enum": [1, 2]}, "2", 2),
    ({"enum": ["1", "2"]}, 2, "2"),
    ({"enum": [True]}, "true", True),
    ({"enum": [1]}, True, LEFT),
    ({"enum": ["a", None]}, None, None),
    ({"type": "array", "items": UNIT}, "Celsius", ["celsius"]),
    ({"const": 5}, "5", 5),
    (PERSON, '{"name": "a", "age": "3"}', {"name": "a", "age": 3}),
    (PERSON, "{'name': 'a', 'age': None}", {"name": "a"}),
    (PERSON, "{'name': print}", LEFT),
    (PERSON, "{'name': b'a'}", LEFT),
    (PERSON, "{'name': '" + "a" * 2**16 + "'}", LEFT),
    (PERSON, '{"name": "a", "age": NaN}', LEFT),
    (PERSON, '"a"', LEFT),
    (PERSON, "a", LEFT),
    (PERSON, "[" * 2000, LEFT),
    (PERSON, {"name": "a", "age": None}, {"name": "a"}),
    (PERSON, {"name": None}, LEFT),
    ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
    ({"type": "string"}, None, KeyError),
    ({"type": ["string", "null"]}, None, None),
    ({}, None, None),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "None", None),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
    ({"anyOf": [{"type": "integer"}, STRINGS]}, "3", LEFT),
    ({"anyOf": [{"type": "integer"}, STRINGS]}, "a", ["a"]),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "3", 3),
    ({"anyOf": [{"type": "boolean"}, {"enum": ["auto"]}]}, "True", True),
    ({"anyOf": [{"type": "boolean"}, {"enum": ["auto"]}]}, "AUTO", "auto"),
    ({"anyOf": [PERSON, STRINGS]}, {"name": 3}, {"name": "3"}),
    ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
    ({"type": ["integer", "array"], "items": {"type": "integer"}}, "3", LEFT),
    ({"type": "string", "pattern": "^[0-9]{5}$"}, 10115, "10115"),
    ({"type": "integer", "minimum": 5}, "7", 7),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "bound"), COERCIONS)
def test_a_value_with_one_reading_is_coerced(schema: Any, written: Any, bound: Any) -> None:
    tools = toolset(one(schema, required=False))
    if bound is LEFT:
        with pytest.raises(BindError):
            tools.bind("tool", [], {"x": written})
        return
    expected = {} if bound is KeyError else {"x": bound}
    arguments = tools.bind("tool", [], {"x": written})
    assert json.dumps(arguments) == json.dumps(expected)  # 3 is not 3.0 here


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 3},
        "class": {"type": "string"},
    },
    "required": ["city"],
}
MOVE = {
    "type": "object",
    "properties": {"item": {"type": "object"}, "place": {"type": "string"}},
    "required": ["item", "place"],
}
STORE = {
    "type": "object",
    "properties": {"value": {}, "key": {"type": "string"}},
    "required": ["value"],
}
PLACE = {"type": "object", "properties": {"location": PERSON}, "required": ["location"]}
OPEN = one({"type": "object", "properties": {"mode": {"type": "string"}}})
FREE = one({"type": "object"})
NESTED = one({"type": "object", "properties": {"x": {"type": "object"}}})
NONE = {"type": "object", "properties": {}}

CALLS: list[tuple[Any, list[Any], dict[str, Any], dict[str, Any] | str]] = [
    (WEATHER, ["Oslo"], {}, {"city": "Oslo"}),
    (WEATHER, ["Oslo", "2"], {}, {"city": "Oslo", "days": 2}),
    (WEATHER, ["Oslo"], {"class_": "b"}, {"city": "Oslo", "class": "b"}),
    (WEATHER, [], {"city": "Oslo", "class": "b"}, {"city": "Oslo", "class": "b"}),
    (WEATHER, [{"city": "Oslo", "days": "2"}], {}, {"city": "Oslo", "days": 2}),
    (WEATHER, [], {}, 'tool(): missing argument "city" (str)'),
    (WEATHER, [], {"town": "Oslo"}, 'tool(town="Oslo"): unknown argument "town"; expected city, days, class_'),
    (WEATHER, [], {"cityy": "Oslo"}, 'tool(cityy="Oslo"): unknown argument "cityy" (did you mean "city"?); expected city, days, class_'),
    (WEATHER, ["Oslo"], {"city": "Rome"}, 'tool("Oslo", city="Rome"): argument "city" given twice'),
    (WEATHER, [], {"city": "a", "class": "b", "class_": "c"}, 'tool(city="a", class="b", class_="c"): argument "class_" given twice'),
    (WEATHER, [1, 2, 3, 4], {}, "tool(1, 2, 3, 4): takes at most 3 positional arguments, found 4"),
    (WEATHER, [{"town": "Oslo"}], {}, 'tool({\'town\': \'Oslo\'}): unknown argument "town"; expected city, days, class_'),
    (WEATHER, ["Oslo", [1]], {}, 'tool("Oslo", [1]): days: expected int, found [1]'),
    (WEATHER, [None], {}, "tool(None): city: expected str, found None"),
    (MOVE, [{"item": {"id": 1}, "place": "a"}], {}, {"item": {"id": 1}, "place": "a"}),
    (MOVE, [{"id": 1}, "a"], {}, {"item": {"id": 1}, "place": "a"}),
    (MOVE, [{"id": 1}], {}, 'tool({\'id\': 1}): missing argument "place" (str)'),
    (STORE, [{"a": 1}], {}, {"value": {"a": 1}}),
    (STORE, [{"value": 1, "key": "k"}], {}, {"value": {"value": 1, "key": "k"}}),
    (PLACE, [{"name": "a"}], {}, {"location": {"name": "a"}}),
    (PLACE, [{"location": {"name": "a"}}], {}, {"location": {"name": "a"}}),
    (OPEN, [{"mode": "on"}], {}, {"x": {"mode": "on"}}),
    (OPEN, [{"x": {"mode": "on"}}], {}, {"x": {"mode": "on"}}),
    (FREE, [{"math": 1}], {}, {"x": {"math": 1}}),
    (FREE, [{"x": {"math": 1}}], {}, {"x": {"math": 1}}),
    (FREE, [{"x": 1}], {}, {"x": {"x": 1}}),
    (NESTED, [{"x": {"id": 1}}], {}, {"x": {"x": {"id": 1}}}),
    (NONE, [], {}, {}),
    (NONE, [{}], {}, {}),
    (NONE, [1], {}, "tool(1): takes no arguments, found 1"),
    (NONE, [], {"x": 1}, 'tool(x=1): unknown argument "x"; expected no arguments'),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "args", "kwargs", "outcome"), CALLS)
def test_arguments_find_their_parameters(
    parameters: Any, args: list[Any], kwargs: dict[str, Any], outcome: dict[str, Any] | str
) -> None:
    tools = toolset(parameters)
    if isinstance(outcome, dict):
        assert tools.bind("tool", args, kwargs) == outcome
    else:
        with pytest.raises(BindError) as caught:
            tools.bind("tool", args, kwargs)
        assert str(caught.value) == outcome


NULLABLE = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "plan": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
    },
    "required": ["goal", "plan", "unit", "steps"],
    "additionalProperties": False,
    "$defs": {
        "Step": {
            "type": "object",
            "properties": {"do": {"type": "string"}, "at": {"$ref": "#/$defs/Time"}},
            "required": ["do", "at"],
            "additionalProperties": False,
        },
        "Time": {"type": ["integer", "null"]},
    },
}


@pytest.mark.parametrize("strict", [True, False])
def test_in_a_strict_schema_an_omitted_nullable_member_is_null(strict: bool) -> None:
    tool = {"name": "tool", "parameters": NULLABLE, "strict": strict}
    tools = Toolset.parse([{"type": "function", "function": tool}])
    written = {"goal": "x", "steps": [{"do": "y"}]}
    if strict:
        assert tools.check("tool", 0, list(written)) == ()
        bound = {"goal": "x", "steps": [{"do": "y", "at": None}], "plan": None, "unit": None}
        assert tools.bind("tool", [], written) == bound
        assert [*tools.bind("tool", [], {"goal": "x", "steps": []})][2:] == ["plan", "unit"]
    else:
        with pytest.raises(BindError, match='missing argument "plan"'):
            tools.bind("tool", [], written)
    with pytest.raises(BindError, match='missing argument "goal"'):
        tools.bind("tool", [], {"steps": []})


@pytest.mark.parametrize(
    ("positional", "keywords", "messages"),
    [
        (1, [], []),
        (0, ["city"], []),
        (0, ["city", "class"], []),
        (0, ["city", "class_"], []),
        (0, [], ['missing argument "city" (str)']),
        (0, ["days"], ['missing argument "city" (str)']),
        (1, ["city"], ['argument "city" given twice']),
        (0, ["city", "city"], ['argument "city" given twice']),
        (4, [], ["takes at most 3 positional arguments, found 4"]),
        (
            0,
            ["day"],
            [
                'unknown argument "day" (did you mean "days"?); expected city, days, class_',
                'missing argument "city" (str)',
            ],
        ),
    ],
)
def test_a_call_is_checked_before_anything_runs(
    positional: int, keywords: list[str], messages: list[str]
) -> None:
    problems = toolset(WEATHER).check("tool", positional, keywords)
    assert [problem.message for problem in problems] == messages


@pytest.mark.parametrize("parameters", [WEATHER, MOVE, NONE])
def test_a_single_argument_may_be_a_dict_of_all_arguments(parameters: Any) -> None:
    assert toolset(parameters).check("tool", 1, []) == ()


def test_an_unknown_tool_is_a_problem_with_a_guess() -> None:
    tools = Toolset.parse(offered({"name": "get_weather"}, {"name": "get_time"}))
    expected = Problem(
        "",
        'unknown tool "get_wether" (did you mean "get_weather"?); expected one of get_weather, get_time',
    )
    for call in (tools.bind, tools.check):
        with pytest.raises(BindError) as caught:
            call("get_wether", [], {})  # type: ignore[operator]
        assert caught.value.problems == (expected,)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan is not a JSON number"),
        (-math.inf, "-inf is not a JSON number"),
        ([{"a": math.inf}], "inf is not a JSON number"),
        (10**6000, "number too large"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "half of a surrogate pair"),
        ({1: 2}, "keys must be text"),
        (b"x", "bytes is not a JSON value"),
        ({1, 2}, "set is not a JSON value"),
        (object(), "object is not a JSON value"),
        (deep(70), "nested deeper than 32 levels"),
        (deep(50_000), "nested deeper than 32 levels"),
        ([0] * 60_000, "more than 50000 values"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_json_is_a_problem_at_any_place(value: Any, words: str) -> None:
    tools = toolset(one({}, additionalProperties=True))
    for args, kwargs in (
        ([value], {}),
        ([], {"x": value}),
        ([], {"x": [value]}),
        ([1], {"y": value}),
    ):
        with pytest.raises(BindError, match=words):
            tools.bind("tool", args, kwargs)


def test_an_argument_name_that_is_not_text_is_a_problem() -> None:
    for name in ("\ud800", 3):
        with pytest.raises(BindError, match="name must be text"):
            toolset(WEATHER).bind("tool", [], {name: 1})  # type: ignore[dict-item]


def test_a_message_stays_short_for_any_call() -> None:
    value = {"a" * 10_000: ["b" * 10_000] * 100}
    with pytest.raises(BindError) as caught:
        toolset(WEATHER).bind("tool", [value, value], {})
    assert len(str(caught.value)) < 2_000


def test_problems_name_their_place_in_the_names_that_the_stubs_show() -> None:
    parameters = one({"type": "array", "items": {"type": "object", "properties": {"class": {"type": "integer"}, "to": PERSON}}})  # fmt: skip
    with pytest.raises(BindError) as caught:
        toolset(parameters).bind("tool", [], {"x": [{}, {"class": "b", "to": {"age": 1}}]})
    assert caught.value.problems == (
        Problem("x[1].class_", 'expected int, found "b"'),
        Problem("x[1].to", 'missing member "name" (str)'),
    )


def test_a_wrong_value_deep_inside_a_recursive_union_is_found_and_named() -> None:
    """The validator's own explanation of this call takes too long: at depth 6
    seven seconds, and five times as long with every level."""
    leaf: Any = {"op": "is", "value": "b"}
    for _ in range(15):
        leaf = {"op": "and", "args": [leaf]}
    tools = toolset(
        one(
            {"$ref": "#/$defs/F"},
            **{"$defs": {"F": json.loads(json.dumps(FILTER).replace("Filter", "F"))}},
        )
    )
    with pytest.raises(BindError) as caught:
        tools.bind("tool", [], {"x": leaf})
    path = "x" + ".args[0]" * 15 + ".value"
    assert caught.value.problems == (Problem(path, 'expected int, found "b"'),)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


SMALL_ROWS = [row for row in ROWS if len(json.dumps(row[1])) < 5_000]
KEYWORDS = st.sampled_from(["x", "a", "b", "n", "next", "any", "class_", "other"])


@settings(max_examples=example_count(150), derandomize=True, database=None)
@given(
    st.sampled_from(SMALL_ROWS),
    st.lists(json_values, max_size=2),
    st.dictionaries(KEYWORDS, json_values, max_size=3),
)
def test_any_arguments_are_bound_to_valid_ones_or_refused(
    row: Any, args: list[Any], kwargs: dict[str, Any]
) -> None:
    tools = toolset(row[1])
    with suppress(BindError):  # nothing else may be raised
        arguments = tools.bind("tool", args, kwargs)
        assert tools.tools[0].validator.is_valid(arguments)
        json.dumps(arguments, allow_nan=False).encode()
