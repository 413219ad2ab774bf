"""What OpenAI publishes and what clients send: tests/data, as the tests of the wire use it.

client_requests.jsonl holds bodies that today's clients send (recorded from openai, LangChain, LangGraph,
PydanticAI, Instructor and Codex CLI, whose long texts are cut); openai-schemas.json OpenAI's published
schemas, from github.com/openai/openai-openapi at f85dbe2.
"""

from __future__ import annotations

import json
import operator
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT202012

DATA = Path(__file__).parents[1] / "data"


def nullable(found: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.0 says ``nullable`` where JSON Schema has a type "null"; OpenAI's schemas say both."""
    if found.get("nullable") is not True:
        return found
    return {"anyOf": [found, {"type": "null"}]}


SCHEMAS = json.loads((DATA / "openai-schemas.json").read_text(), object_hook=nullable)
REGISTRY = Registry().with_resource("openai", DRAFT202012.create_resource(SCHEMAS))


def validator(name: str) -> jsonschema.Draft202012Validator:
    reference = {"$ref": f"openai#/components/schemas/{name}"}
    return jsonschema.Draft202012Validator(reference, registry=REGISTRY)


def recorded_requests(path: str) -> list[dict[str, Any]]:
    """``{name, method, path, body}`` of the requests for ``path``."""
    lines = (DATA / "client_requests.jsonl").read_text().splitlines()
    return [recorded for line in lines if (recorded := json.loads(line))["path"] == path]


def example(schema: Any, root: Any) -> Any:
    """A value that ``schema`` allows."""
    return examples(schema, root)[0]


def examples(schema: Any, root: Any = SCHEMAS, *, full: bool = False, depth: int = 0) -> list[Any]:
    """Values that a schema allows: each alternative of each field once, with all fields if ``full``, else
    with those that it requires. Knows what OpenAI's schemas and the recorded requests use."""
    while "$ref" in schema:
        schema = reduce(operator.getitem, schema["$ref"].removeprefix("#/").split("/"), root)
    alternatives = [
        *schema.get("oneOf", ()),
        *schema.get("anyOf", ()),
        *schema.get("allOf", ())[:1],
    ]
    if alternatives and "properties" not in schema:
        return [v for one in alternatives for v in examples(one, root, full=full, depth=depth)]
    if depth > 7:
        return [None]
    if "const" in schema or "enum" in schema:
        return [schema["const"]] if "const" in schema else schema["enum"][:2]
    kind = schema.get("type", "object")
    match kind if isinstance(kind, str) else kind[0]:
        case "object":
            named = schema.get("properties", {})
            wanted = [name for name in named if full or name in schema.get("required", ())]
            several = {n: examples(named[n], root, full=full, depth=depth + 1) for n in wanted}
            first = {name: values[0] for name, values in several.items()}
            others = [{**first, name: v} for name, vs in several.items() for v in vs[1:12]]
            return [first, *others[:40]]
        case "array":
            items = schema.get("items", {"type": "string"})
            return [[v] for v in examples(items, root, full=full, depth=depth + 1)[:30]] + [[]]
        case "string":
            return ["{}".ljust(schema.get("minLength", 0), "x")]
        case other:
            values = {"integer": 1, "number": 0.5, "boolean": True, "null": None}
            return [max(values[other], schema.get("minimum", 0)) if values[other] else None]


# Fields that the proxy answers itself: an upstream without tool calling would refuse them.
NEVER_FORWARDED = {
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
}
