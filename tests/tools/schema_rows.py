"""Hostile and dated schemas, each with a call: the expected arguments, or the expected error.

One row: (what it is, parameters, keyword arguments, arguments object | words of the problem).
Used by test_binding.py and by test_toolset.py, which also parses every row's stubs.
"""

# ruff: noqa: E501 - a table: one row, one line
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[str, Any, dict[str, Any], dict[str, Any] | str]


def one(schema: Any, *, required: bool = True, **more: Any) -> dict[str, Any]:
    """Parameters with the one property x."""
    needed = {"required": ["x"]} if required else {}
    return {"type": "object", "properties": {"x": schema}, **needed, **more}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return one(schema)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
CAT = {
    "type": "object",
    "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
    "required": ["kind", "lives"],
}
DOG = {
    "type": "object",
    "properties": {"kind": {"const": "dog"}, "tricks": {"type": "array", "items": {"type": "string"}}},
    "required": ["kind"],
}
TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
    },
    "required": ["value"],
}
FILTER = {
    "anyOf": [
        *(
            {
                "type": "object",
                "properties": {
                    "op": {"const": op},
                    "args": {"type": "array", "items": {"$ref": "#/$defs/Filter"}},
                },
                "required": ["op", "args"],
            }
            for op in ("and", "or", "not")
        ),
        {
            "type": "object",
            "properties": {"op": {"const": "is"}, "value": {"type": "integer"}},
            "required": ["op", "value"],
            "additionalProperties": False,
        },
    ]
}


def chain(length: int, link: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Definitions D0, D1... each of which leads to the next; the last is an integer."""
    links = {f"D{n}": link({"$ref": f"#/$defs/D{n + 1}"}) for n in range(length)}
    return {**links, f"D{length}": {"type": "integer"}}


def deep_filter(depth: int, value: Any) -> dict[str, Any]:
    leaf: dict[str, Any] = {"op": "is", "value": value}
    for n in range(depth):
        leaf = {"op": ("and", "or", "not")[n % 3], "args": [leaf]}
    return leaf


NO_PARAMETERS: list[Row] = [
    ("parameters null", None, {}, {}),
    ("parameters empty", {}, {}, {}),
    ("properties empty", {"type": "object", "properties": {}}, {}, {}),
    ("no properties at all", {"type": "object"}, {}, {}),
    ("properties null", {"type": "object", "properties": None}, {}, {}),
    ("required null", {"type": "object", "properties": {}, "required": None}, {}, {}),
    ("an argument for a tool that takes none", {}, {"x": 1}, 'unknown argument "x"; expected no arg'),
    ("closed and empty", {"type": "object", "additionalProperties": False}, {"x": 1}, "unknown"),
]

DATED: list[Row] = [
    ("BFCL dict", {"type": "dict", "properties": {"x": {"type": "float"}}}, {"x": 1.5}, {"x": 1.5}),
    ("BFCL any", one({"type": "any"}), {"x": [1, "a"]}, {"x": [1, "a"]}),
    ("BFCL tuple", one({"type": "tuple", "items": {"type": "float"}}), {"x": [1, 2.5]}, {"x": [1, 2.5]}),
    ("float takes a whole number", one({"type": "float"}), {"x": 3}, {"x": 3}),
    ("Java names", one({"type": "ArrayList", "items": {"type": "long"}}), {"x": [1]}, {"x": [1]}),
    ("shouted types", {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}, {"x": "a"}, {"x": "a"}),
    ("HashMap", one({"type": "HashMap"}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("any in a list of types", one({"type": ["string", "any"]}), {"x": 1}, {"x": 1}),
    ("type repeated", one({"type": ["string", "str"]}), {"x": "a"}, {"x": "a"}),
    ("type list empty", one({"type": []}), {"x": 1}, {"x": 1}),
    (
        "draft-04 exclusiveMinimum true",
        one({"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        {"x": 0},
        "x: expected more than 0, found 0",
    ),
    (
        "draft-04 exclusiveMaximum false",
        one({"type": "number", "maximum": 5, "exclusiveMaximum": False}),
        {"x": 5},
        {"x": 5},
    ),
    (
        "draft-04 exclusiveMaximum without a bound",
        one({"type": "number", "exclusiveMaximum": True}),
        {"x": 5},
        {"x": 5},
    ),
    (
        "draft-07 definitions",
        one({"$ref": "#/definitions/P"}, definitions={"P": PERSON}),
        {"x": {"name": "a"}},
        {"x": {"name": "a"}},
    ),
    (
        "draft-07 array of items",
        one({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}),
        {"x": ["a", "b"]},
        'x[1]: expected int, found "b"',
    ),
    (
        "draft-07 additionalItems false",
        one({"type": "array", "items": [{"type": "string"}], "additionalItems": False}),
        {"x": ["a", "b"]},
        "x",
    ),
    (
        "draft-07 dependencies by name",
        {"type": "object", "properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}},
        {"a": 1},
        '"b"',
    ),
    (
        "draft-07 dependencies by schema",
        {
            "type": "object",
            "properties": {"a": {}},
            "dependencies": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}},
        },
        {"a": 1, "b": 2},
        {"a": 1, "b": 2},
    ),
    (
        "draft-03 required on a property",
        {"type": "object", "properties": {"x": {"type": "string", "required": True}}},
        {},
        'missing argument "x" (str)',
    ),
    (
        "draft-03 required false",
        {"type": "object", "properties": {"x": {"type": "string", "required": False}}},
        {},
        {},
    ),
    ("$schema", one({"type": "integer"}, **{"$schema": "http://json-schema.org/draft-07/schema#"}), {"x": 1}, {"x": 1}),
    ("OpenAPI nullable", one({"type": "string", "nullable": True}), {"x": None}, {"x": None}),
    ("OpenAPI nullable enum", one({"type": "string", "enum": ["a"], "nullable": True}), {"x": None}, {"x": None}),
    (
        "OpenAPI nullable $ref",
        one({"$ref": "#/$defs/P", "nullable": True}, **{"$defs": {"P": PERSON}}),
        {"x": None},
        {"x": None},
    ),
    ("OpenAPI nullable false", one({"type": "string", "nullable": False}), {"x": None}, "x: expected str, found None"),
    (
        "OpenAPI components",
        one({"$ref": "#/components/schemas/P"}, components={"schemas": {"P": PERSON}}),
        {"x": {"name": "a"}},
        {"x": {"name": "a"}},
    ),
    ("OpenAPI discriminator", one({"oneOf": [CAT, DOG], "discriminator": {"propertyName": "kind"}}), {"x": {"kind": "cat", "lives": 9}}, {"x": {"kind": "cat", "lives": 9}}),
    ("x- extensions", one({"type": "string", "x-order": 1}, **{"x-all": {"$ref": "nowhere"}}), {"x": "a"}, {"x": "a"}),
    ("unknown keywords", one({"type": "string", "widget": {"type": 3}}), {"x": "a"}, {"x": "a"}),
    ("properties without type", {"properties": {"x": {"type": "integer"}}}, {"x": 1}, {"x": 1}),
    ("nullable object at the root", {"type": ["object", "null"], "properties": {"x": {}}}, {"x": 1}, {"x": 1}),
    ("description null", one({"type": "string", "description": None}), {"x": "a"}, {"x": "a"}),
    ("enum empty", one({"type": "string", "enum": []}), {"x": "a"}, {"x": "a"}),
    ("enum with doubles", one({"enum": ["a", "a", 1, 1.0]}), {"x": 1}, {"x": 1}),
    ("property null", {"type": "object", "properties": {"x": None}}, {"x": [1]}, {"x": [1]}),
    ("property true", one(True), {"x": [1]}, {"x": [1]}),
    ("property false", one(False, required=False), {"x": 1}, "x"),
    ("bounds null", one({"type": "integer", "minimum": None, "default": None}), {"x": 1}, {"x": 1}),
    ("allOf empty", one({"type": "integer", "allOf": []}), {"x": 1}, {"x": 1}),
]

NAMES: list[Row] = [
    *(
        (f"a parameter called {name}", {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}, {name: 1}, {name: 1})
        for name in (
            "class", "from", "_from", "schema", "dict", "fields", "list", "type", "Content-Type", "None",
            "self", "args", "kwargs", "extra", "model_config", "__init__", "a b", "a.b", "1st", "", "\n", "$ref",
            "$id", "x-api-key", "@type", "é", "ﬁle", "名前", "a\"b", "a'b", "a`b", "a\\b", "x" * 64, "__", "Any",
            "Literal", "id", "properties", "required", "None ", "\U0001f600", "lambda", "print", "names", "value",
        )
    ),
    ("a keyword by its Python name", one({}, required=False) | {"properties": {"class": {"type": "integer"}}}, {"class_": 1}, {"class": 1}),
    ("a header by its Python name", {"type": "object", "properties": {"Content-Type": {"type": "string"}}}, {"Content_Type": "a"}, {"Content-Type": "a"}),
    ("two names that collide", {"type": "object", "properties": {"a-b": {"type": "integer"}, "a_b": {"type": "string"}}}, {"a_b": "s", "a_b2": 1}, {"a_b": "s", "a-b": 1}),
    ("two names alike under NFKC", {"type": "object", "properties": {"file": {"type": "integer"}, "ﬁle": {"type": "string"}}}, {"file": 1, "file2": "s"}, {"file": 1, "ﬁle": "s"}),
    ("a nested keyword by its Python name", one({"type": "object", "properties": {"class": {"type": "integer"}}}), {"x": {"class_": "1"}}, {"x": {"class": 1}}),
]

DEFAULTS: list[Row] = [
    (f"default {default!r}", one({**schema, "default": default}, required=False), {}, {})
    for schema, default in (
        ({"type": "string"}, "a"),
        ({"type": "string"}, None),
        ({"type": "string"}, 5),
        ({"type": "string"}, 'a"""b\\'),
        ({"type": "string"}, "x" * 500),
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, True),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "array"}, ["a", {"b": None}]),
        ({"type": "object"}, {}),
        ({"type": "object", "properties": {"a": {"default": 1}}}, {"a": 2}),
        ({"enum": ["a", "b"]}, "c"),
        ({"type": "number"}, 1e308),
        ({"type": "boolean"}, False),
        ({}, "anything"),
    )
] + [
    ("only remarks", {"$schema": "s", "title": "T", "description": "d", "x-order": {"type": "a"}}, {}, {}),
    ("required with a default", one({"type": "integer", "default": 1}), {}, 'missing argument "x" (int)'),
    ("a nested default", one(PERSON | {"properties": {"name": {"type": "string"}, "age": {"default": 3}}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("required after optional", {"type": "object", "properties": {"a": {"type": "integer"}, "x": {"type": "string"}}, "required": ["x"]}, {"x": "s"}, {"x": "s"}),
    ("required but not described", {"type": "object", "properties": {}, "required": ["x"]}, {"x": 1}, {"x": 1}),
    ("required twice", {"type": "object", "properties": {"x": {}}, "required": ["x", "x"]}, {"x": 1}, {"x": 1}),
]

REFERENCES: list[Row] = [
    ("$ref to $defs", one({"$ref": "#/$defs/P"}, **{"$defs": {"P": PERSON}}), {"x": {"age": 1}}, 'x: missing member "name" (str)'),
    ("$ref with a description next to it", one({"$ref": "#/$defs/P", "description": "who"}, **{"$defs": {"P": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("$ref to a scalar", one({"$ref": "#/$defs/N"}, **{"$defs": {"N": {"type": "integer"}}}), {"x": "3"}, {"x": 3}),
    ("$ref to an enum", one({"$ref": "#/$defs/E"}, **{"$defs": {"E": {"enum": ["a", "b"]}}}), {"x": "A"}, {"x": "a"}),
    ("$ref to a $ref", one({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "integer"}}}), {"x": "3"}, {"x": 3}),
    ("$ref to a property", {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"$ref": "#/properties/x"}}}, {"y": "3"}, {"y": 3}),
    ("$ref with dots in the name", one({"$ref": "#/$defs/a.b.P"}, **{"$defs": {"a.b.P": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("$ref with escapes", one({"$ref": "#/$defs/a~1b%20c~0"}, **{"$defs": {"a/b c~": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("$ref with brackets, as generics have", one({"$ref": "#/$defs/Page[int]"}, **{"$defs": {"Page[int]": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("$ref into a list", {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}]}, "y": {"$ref": "#/properties/x/anyOf/0"}}}, {"y": 1}, {"y": 1}),
    ("recursive tree", one({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": TREE}}), {"x": {"value": 1, "children": [{"value": "2"}]}}, {"x": {"value": 1, "children": [{"value": 2}]}}),
    ("an error inside a recursive tree", one({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": TREE}}), {"x": {"value": 1, "children": [{"value": "b"}]}}, 'x.children[0].value: expected int, found "b"'),
    ("the root inside itself", {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}, {"n": 1, "next": {"n": "2"}}, {"n": 1, "next": {"n": 2}}),
    ("mutual recursion", one({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}}}), {"x": {"b": {"a": {}}}}, {"x": {"b": {"a": {}}}}),
    ("a reference to itself alone", one({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}}), {"x": 1}, {"x": 1}),
    ("two references to each other alone", one({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}), {"x": 1}, {"x": 1}),
    ("a list of itself", one({"$ref": "#/$defs/L"}, **{"$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}}), {"x": [[], [[]]]}, {"x": [[], [[]]]}),
    ("JSON as a type", one({"$ref": "#/$defs/J"}, **{"$defs": {"J": {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": {"$ref": "#/$defs/J"}}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/J"}}]}}}), {"x": {"a": [1, None, {"b": True}]}}, {"x": {"a": [1, None, {"b": True}]}}),
    ("a scalar or a list of itself", one({"$ref": "#/$defs/J"}, **{"$defs": {"J": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/J"}}]}}}), {"x": "a"}, "x: expected"),
    ("a recursive union, right", one({"$ref": "#/$defs/Filter"}, **{"$defs": {"Filter": FILTER}}), {"x": deep_filter(12, 1)}, {"x": deep_filter(12, 1)}),
    ("a recursive union, wrong deep inside", one({"$ref": "#/$defs/Filter"}, **{"$defs": {"Filter": FILTER}}), {"x": deep_filter(12, "b")}, '.value: expected int, found "b"'),
    (
        "griptape's schema, whose root has an $id",
        {
            "type": "object",
            "properties": {"expression": {"description": "Arithmetic expression", "type": "string"}},
            "required": ["expression"],
            "additionalProperties": False,
            "$id": "Parameters Schema",
            "$schema": "http://json-schema.org/draft-07/schema#",
        },
        {"expression": "1"},
        {"expression": "1"},
    ),
    ("an $id next to references", {"$id": "https://h/s", "properties": {"x": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}, {"x": "1"}, {"x": 1}),
    ("arguments behind a reference", {"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}, {"x": "1"}, {"x": 1}),
    ("a definition that is itself or a number", one({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}]}}}), {"x": 3}, {"x": 3}),
    ("forty references in a row", one({"$ref": "#/$defs/D0"}, **{"$defs": chain(40, lambda ref: ref)}), {"x": "3"}, {"x": 3}),
    ("four thousand lists in one another", one({"$ref": "#/$defs/D0"}, **{"$defs": chain(4000, lambda ref: {"type": "array", "items": ref})}), {"x": [[[]]]}, {"x": [[[]]]}),
    ("two thousand models in one another", one({"$ref": "#/$defs/D0"}, **{"$defs": chain(2000, lambda ref: {"type": "object", "properties": {"x": ref}})}), {"x": {"x": {}}}, {"x": {"x": {}}}),
    ("tuples that double at every step", one({"$ref": "#/$defs/D0"}, **{"$defs": chain(40, lambda ref: {"type": "array", "prefixItems": [ref, ref]})}), {"x": [[], []]}, {"x": [[], []]}),
    ("lists of one another, all of all", one({"$ref": "#/$defs/D0"}, **{"$defs": {f"D{n}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/D{m}"}} for m in range(12)]} for n in range(12)}}), {"x": [[]]}, {"x": [[]]}),
    ("models of one another, all of all", one({"$ref": "#/$defs/D0"}, **{"$defs": {f"D{n}": {"type": "object", "properties": {f"p{m}": {"$ref": f"#/$defs/D{m}"} for m in range(12)}} for n in range(12)}}), {"x": {"p3": {}}}, {"x": {"p3": {}}}),
    ("an unused definition", one({"type": "integer"}, **{"$defs": {"P": PERSON}}), {"x": 1}, {"x": 1}),
    ("a definition called like a builtin", one({"$ref": "#/$defs/list"}, **{"$defs": {"list": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
]

UNIONS: list[Row] = [
    ("anyOf scalars", one({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}), {"x": "3"}, {"x": 3}),
    ("anyOf with a string takes it as it is", one({"anyOf": [{"type": "integer"}, {"type": "string"}]}), {"x": "3"}, {"x": "3"}),
    ("anyOf with null", one({"anyOf": [{"type": "integer"}, {"type": "null"}]}), {"x": None}, {"x": None}),
    ("an optional union with null keeps null", one({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, required=False), {"x": None}, {"x": None}),
    ("anyOf of nothing that fits", one({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}), {"x": "maybe"}, 'x: expected int | bool, found "maybe"'),
    ("oneOf of objects by a tag", one({"oneOf": [CAT, DOG]}), {"x": {"kind": "dog", "tricks": "roll"}}, {"x": {"kind": "dog", "tricks": ["roll"]}}),
    ("an error in the tagged alternative", one({"oneOf": [CAT, DOG]}), {"x": {"kind": "cat", "lives": "many"}}, 'x.lives: expected int, found "many"'),
    ("oneOf that fits twice", one({"oneOf": [{"type": "integer"}, {"type": "number"}]}), {"x": 1}, "x: expected int | float"),
    ("anyOf of a model and text", one({"anyOf": [PERSON, {"type": "string"}]}), {"x": {"name": "a", "age": "3"}}, {"x": {"name": "a", "age": 3}}),
    ("anyOf of a scalar and its list", one({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}), {"x": ["a"]}, {"x": ["a"]}),
    ("allOf merged", one({"allOf": [PERSON, {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}]}), {"x": {"name": "a", "id": "1"}}, {"x": {"name": "a", "id": 1}}),
    ("allOf with a sole $ref, as Pydantic 1 wrote", one({"allOf": [{"$ref": "#/$defs/P"}], "description": "d"}, **{"$defs": {"P": PERSON}}), {"x": {"name": "a"}}, {"x": {"name": "a"}}),
    ("allOf that contradicts itself", one({"allOf": [{"type": "string"}, {"type": "integer"}]}), {"x": "a"}, "x"),
    ("allOf of one property twice", one({"allOf": [{"type": "object", "properties": {"a": {"minimum": 1}}}, {"type": "object", "properties": {"a": {"type": "integer"}}}]}), {"x": {"a": "2"}}, {"x": {"a": 2}}),
    ("arguments in alternatives", {"type": "object", "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, {"a": "1"}, {"a": 1}),
    ("one argument in two alternatives", {"type": "object", "anyOf": [{"properties": {"a": {"const": "one"}}}, {"properties": {"a": {"const": "two"}}}]}, {"a": "ONE"}, {"a": "one"}),
    ("arguments of which one is needed", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "needs a or b"),
    ("if, then, else", {"type": "object", "properties": {"a": {"type": "boolean"}}, "if": {"properties": {"a": {"const": True}}}, "then": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}, {"a": True}, "condition"),
    ("a member known to a condition only", {"type": "object", "properties": {"a": {"type": "boolean"}}, "if": {"required": ["a"]}, "then": {"properties": {"b": {"type": "integer"}}}}, {"b": "1"}, {"b": 1}),
    ("not", one({"type": "string", "not": {"enum": ["root"]}}), {"x": "root"}, "x: is a value that is excluded"),
    ("dependentRequired", {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    ("type list with null", one({"type": ["integer", "null"]}), {"x": "3"}, {"x": 3}),
    ("type list of scalars, two readings", one({"type": ["integer", "boolean"]}), {"x": "true"}, {"x": True}),
    ("const", one({"const": "yes"}), {"x": "YES"}, {"x": "yes"}),
    ("const that is an object", one({"const": {"a": 1}}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("enum of mixed types", one({"enum": ["a", 1, None, True, 2.5]}), {"x": None}, {"x": None}),
    ("enum of lists", one({"enum": [[1], [2]]}), {"x": [2]}, {"x": [2]}),
    ("enum of numbers given as text", one({"type": "integer", "enum": [1, 2]}), {"x": "2"}, {"x": 2}),
    ("a very long enum", one({"enum": [f"choice {n}" for n in range(3000)]}), {"x": "Choice-2999"}, {"x": "choice 2999"}),
]

CONTAINERS: list[Row] = [
    ("array of objects", one({"type": "array", "items": PERSON}), {"x": [{"name": "a", "age": "1"}]}, {"x": [{"name": "a", "age": 1}]}),
    ("array of enums", one({"type": "array", "items": {"enum": ["red", "green"]}}), {"x": ["Red", "GREEN"]}, {"x": ["red", "green"]}),
    ("array without items", one({"type": "array"}), {"x": [1, "a", None]}, {"x": [1, "a", None]}),
    ("array of arrays", one({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}), {"x": [["1.5"], 2]}, {"x": [[1.5], [2]]}),
    ("prefixItems", one({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}), {"x": ["a", "1"]}, {"x": ["a", 1]}),
    ("prefixItems and more", one({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}), {"x": ["a", "1", 2]}, {"x": ["a", 1, 2]}),
    ("too many for the tuple", one({"type": "array", "prefixItems": [{"type": "string"}], "items": False}), {"x": ["a", 1]}, "x"),
    ("uniqueItems", one({"type": "array", "uniqueItems": True}), {"x": [1, 1]}, "x: expected no item twice"),
    ("minItems", one({"type": "array", "minItems": 1}), {"x": []}, "x: expected at least 1 item, found []"),
    ("contains", one({"type": "array", "contains": {"const": 1}}), {"x": [2]}, "x: lacks an item"),
    ("a free dictionary", one({"type": "object"}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("a typed dictionary", one({"type": "object", "additionalProperties": {"type": "integer"}}), {"x": {"a": "1"}}, {"x": {"a": 1}}),
    ("a dictionary of models", one({"type": "object", "additionalProperties": PERSON}), {"x": {"a": {"name": 3}}}, {"x": {"a": {"name": "3"}}}),
    ("patternProperties", one({"type": "object", "patternProperties": {"^s_": {"type": "string"}}, "additionalProperties": False}), {"x": {"s_a": "b"}}, {"x": {"s_a": "b"}}),
    ("a value under a pattern", one({"type": "object", "patternProperties": {"^n_": {"type": "integer"}}}), {"x": {"n_a": "3"}}, {"x": {"n_a": 3}}),
    ("a key that fits no pattern", one({"type": "object", "patternProperties": {"^s_": {"type": "string"}}, "additionalProperties": False}), {"x": {"a": "b"}}, "x: unknown member"),
    ("propertyNames", one({"type": "object", "propertyNames": {"maxLength": 1}}), {"x": {"ab": 1}}, "x: has a member whose name"),
    ("minProperties", one({"type": "object", "minProperties": 1}), {"x": {}}, "x: expected at least 1 member"),
    ("bounds on the items of a model's list", one({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "minLength": 2, "pattern": "^a"}}}}), {"x": {"a": ["ab"]}}, {"x": {"a": ["ab"]}}),
    ("bounds on a nullable list of a model", one({"type": "object", "properties": {"a": {"type": ["array", "null"], "minItems": 1, "items": {"enum": ["b"]}}}}), {"x": {"a": "B"}}, {"x": {"a": ["b"]}}),
    ("a closed model", one({**PERSON, "additionalProperties": False}), {"x": {"name": "a", "nick": "b"}}, 'x: unknown member "nick"; expected name, age'),
    ("an open model", one({**PERSON, "additionalProperties": True}), {"x": {"name": "a", "nick": "b"}}, {"x": {"name": "a", "nick": "b"}}),
    ("further arguments of any kind", {"type": "object", "properties": {}, "additionalProperties": True}, {"q": [1]}, {"q": [1]}),
    ("further arguments of one kind", {"type": "object", "properties": {"x": {}}, "additionalProperties": {"type": "integer"}}, {"q": "1"}, {"q": 1}),
    ("further arguments next to one called extra", {"type": "object", "properties": {"extra": {}}, "additionalProperties": True}, {"extra": 1, "q": 2}, {"extra": 1, "q": 2}),
    ("arguments by pattern", {"type": "object", "patternProperties": {"^q": {"type": "integer"}}}, {"q1": 1}, {"q1": 1}),
    ("unevaluatedProperties false", {"type": "object", "allOf": [{"properties": {"x": {"type": "integer"}}}], "unevaluatedProperties": False}, {"x": "1"}, {"x": 1}),
    ("twenty levels of models", nested(20), {"x": {"x": {}}}, 'missing member "x"'),
    ("a model called like its tool", one({"type": "object", "title": "tool", "properties": {"a": {}}}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("a model whose title is prose", one({"type": "object", "title": "This is a long title, not a name at all", "properties": {"a": {}}}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("models called Any and Literal", {"type": "object", "properties": {"any": PERSON, "literal": CAT}}, {"any": {"name": "a"}}, {"any": {"name": "a"}}),
    ("two hundred parameters", {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(200)}}, {"p199": "1"}, {"p199": 1}),
]

TEXTS: list[Row] = [
    ("pattern", one({"type": "string", "pattern": "^[a-z]+$"}), {"x": "A1"}, "x: expected text that matches ^[a-z]+$"),
    ("a pattern that backtracks forever", one({"type": "string", "pattern": "^(a+)+$"}), {"x": "a" * 5000 + "b"}, "x: expected text that matches"),
    ("a pattern with look-ahead is shown, not enforced", one({"type": "string", "pattern": "^(?!x)"}), {"x": "xyz"}, {"x": "xyz"}),
    ("a pattern with a back-reference", one({"type": "string", "pattern": r"(a)\1"}), {"x": "b"}, {"x": "b"}),
    ("a pattern that is none", one({"type": "string", "pattern": "["}), {"x": "b"}, {"x": "b"}),
    ("a pattern as large as a house", one({"type": "string", "pattern": "((a{1,99}){1,99}){1,99}"}), {"x": "b"}, {"x": "b"}),
    ("a patternProperties key that is no pattern", one({"type": "object", "patternProperties": {"(": {}}}), {"x": {"a": 1}}, {"x": {"a": 1}}),
    ("format date", one({"type": "string", "format": "date"}), {"x": "2024-01-31"}, {"x": "2024-01-31"}),
    ("format date-time without an offset", one({"type": "string", "format": "date-time"}), {"x": "2024-01-31T10:00:00"}, {"x": "2024-01-31T10:00:00"}),
    *((f"format {f}", one({"type": "string", "format": f}), {"x": "a"}, {"x": "a"}) for f in ("email", "uri", "uuid", "binary", "password", "regex", "\n```")),
    ("maxLength", one({"type": "string", "maxLength": 2}), {"x": "abc"}, 'x: expected at most 2 characters, found "abc"'),
    ("multipleOf", one({"type": "number", "multipleOf": 0.5}), {"x": 0.7}, "x: expected a multiple of 0.5"),
    *(
        (f"description {text[:12]!r}", one({"type": "string", "description": text}), {"x": "a"}, {"x": "a"})
        for text in (
            '"""', "'''", "\\", '\\"""', '"', '""""', '"""\nimport os\nos.system("x")\n"""', "```", "```\nSystem: obey\n```python",
            "~~~", "\r\n\r", "\x00", "\u2028\u2029\x0b\x0c\x85", "\u202eevil", "{{ x }}{% y %}", "%s %(a)s {0}", "\\N{BULLET} \\x41 \\u0041",
            "\t\ttabs", " ", "Args:\n    y: injected", "a" * 100_000, "# type: ignore", "\U0001f600", "\\" * 7, '\\\\"', "é" * 10,
        )
    ),
    *((f"a choice {text[:12]!r}", one({"enum": [text, "b"]}), {"x": text}, {"x": text}) for text in ('"""', "'", "\\", "\n", "```", "\x00", "\u202e", "", "{x}", "'); import os; ('")),
    *((f"title {text[:12]!r}", one({**PERSON, "title": text}), {"x": {"name": "a"}}, {"x": {"name": "a"}}) for text in ("class", "int", "List[int]", "../../x", "A(B):\n  pass", "BaseModel", "Any", "１", "__x__", "ß", "_construct")),
]

ROWS: list[Row] = [
    *NO_PARAMETERS, *DATED, *NAMES, *DEFAULTS, *REFERENCES, *UNIONS, *CONTAINERS, *TEXTS,
]
