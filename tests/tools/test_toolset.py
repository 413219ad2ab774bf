"""Toolset.parse and names: hostile schemas are either refused at the right place or usable."""

# ruff: noqa: E501 - tables: one row, one line

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emulator.tools import toolset as tools_module
from emulator.tools.toolset import BindError, SchemaError, Toolset
from tests.support.toolsets import assert_sound, offered, toolset
from tests.tools.schema_rows import ROWS, Row, chain


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_hostile_schema_is_shown_as_python_and_its_call_bound(row: Row) -> None:
    _, parameters, arguments, outcome = row
    tools = toolset(parameters)
    assert_sound(tools)
    if isinstance(outcome, dict):
        assert tools.bind("tool", [], arguments) == outcome
    else:
        with pytest.raises(BindError) as caught:
            tools.bind("tool", [], arguments)
        assert outcome in str(caught.value)


def test_all_hostile_schemas_together_make_a_valid_toolset() -> None:
    rows = [row for row in ROWS if len(json.dumps(row[1])) < 20_000]
    tools = Toolset.parse(
        offered(*({"name": f"tool{n}", "parameters": row[1]} for n, row in enumerate(rows)))
    )
    assert_sound(tools)


def many_levels(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def doubling(steps: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)
    }
    definitions[f"d{steps}"] = {"type": "integer"}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


def repeated_choices() -> dict[str, Any]:
    choices = {"enum": [f"{n}{'x' * 25}" for n in range(60)]}
    properties = {f"p{n}": {"$ref": "#/$defs/E"} for n in range(450)}
    return {"type": "object", "properties": properties, "$defs": {"E": choices}}


REFUSED: list[tuple[str, Any, str, str]] = [
    ("a file", {"properties": {"x": {"$ref": "file:///etc/passwd"}}}, ".properties.x.$ref", "start with #"),
    ("a path", {"properties": {"x": {"$ref": "../secret.json#/a"}}}, ".properties.x.$ref", "start with #"),
    ("a URL", {"properties": {"x": {"$ref": "http://h/s.json"}}}, ".properties.x.$ref", "start with #"),
    ("a reference that is no text", {"properties": {"x": {"$ref": 3}}}, ".properties.x.$ref", "start with #"),
    ("a reference to nothing", {"properties": {"x": {"$ref": "#/$defs/No"}}}, ".properties.x.$ref", "resolve"),
    ("an anchor", {"properties": {"x": {"$ref": "#here"}}}, ".properties.x.$ref", "JSON pointer"),
    ("a reference to text", {"title": "t", "properties": {"x": {"$ref": "#/title"}}}, ".properties.x.$ref", "schema"),
    ("a reference deep inside", {"properties": {"x": {"items": {"anyOf": [{}, {"$ref": "a"}]}}}}, ".properties.x.items.anyOf[1].$ref", "start with #"),
    ("a reference in an unused definition", {"$defs": {"A": {"$ref": "/etc/passwd"}}}, ".$defs.A.$ref", "start with #"),
    ("a reference in a used definition", {"properties": {"x": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"items": {"$ref": "b"}}}}, ".$defs.A.items.$ref", "start with #"),
    ("$id next to a file", {"$id": "file:///etc/", "properties": {"x": {"$ref": "passwd"}}}, ".properties.x.$ref", "start with #"),
    ("$id inside", {"properties": {"x": {"$id": "a"}}}, ".properties.x.$id", "$id"),
    ("$dynamicRef", {"properties": {"x": {"$dynamicRef": "#a"}}}, ".properties.x.$dynamicRef", "$ref"),
    ("another type at the root", {"type": "string"}, ".type", "object"),
    ("another type behind a reference", {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array"}}}, ".type", "object"),
    ("an unknown type", {"properties": {"x": {"type": "strnig"}}}, ".properties.x.type", "strnig"),
    ("a type that is no name", {"properties": {"x": {"type": 3}}}, ".properties.x.type", "unknown type 3"),
    ("properties in a list", {"properties": [{"name": "x"}]}, ".properties", "object"),
    ("a property that is text", {"properties": {"x": "string"}}, ".properties.x", "object"),
    ("required that is text", {"properties": {"x": {}}, "required": "x"}, ".required", "array"),
    ("required of numbers", {"properties": {"x": {}}, "required": [1]}, ".required", "array"),
    ("enum that is text", {"properties": {"x": {"enum": "a,b"}}}, ".properties.x.enum", "array"),
    ("anyOf that is an object", {"properties": {"x": {"anyOf": {}}}}, ".properties.x.anyOf", "array"),
    ("a bound that is text", {"properties": {"x": {"minLength": "3"}}}, ".properties.x.minLength", "JSON Schema"),
    ("a negative bound", {"properties": {"x": {"maxItems": -1}}}, ".properties.x.maxItems", "JSON Schema"),
    ("a pattern that is a number", {"properties": {"x": {"pattern": 3}}}, ".properties.x.pattern", "JSON Schema"),
    ("arguments without a schema", {"city": {"type": "string"}}, ".city", "properties"),
    ("arguments that are named like remarks", {"title": {"type": "string"}, "year": {}}, ".title", "properties"),
    ("arguments next to a type", {"type": "object", "city": {"type": "string"}}, ".city", "properties"),
    ("arguments with a word each", {"city": "the city", "days": "a number"}, ".city", "properties"),
    ("a tool in a tool", {"name": "f", "description": "d", "parameters": {"type": "object"}}, ".parameters", "properties"),
    ("parameters that are text", '{"type": "object"}', "", "object"),
    ("parameters in a list", [], "", "object"),
    ("NaN", {"properties": {"x": {"default": float("nan")}}}, ".properties.x.default", "nan"),
    ("infinity", {"properties": {"x": {"maximum": float("inf")}}}, ".properties.x.maximum", "inf"),
    ("a number without end", {"properties": {"x": {"maximum": 10**5000}}}, ".properties.x.maximum", "large"),
    ("half a character", {"properties": {"x": {"description": "\ud800"}}}, ".properties.x.description", "surrogate"),
    ("schemas that double at every step", doubling(30), "", "apply to one value"),
    ("references in a row without end", {"properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": chain(3000, lambda ref: ref)}, "", "in a row"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "place", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_schema_is_refused_at_its_place(parameters: Any, place: str, words: str) -> None:
    tools = offered({"name": "fine"}, {"name": "tool", "parameters": parameters})
    with pytest.raises(SchemaError) as caught:
        Toolset.parse(tools)
    assert caught.value.param == f"tools[1].function.parameters{place}"
    assert words in caught.value.message


REFUSED_TOOLS: list[tuple[str, Any, str]] = [
    ("tools that are an object", {}, "tools"),
    ("tools that are text", "[]", "tools"),
    ("a tool that is text", ["get_weather"], "tools[0]"),
    ("an unknown type", [{"type": "telepathy", "function": {"name": "f"}}], "tools[0].type"),
    ("a type that is a list", [{"type": ["function"]}], "tools[0].type"),
    ("a hosted tool", [{"type": "code_interpreter"}], "tools[0].type"),
    ("no function", [{"type": "function"}], "tools[0].function"),
    ("a function that is text", [{"type": "function", "function": "f"}], "tools[0].function"),
    ("no name", offered({}), "tools[0].function.name"),
    ("an empty name", offered({"name": ""}), "tools[0].function.name"),
    ("a name that is a number", offered({"name": 3}), "tools[0].function.name"),
    ("a name of 129 letters", offered({"name": "a" * 129}), "tools[0].function.name"),
    ("a name with a newline", offered({"name": "a\nb"}), "tools[0].function.name"),
    ("a name with a space", offered({"name": "a b"}), "tools[0].function.name"),
    ("a name with a quote", offered({"name": 'a"b'}), "tools[0].function.name"),
    ("a name of dashes", offered({"name": "---"}), "tools[0].function.name"),
    ("a description that is a number", offered({"name": "f", "description": 3}), "tools[0].function.description"),
    ("two tools of one name", offered({"name": "f"}, {"name": "f"}), "tools[1].function.name"),
    ("a flat tool without a good name", [{"type": "function", "name": "!"}], "tools[0].name"),
    ("too many tools", offered(*({"name": f"f{n}"} for n in range(513))), "tools"),
    ("too deep", offered({"name": "f", "parameters": {"properties": {"x": many_levels(70)}}}), "tools[0]"),
    ("so deep that recursion would end", offered({"name": "f", "parameters": {"properties": {"x": many_levels(5000)}}}), "tools[0]"),
    ("too many values", offered({"name": "f", "parameters": {"enum": list(range(30_000))}}), "tools[0]"),
    ("too much text", offered({"name": "f", "description": "x" * 600_000}), "tools[0]"),
    ("short definitions used often", offered({"name": "f", "parameters": repeated_choices()}), "tools"),
    ("a key that is no text", offered({"name": "f", "parameters": {3: 4}}), "tools[0].function.parameters"),
    ("examples that are an object", offered({"name": "f", "input_examples": {}}), "tools[0].function.input_examples"),
    ("an example that is text", offered({"name": "f", "input_examples": [{}, "x"]}), "tools[0].function.input_examples[1]"),
    ("an example that the schema refuses", offered({"name": "f", "parameters": {"required": ["a"]}, "input_examples": [{"a": 1}, {}]}), "tools[0].function.input_examples[1]"),
    ("a value that is not JSON", offered({"name": "f", "parameters": {"enum": [b"x"]}}), "tools[0].function.parameters.enum[0]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tools", "place"), [row[1:] for row in REFUSED_TOOLS], ids=[row[0] for row in REFUSED_TOOLS]
)
def test_a_tools_array_is_refused_at_its_place(tools: Any, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Toolset.parse(tools, skip={"web_search"})
    assert caught.value.param == place


def bodies() -> list[tuple[str, Any]]:
    path = Path(__file__).parents[1] / "data" / "client_requests.jsonl"
    requests = map(json.loads, path.read_text().splitlines())
    return [(r["name"], r["body"]) for r in requests if isinstance(r["body"], dict)]


@pytest.mark.parametrize("written", [
    ["get_weather", "math.lcm", "file-search", "print", "list", "class", "a.b", "a_b", "a-b", "ﬁnd", "find", "1st", "名前",
     "x" * 64, "BaseModel", "_construct"],
])  # fmt: skip
def test_every_name_has_a_python_name_of_its_own(written: list[str]) -> None:
    tools = Toolset.parse(offered(*({"name": name} for name in written)))
    python_names = [tool.python_name for tool in tools.tools]
    assert python_names == [
        "get_weather", "math_lcm", "file_search", "print_", "list_", "class_", "a_b2", "a_b", "a_b3", "find2", "find",
        "tool_1st", "名前", "x" * 64, "BaseModel_", "_construct_",
    ]  # fmt: skip
    assert_sound(tools)
    for tool in tools.tools:
        assert tools.find(tool.name) is tool
        assert tools.find(tool.python_name) is tool


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("math.lcm", "math.lcm"),
        ("math_lcm", "math.lcm"),
        ("functions.math.lcm", "math.lcm"),
        ("functions.math_lcm", "math.lcm"),
        ("default_api.getWeather", "getWeather"),
        ("tools.getWeather", "getWeather"),
        ("getweather", "getWeather"),
        ("function.GetWeather", "getWeather"),
        ("functions.File-Search", "file-search"),
        ("get_weather", "getWeather"),
        ("get_wether", None),
        ("print", "print"),
        ("file_search", "file-search"),
        ("a.b", "a.b"),
        ("a-b", "a-b"),
        ("a_b", "a.b"),
        ("a_b2", "a-b"),
        ("functions.", None),
        ("", None),
        ("nope", None),
    ],
)
def test_a_tool_is_found_by_the_names_that_models_write(written: str, found: str | None) -> None:
    names = ["math.lcm", "getWeather", "print", "file-search", "a.b", "a-b"]
    tools = Toolset.parse(offered(*({"name": name} for name in names)))
    tool = tools.find(written)
    assert (tool.name if tool else None) == found


@pytest.mark.parametrize(("name", "body"), bodies(), ids=[name for name, _ in bodies()])
def test_the_tools_of_real_clients_are_parsed(name: str, body: dict[str, Any]) -> None:
    tools = body.get("tools") or []
    # Other types are flattened or removed before tools are parsed.
    kinds = {tool["type"] for tool in tools} - {"function", "custom"}
    parsed = Toolset.parse(tools, skip=kinds)
    assert_sound(parsed)
    wanted = [t.get("function") or t.get("custom") or t for t in tools if t["type"] not in kinds]
    assert [tool.name for tool in parsed.tools] == [tool["name"] for tool in wanted]


def test_skipped_tools_do_not_change_the_places_of_others() -> None:
    tools = [{"type": "code_interpreter"}, {"type": "function", "name": "f", "parameters": 3}]
    with pytest.raises(SchemaError) as caught:
        Toolset.parse(tools, skip=["code_interpreter"])
    assert caught.value.param == "tools[1].parameters"


def test_a_custom_tool_takes_one_text() -> None:
    tools = Toolset.parse([{"type": "custom", "custom": {"name": "py", "description": "Run."}}])
    assert [(t.name, t.kind) for t in tools.tools] == [("py", "custom")]
    assert tools.bind("py", ["print(1)"], {}) == {"input": "print(1)"}


def test_equal_tools_are_parsed_once() -> None:
    tools = offered({"name": "cached", "parameters": {"properties": {"x": {"type": "integer"}}}})
    first = Toolset.parse(tools)
    assert Toolset.parse(json.loads(json.dumps(tools))) is first
    assert Toolset.parse(offered({"name": "cached"})) is not first


def test_the_cache_drops_the_least_recently_used_toolset() -> None:
    first = toolset({}, "kept")
    for n in range(tools_module.MAX_CACHED + 5):
        toolset({}, f"passing{n}")
        assert toolset({}, "kept") is first
    assert tools_module._parse_cached.cache_info().currsize == tools_module.MAX_CACHED


def test_referenced_parameters_are_moved_to_the_root() -> None:
    """Readers of `Tool.parameters` look for properties there."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tools = toolset({"$ref": "#/$defs/A", "$defs": {"A": schema}})
    assert tools.tools[0].parameters == {**schema, "$defs": {"A": schema}}


def test_the_callers_array_is_unchanged() -> None:
    tools = offered(
        {"name": "f", "parameters": {"type": "dict", "properties": {"x": {"required": True}}}}
    )
    before = json.dumps(tools)
    assert_sound(Toolset.parse(tools))
    assert json.dumps(tools) == before
