"""The JSON Schema of a reply: words, or calls of the offered tools.

Servers compile the schema to a grammar, and most refuse a request whose schema has a keyword or an expression
that they cannot compile (llama.cpp's json-schema-to-grammar; vLLM's list of features that xgrammar lacks). So
a tool's schema is written again, with keywords that all of them compile: ``type``, ``enum``, ``const``,
``anyOf``, ``$ref``, ``properties``, ``required``, ``additionalProperties``, ``items``, ``prefixItems``,
lengths, counts, bounds and plain patterns. Knows nothing of HTTP, prompts or profiles.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.answering.ways.copying import CopySource
from emulator.conversation.call_policy import CallPolicy
from emulator.settings.upstream_settings import Grammar
from emulator.tools import expansion
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema, reference
from emulator.tools.tool import Tool

Json = dict[str, Any]

MAX_CALLS = 32
"""In one reply. The limit ends the reply of a model that repeats itself."""
MAX_CHARACTERS = 300_000
"""Of the whole schema. Longer ones are not sent."""
MAX_PARTS = 5000
"""Parts of the schema of one tool."""
MAX_DEPTH = 28
"""How deeply schemas may be nested; deeper values are unconstrained."""
MAX_COUNT = 1000
"""The highest length or count: llama.cpp refuses rules with more than 2,000 repetitions."""

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$defs"})
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LENGTHS = ("minLength", "maxLength", "pattern")
_KINDS = ("string", "number", "boolean", "object", "array", "null")
_SAFE_INTEGER = 2**53
# What every server compiles and no JSON string must escape: no ``.``, negated class, look-around or flag.
_PATTERN = re.compile(
    r"\^(?:[\w ,:;@#/%&=~!-]|\\[d.+*?()|{}]|\[(?:[\w ,:;@#/%&=~!.+*-]|\\d)+\]"
    r"|\((?:\?:)?|\)|[+*?]|\{\d{1,3}(?:,\d{0,3})?\}|\|)+\$"
)


class _NoValue(Exception):
    """No value is valid, or the schema is too large to write."""


def reply_schema(
    tools: Sequence[Tool],
    policy: CallPolicy,
    *,
    source: str | None = None,
) -> Json | None:
    """Return the schema of a reply to a request with these tools; None if none can be constrained.

    Without ``tools`` only words are valid.

    With `source`, a string or number is a copy from that text, and an enum has only the values that the text
    mentions. If the text has no suitable value, a required argument stays unrestricted, and an optional enum,
    boolean or number is omitted.
    """
    definitions: dict[str, Json] = {}
    copied = None if source is None else CopySource(source)
    calls: list[Json] = []
    for tool in tools:
        if policy.name not in (None, tool.python_name):
            continue
        writer = _ToolSchema(tool, definitions, copied)
        try:
            arguments = writer.arguments()
        except (_NoValue, RecursionError):
            continue
        definitions = writer.definitions
        calls.append(_object({"name": {"const": tool.python_name}, "arguments": arguments}))
    words = _object({"say": {"type": "string", "minLength": 1}})
    if not calls:
        return None if tools or policy.required else words
    limit = 1 if policy.one_at_a_time else MAX_CALLS
    listed = {"type": "array", "items": _either(calls), "minItems": 1, "maxItems": limit}
    schema = _either([*([] if policy.required else [words]), _object({"calls": listed})])
    if definitions:
        schema["$defs"] = definitions
    return schema if len(json.dumps(schema)) <= MAX_CHARACTERS else None


def constraint(field: Grammar, schema: Json) -> Json:
    """The request field that makes a server of that kind enforce the schema; none for ``prompt``.

    ``json_schema`` is OpenAI's; llama.cpp, LM Studio, vLLM, SGLang and Ollama accept it too.
    ``json_object``: llama-cpp-python, whose ``response_format`` has no other type with a schema.
    """
    if field == "prompt":
        return {}
    if field == "json_object":
        return {"response_format": {"type": "json_object", "schema": schema}}
    named = {"name": "reply", "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _object(properties: Mapping[str, Json], required: Sequence[str] | None = None) -> Json:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _either(parts: Sequence[Json]) -> Json:
    distinct = [part for n, part in enumerate(parts) if part not in parts[:n]]
    return dict(distinct[0]) if len(distinct) == 1 else {"anyOf": distinct}


class _ToolSchema:
    """Writes one tool's schema; `definitions` are those of the reply up to and including this tool."""

    def __init__(
        self, tool: Tool, definitions: Mapping[str, Json], source: CopySource | None
    ) -> None:
        self._parameters = tool.parameters
        self._own: Mapping[str, Schema] = tool.parameters.get("$defs", {})
        self._reading = ExpandedSchema(self._own)
        self.definitions = dict(definitions)
        self._names: dict[str, str] = {}
        self._bare: list[str] = []
        """The definitions being written, without an object or array around the current part."""
        self._source = source
        self._parts = self._depth = 0

    def arguments(self) -> Json:
        inside = self._reading.members(self._parameters)
        return self._members(self._parameters) if inside.properties or inside.extra else _object({})

    def _value(self, schema: Schema) -> Json:
        self._parts += 1
        if schema is False or self._parts > MAX_PARTS:
            raise _NoValue
        if not isinstance(schema, dict) or self._depth >= MAX_DEPTH:
            return {"type": list(_KINDS)}
        self._depth += 1
        try:
            return self._written(schema)
        finally:
            self._depth -= 1

    def _written(self, schema: Json) -> Json:
        constraints = schema.keys() - _ANNOTATIONS
        if constraints == {"allOf"} and len(schema["allOf"]) == 1:
            return self._value(schema["allOf"][0])
        if constraints == {"$ref"} and (name := reference(schema)) is not None:
            return {"$ref": f"#/$defs/{self._definition(name)}"}
        view = self._reading.view(schema)
        if "const" in view or "enum" in view:
            return self._choice(view["enum"] if "enum" in view else [view["const"]], schema)
        if parts := self._reading.alternatives(schema):
            return self._alternatives(parts)
        match expansion.types(view):
            case ("string", *_):
                return self._string(view, schema)
            case ("integer" | "number" as kind, *_):
                return self._number(kind, view, schema)
            case ("array" | "object" as kind, *_):
                outer, self._bare = self._bare, []
                try:
                    return self._array(view) if kind == "array" else self._members(schema)
                finally:
                    self._bare = outer
            case (kind, *_):
                return {"type": kind}
        return {"type": list(_KINDS)}

    def _definition(self, name: str) -> str:
        if name in self._bare:
            raise _NoValue  # a definition that is itself: a left recursion
        if name in self._names:
            return self._names[name]
        key = self._names[name] = f"d{len(self.definitions)}"
        self.definitions[key] = {"type": "null"}  # its own parts may refer to it
        outer, self._depth = self._depth, 0
        self._bare.append(name)
        try:
            self.definitions[key] = self._value(self._own.get(name, {}))
        except _NoValue:
            del self._names[name]
            raise
        finally:
            self._bare.remove(name)
            self._depth = outer
        return key

    def _alternatives(self, parts: Sequence[Schema]) -> Json:
        found: list[Json] = []
        for part in parts:
            try:
                found.append(self._value(part))
            except _NoValue:
                continue
        if not found:
            raise _NoValue
        return _either(found)

    def _choice(self, values: Sequence[Any], schema: Schema) -> Json:
        valid = [value for value in values if self._reading.admits(value, schema)]
        if not valid:
            raise _NoValue
        mentioned = self._source.mentioned(valid) if self._source else []
        return {"enum": mentioned or valid}

    def _string(self, view: Json, schema: Schema) -> Json:
        limits = {name: view[name] for name in _LENGTHS if name in view}
        if self._source is not None and (runs := self._source.runs()):
            if not limits:
                self.definitions.setdefault("copied", {"enum": runs})
                return {"$ref": "#/$defs/copied"}
            if valid := [run for run in runs if self._reading.admits(run, schema)]:
                return {"enum": valid}
        pattern = limits.pop("pattern", None)
        if pattern is None or not _is_portable(pattern):
            return {"type": "string", **_counts(limits)}
        plain = re.sub(  # without lengths: vLLM refuses a pattern with them, llama.cpp ignores them
            r"\[[^\]]*\]|\\d",
            lambda found: found[0].replace("\\d", "0-9" if found[0] != "\\d" else "[0-9]"),
            pattern,
        )
        return {"type": "string", "pattern": plain}

    def _number(self, kind: str, view: Json, schema: Schema) -> Json:
        bounds = {n: view[n] for n in _BOUNDS if abs(view.get(n, math.inf)) <= _SAFE_INTEGER}
        if self._source is not None:
            numbers = map(json.loads, self._source.numbers())
            if valid := [number for number in numbers if self._reading.admits(number, schema)]:
                return {"enum": valid}
            if bounds and _whole_numbers_fit(view):
                kind = "integer"  # llama.cpp enforces no bounds of other numbers
        if kind == "integer":
            bounds = _whole_bounds(bounds)
        return {"type": kind, **_satisfiable(bounds)}

    def _array(self, view: Json) -> Json:
        if prefix := view.get("prefixItems"):
            items = [self._value(part) for part in prefix]
            exactly = {"minItems": len(items), "maxItems": len(items)}
            return {"type": "array", "prefixItems": items, **exactly}
        counts = _counts({n: view[n] for n in ("minItems", "maxItems") if n in view})
        if view.get("uniqueItems") and self._source is not None:
            counts["maxItems"] = max(1, counts.get("minItems", 0))
        return {"type": "array", "items": self._value(view.get("items", True)), **counts}

    def _members(self, schema: Schema) -> Json:
        inside = self._reading.members(schema)
        if not inside.properties and inside.extra is not False:
            if isinstance(inside.extra, dict):
                return {"type": "object", "additionalProperties": self._value(inside.extra)}
            return {"type": "object"}
        properties: dict[str, Json] = {}
        for name, part in inside.properties.items():
            required = name in inside.required
            if not required and not self._has_evidence(name, part):
                continue
            try:
                properties[name] = self._value(part)
            except _NoValue:
                if required:
                    raise
        written = _object(properties, [name for name in properties if name in inside.required])
        if inside.extra and self._source is None:
            written["additionalProperties"] = self._value(inside.extra)
        return written

    def _has_evidence(self, name: str, schema: Schema) -> bool:
        """Return False if the model would have to invent the value of an optional member.

        That is the case for an enum, a boolean or a number that the source does not contain.
        """
        if self._source is None or not isinstance(schema, dict):
            return True
        if schema.get("enum"):
            return bool(self._source.mentioned(schema["enum"]))
        match schema.get("type"):
            case "boolean":
                return bool(self._source.mentions(name))
            case "integer" | "number":
                return bool(self._source.numbers())
        return True


def _is_portable(pattern: str) -> bool:
    if not _PATTERN.fullmatch(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    depth = 0
    for mark in re.findall(r"\\.|\[[^\]]*\]|[()|]", pattern):
        depth += (mark == "(") - (mark == ")")
        if mark == "|" and not depth:  # ``^a|b$`` anchors each alternative at one end only
            return False
    return True


def _counts(limits: Mapping[str, float]) -> dict[str, int]:
    return {n: int(limit) for n, limit in _satisfiable(limits).items() if limit <= MAX_COUNT}


def _satisfiable(limits: Mapping[str, float]) -> Mapping[str, float]:
    """Return ``limits``. Raises `_NoValue` if they contradict each other: xgrammar refuses such a schema."""
    low = max((limit for name, limit in limits.items() if "min" in name.lower()), default=-math.inf)
    high = min((limit for name, limit in limits.items() if "max" in name.lower()), default=math.inf)
    if low > high or (low == high and any(name.startswith("exclusive") for name in limits)):
        raise _NoValue
    return limits


def _whole_numbers_fit(view: Json) -> bool:
    step = view.get("multipleOf", 1)
    return bool(step) and (1 / step).is_integer()


def _whole_bounds(bounds: Mapping[str, float]) -> dict[str, int]:
    """The same bounds for integers, as ``minimum`` and ``maximum``."""
    low = [math.ceil(bounds["minimum"])] if "minimum" in bounds else []
    low += [math.floor(bounds["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in bounds else []
    high = [math.floor(bounds["maximum"])] if "maximum" in bounds else []
    high += [math.ceil(bounds["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in bounds else []
    found = {"minimum": max(low, default=None), "maximum": min(high, default=None)}
    return {k: v for k, v in found.items() if v is not None}
