"""Schemas, arguments that a grammar made of them admits, and arguments that it refuses."""

# ruff: noqa: E501 - a table: a row in one line or two
# fmt: off

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def argument(schema: Json, **more: Any) -> Json:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], **more}


def pair(**more: Any) -> Json:
    """An object of a, b and c, none of which is required."""
    properties = {name: {"type": "integer"} for name in "abc"}
    return {"type": "object", "properties": properties, **more}


TREE = {
    "tree": {
        "type": "object",
        "properties": {
            "value": {"type": "integer", "minimum": 0},
            "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
        },
        "required": ["value"],
    }
}
KIND = {"type": "string", "enum": ["file", "url"]}

ROWS: tuple[tuple[str, Json, tuple[str, ...], tuple[str, ...]], ...] = (
    # what it is about, the parameters, arguments that are admitted, and that are not
    ("a required argument", argument({"type": "string"}), ('x="a"',), ("", "x=1")),
    ("no argument", {"type": "object", "properties": {}}, ("",), ("x=1",)),
    ("an integer", argument({"type": "integer"}), ("x=-12", "x=0"), ("x=1.5", "x=True", "x=007")),
    ("an integer between bounds", argument({"type": "integer", "minimum": -3, "maximum": 120}),
     ("x=-3", "x=0", "x=99", "x=120"), ("x=-4", "x=121", "x=1000")),
    ("an integer without its bounds", argument({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}),
     ("x=1", "x=9"), ("x=0", "x=10", "x=-1")),
    ("a large least integer", argument({"type": "integer", "minimum": 2**53}), (f"x={2**53}",), ("x=9",)),
    ("a share", argument({"type": "number", "minimum": 0, "maximum": 1}),
     ("x=0", "x=0.25", "x=1", "x=1.0"), ("x=-0.5", "x=1.01", "x=2")),
    ("a number above zero", argument({"type": "number", "exclusiveMinimum": 0}),
     ("x=0.5", "x=17", "x=1234.5"), ("x=0", "x=0.0", "x=-1")),
    ("a narrow number", argument({"type": "number", "exclusiveMinimum": -0.75, "maximum": -0.5}),
     ("x=-0.5", "x=-0.74"), ("x=-0.75", "x=-0.49", "x=0", "x=-1")),
    ("steps of an integer", argument({"type": "integer", "multipleOf": 5}), ("x=0", "x=-15", "x=1005"), ("x=7",)),
    ("steps of seven", argument({"type": "integer", "multipleOf": 7, "minimum": 1}), ("x=7", "x=70"), ("x=0", "x=8")),
    ("a price", argument({"type": "number", "multipleOf": 0.01, "minimum": 0}), ("x=19.99", "x=3"), ("x=0.005",)),
    ("steps of a half", argument({"type": "number", "multipleOf": 0.5}), ("x=3", "x=-2"), ("x=0.25",)),
    ("a string's length", argument({"type": "string", "minLength": 2, "maxLength": 4}),
     ('x="ab"', 'x="東京é\\n"', 'x="\\"\\\\"'), ('x="a"', 'x="abcde"', 'x="\\n"')),
    ("a long string", argument({"type": "string", "maxLength": 5000}), ('x="' + "a" * 1200 + '"',), ()),
    ("an empty string", argument({"type": "string", "maxLength": 0}), ('x=""',), ('x="a"',)),
    ("a date's pattern", argument({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}),
     ('x="2026-01-31"',), ('x="31.1.2026"', 'x="2026-01-31 "')),
    ("a pattern without anchors", argument({"type": "string", "pattern": r"\.py|\.js$", "maxLength": 12}),
     ('x="a.py"', 'x=".js"', 'x="a.pyc"'), ('x="a.jsx"', 'x="a.ts"')),
    ("an address", argument({"type": "string", "pattern": r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "maxLength": 60}),
     ('x="bob@example.org"',), ('x="bob"', 'x="bob@example"', 'x="a b@c.de"')),
    ("a pattern of groups", argument({"type": "string", "pattern": r"^(?:[A-Z]{2,3}-)?\d+(\.(\d|x))*$"}),
     ('x="AB-12.3.x"', 'x="7"'), ('x="A-1"', 'x="7."')),
    ("a pattern and a length", argument({"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 5}),
     ('x="abc"', 'x="abcde"'), ('x="ab"', 'x="abcdef"')),
    ("quotes in a pattern", argument({"type": "string", "pattern": r'^["\\][\W]$'}), ('x="\\"!"',), ('x="a!"',)),
    ("an enum", argument({"enum": ["a", 1, None, True]}), ('x="a"', "x=1", "x=None", "x=True"), ('x="b"', "x=false")),
    ("an enum of another type", argument({"type": "string", "enum": ["a", 1]}), ('x="a"',), ("x=1",)),
    ("a const of an object", argument({"const": {"a": [1, "b"]}}), ('x={"a": [1, "b"]}',), ('x={"a": 1}',)),
    ("types", argument({"type": ["integer", "null"], "minimum": 1}), ("x=1", "x=None"), ("x=0", 'x="a"')),
    ("a union", argument({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "minimum": 5}]}),
     ('x="ab"', "x=5"), ('x="abc"', "x=4")),
    ("bounds beside a union", argument({"anyOf": [{"type": "integer"}, {"type": "null"}], "minimum": 3}),
     ("x=3", "x=None"), ("x=2",)),
    ("all of several", argument({"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 4, "maximum": 9}, {"maximum": 7}]}),
     ("x=4", "x=7"), ("x=3", "x=8")),
    ("an array's length", argument({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}),
     ("x=[1, 2]", "x=[1, 2, 3]"), ("x=[]", "x=[1]", "x=[1, 2, 3, 4]", 'x=["a", 1]')),
    ("one item", argument({"type": "array", "items": {"type": "integer"}, "maxItems": 1}), ("x=[]", "x=[1]"), ("x=[1, 2]",)),
    ("a set of choices", argument({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2}),
     ('x=["a", "c"]', 'x=["a", "b", "c"]'), ('x=["a", "a"]', 'x=["a"]')),
    ("a tuple", argument({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False, "minItems": 2}),
     ('x=[1.5, "a"]',), ("x=[1.5]", 'x=[1.5, "a", 1]', 'x=["a", 1]')),
    ("a tuple that goes on", argument({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "maxItems": 3}),
     ("x=[]", 'x=["a"]', 'x=["a", 1, 2]'), ('x=["a", 1, 2, 3]', 'x=["a", "b"]')),
    ("a nested object", argument({"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string"}}, "required": ["b"]}),
     ('x={"b": "c"}', 'x={"b": "c", "a": 2}'), ("x={}", 'x={"a": 1}', 'x={"b": "c", "a": 3}', 'x={"b": "c", "z": 3}')),
    (
        "a dictionary",
        argument(
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
                "propertyNames": {"pattern": "^[a-z]{1,4}$"},
                "maxProperties": 2,
            }
        ),
        ("x={}", 'x={"ab": 1, "c": 2}'),
        ('x={"AB": 1}', 'x={"a": -1}', 'x={"a": 1, "b": 2, "c": 3}'),
    ),
    (
        "keys of patterns",
        argument(
            {
                "type": "object",
                "patternProperties": {
                    "^n_[a-z]$": {"type": "integer"},
                    "^s_[a-z]$": {"type": "string"},
                },
                "additionalProperties": False,
                "minProperties": 1,
            }
        ),
        ('x={"n_a": 1, "s_b": "c"}',),
        ("x={}", 'x={"n_a": "c"}', 'x={"z": 1}'),
    ),
    ("any value", argument({}), ('x=[1, {"a": None}]', "x=1.5"), ("",)),
    ("a definition", argument({"$ref": "#/$defs/kind"}, **{"$defs": {"kind": KIND}}), ('x="url"',), ('x="c"',)),
    ("a definition with more", argument({"$ref": "#/$defs/n", "maximum": 5}, **{"$defs": {"n": {"type": "integer", "minimum": 2}}}),
     ("x=2", "x=5"), ("x=1", "x=6")),
    (
        "a tree",
        argument({"$ref": "#/$defs/tree"}, **{"$defs": TREE}),
        (
            'x={"value": 1}',
            'x={"value": 1, "children": [{"value": 2, "children": []}, {"value": 3}]}',
        ),
        ('x={"value": -1}', 'x={"children": []}', 'x={"value": 1, "children": [{}]}'),
    ),
    (
        "a union of objects",
        argument(
            {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "file"}, "path": {"type": "string"}},
                        "required": ["kind", "path"],
                    },
                    {
                        "type": "object",
                        "properties": {
                            "kind": {"const": "url"},
                            "port": {"type": "integer", "minimum": 1},
                        },
                        "required": ["kind"],
                    },
                ]
            }
        ),
        ('x={"kind": "file", "path": "a"}', 'x={"kind": "url", "port": 8}', 'x={"kind": "url"}'),
        ('x={"kind": "file"}', 'x={"kind": "file", "port": 8}', 'x={"kind": "url", "port": 0}'),
    ),
    (
        "arguments that are a union",
        {
            "type": "object",
            "properties": {"kind": KIND},
            "required": ["kind"],
            "anyOf": [
                {
                    "properties": {"kind": {"const": "file"}, "path": {"type": "string"}},
                    "required": ["path"],
                },
                {
                    "properties": {"kind": {"const": "url"}, "port": {"type": "integer"}},
                    "required": ["port"],
                },
            ],
        },
        ('kind="file", path="a"', 'kind="url", port=1'),
        ('kind="file", port=1', 'kind="url"', 'path="a"'),
    ),
    ("one or the other", pair(anyOf=[{"required": ["a"]}, {"required": ["b"]}]), ("a=1", "b=1", "a=1, b=2"), ("", "c=1")),
    ("one and not the other", pair(oneOf=[{"required": ["a"]}, {"required": ["b"]}]), ("a=1", "b=1, c=2"), ("", "a=1, b=2")),
    ("not together", pair(**{"not": {"required": ["a", "b"]}}), ("a=1", "b=1", "c=1", ""), ("a=1, b=2",)),
    ("one that needs another", pair(dependentRequired={"a": ["b"]}), ("b=1", "a=1, b=2", "c=1"), ("a=1", "a=1, c=2")),
    ("one that changes another", pair(dependentSchemas={"a": {"properties": {"b": {"maximum": 5}}, "required": ["b"]}}),
     ("b=9", "a=1, b=5", ""), ("a=1", "a=1, b=9")),
    ("so many members", pair(minProperties=1, maxProperties=2), ("a=1", "b=1, c=2"), ("", "a=1, b=2, c=3")),
    (
        "a condition",
        {
            "type": "object",
            "properties": {"kind": KIND, "path": {"type": "string"}, "port": {"type": "integer"}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "file"}}},
            "then": {"required": ["path"]},
            "else": {"required": ["port"], "properties": {"port": {"maximum": 99}}},
        },
        ('kind="file", path="a"', 'kind="url", port=80'),
        ('kind="file"', 'kind="url", port=100', 'kind="url", path="a"'),
    ),
    (
        "names that are none in Python",
        {
            "type": "object",
            "properties": {"class": {"type": "integer"}, "a-b": {"const": 1}},
            "required": ["a-b"],
        },
        ("a_b=1", "a_b=1, class_=2"),
        ("",),
    ),
    ("an optional one that cannot be", {"type": "object", "properties": {"a": False, "b": {"type": "boolean"}}},
     ("", "b=True"), ("a=1",)),
)
