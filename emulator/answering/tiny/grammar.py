"""A llama.cpp grammar that admits prose, or calls of the offered tools and nothing that only looks
like one.

    get_weather(location="London", days=3)

A call is a line of Python: keyword arguments in schema order, the required ones first, typed
literals. Prose is any text none of whose lines begins like a call or a code fence: neither a
malformed call nor one of a function that was not offered can pass for prose.

The grammar guides, it does not decide: ``pattern``, ``minimum``, ``format`` and their like are left
to the validation in the host. Knows nothing of HTTP, prompts or profiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.answering.tiny.copying import Source
from emulator.answering.tiny.notation import either, literal, python
from emulator.tools.tool import Tool

Json = Any

MAX_CALLS = 8
"""Calls in one reply: a small model that repeats itself must come to an end."""


def gbnf(
    tools: Sequence[Tool],
    *,
    required: bool = False,
    only: str | None = None,
    parallel: bool = True,
    source: str | None = None,
) -> str:
    """The grammar of a reply: calls of `tools`, or prose unless `required`.

    `only` is the one tool (wire or Python name) that may be called, and implies `required`. Without
    `parallel` there is one call at most. With `source`, strings and numbers are copied from that
    text and an enum is held to the values that it mentions. Of what the text lacks, a required
    argument stays free and an optional choice or number is left out. Raises ValueError when no tool
    is left to call.
    """
    offered = [tool for tool in tools if only is None or only in (tool.name, tool.python_name)]
    if not offered:
        raise ValueError(f"no tool to call: {only!r} is not among {[tool.name for tool in tools]}")
    rules = _Rules(None if source is None else Source(source))
    names = [_call(rules, f"tool-{n}", tool) for n, tool in enumerate(offered)]
    rules.add("call", " | ".join(names))
    rules.add("calls", f'call ("\\n" call){{0,{MAX_CALLS - 1}}}' if parallel else "call")
    if required or only is not None:
        rules.add("root", "calls")
    else:
        for name, body in _PROSE.items():
            rules.add(name, body)
        rules.add("root", "calls | prose")
    return rules.text()


_LEAVES: Mapping[str, str] = {
    # No \u in strings: it could spell half of a surrogate pair.
    "string": r'"\"" ([^"\\\x00-\x1f\x7f] | "\\" ["\\nt])* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": '<integer> ("." [0-9]{1,14})?',
    "boolean": '"True" | "False"',
    "null": '"None"',
    "array": '"[" (<value> (", " <value>)*)? "]"',
    "object": '"{" (<string> ": " <value> (", " <string> ": " <value>)*)? "}"',
    "value": "<string> | <number> | <boolean> | <null> | <array> | <object>",
}
"""Rules that depend on no schema, by JSON type; <name> refers to another."""

_PROSE: Mapping[str, str] = {
    "prose": r'([ \t]* [^\n`a-zA-Z0-9_ \t-] [^\n]* | [A-Z] word)? ("\n" line)*',
    "line": "(odd | [a-zA-Z] word)?",
    "odd": r"[ \t]* [^\n`a-zA-Z_ \t] [^\n]*",
    "word": r'[a-zA-Z0-9]* (stop [^\n]* | "." (stop [^\n]*)?)?',
    "stop": r"[^\n.(_=a-zA-Z0-9]",
}
"""Text none of whose lines begins with a backtick or like a call, with a name that goes on as only
code does. It opens with a capital, or a sign that is neither ASCII letter nor digit: a small model
that should call else writes ``convert_to_miles = 6``, or the sum that it had better not do by
itself.
"""


class _Rules:
    """The rules written so far."""

    def __init__(self, source: Source | None) -> None:
        self.source = source
        self._copied = source.leaves() if source else {}
        self._rules: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._rules

    def add(self, name: str, body: str) -> str:
        self._rules[name] = body
        return name

    def leaf(self, name: str) -> str:
        """The rule for a JSON type, added with the rules that it needs at its first use."""
        if name not in self:
            self.add(name, "")  # a value may hold values
            for rule, body in self._copied.get(name, {name: _LEAVES[name]}).items():
                self.add(rule, re.sub("<([a-z]+)>", lambda found: self.leaf(found[1]), body))
        return name

    def text(self) -> str:
        """One rule a line, ``root`` first."""
        names = sorted(self._rules, key=lambda name: name != "root")
        return "".join(f"{name} ::= {self._rules[name]}\n" for name in names)


@dataclass(frozen=True)
class _Field:
    """An argument of a call, or an entry of a dict literal."""

    name: str
    lead: str
    """What stands before the value: ``city=`` or ``"city": ``."""
    schema: Json
    required: bool


def _call(rules: _Rules, name: str, tool: Tool) -> str:
    fields = [_Field(p.name, f"{p.python_name}=", p.schema, p.required) for p in tool.arguments]
    written = _Schema(rules, name, tool.parameters).fields(fields, name)
    return rules.add(name, _sequence(literal(f"{tool.python_name}("), written, literal(")")))


@dataclass(frozen=True)
class _Schema:
    """The schemas of one document as expressions; `prefix` keeps its rules apart from other
    documents'.
    """

    rules: _Rules
    prefix: str
    document: Json

    def value(self, schema: Json, place: str) -> str:
        """The expression for a value of `schema`; rules that it needs are called after `place`."""
        if not isinstance(schema, dict):
            return self.rules.leaf("value")
        if "const" in schema:
            return literal(python(schema["const"]))
        if schema.get("enum"):
            values = schema["enum"]
            mentioned = self.rules.source.mentioned(values) if self.rules.source else []
            return either(literal(python(value)) for value in mentioned or values)
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            parts = schema.get(keyword)
            if parts and (keyword != "allOf" or len(parts) == 1):
                return either(self.value(part, f"{place}-{n}") for n, part in enumerate(parts))
        kinds = schema.get("type", "object" if "properties" in schema else "value")
        if isinstance(kinds, list):
            return either(self._kind(kind, schema, f"{place}-{kind}") for kind in kinds)
        return self._kind(kinds, schema, place)

    def _kind(self, kind: str, schema: Mapping[str, Json], place: str) -> str:
        additional = schema.get("additionalProperties")
        if kind == "object" and schema.get("properties"):
            required = schema.get("required") or ()
            fields = [
                _Field(name, f"{python(name)}: ", part, name in required)
                for name, part in schema["properties"].items()
            ]
            return self.rules.add(place, _sequence('"{"', self.fields(fields, place), '"}"'))
        if kind == "object" and isinstance(additional, dict):
            entry = f'{self.rules.leaf("string")} ": " {self.value(additional, f"{place}-of")}'
            return self.rules.add(place, f'"{{" ({entry} (", " {entry})*)? "}}"')
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = self.value(schema["items"], f"{place}-of")
            empty = "" if schema.get("minItems") else "?"
            return self.rules.add(place, f'"[" ({item} (", " {item})*){empty} "]"')
        return self.rules.leaf(kind if kind in _LEAVES else "value")

    def _reference(self, pointer: str) -> str:
        """The rule of a local ``$ref`` (RFC 6901), made at its first use: a schema may hold
        itself.
        """
        plain = re.sub("[^a-zA-Z0-9]", lambda found: f"-{ord(found[0]):x}-", pointer)
        name = f"{self.prefix}-{plain}"
        if name not in self.rules:
            target = self.document
            for escaped in pointer.removeprefix("#").split("/")[1:]:
                step = escaped.replace("~1", "/").replace("~0", "~")
                target = target.get(step) if isinstance(target, dict) else None
            self.rules.add(name, "")
            self.rules.add(name, self.value(target, f"{name}-is"))
        return name

    def fields(self, fields: Sequence[_Field], place: str) -> str:
        """The required fields in order, then any of the others in order, with commas between."""
        chosen = [
            (field, self.value(field.schema, f"{place}-{n}"))
            for n, field in enumerate(fields)
            if field.required or self._has_evidence(field)
        ]
        tail = ""
        firsts: list[str] = []
        for n, (field, value) in reversed(list(enumerate(chosen))):
            if field.required:
                continue
            firsts.append(_sequence(literal(field.lead), value, tail))
            more = f"({literal(f', {field.lead}')} {value})?"
            tail = self.rules.add(f"{place}-then-{n}", _sequence(more, tail))
        leads = [(field.lead, value) for field, value in chosen if field.required]
        if not leads:
            return f"({' | '.join(reversed(firsts))})?" if firsts else ""
        first, *others = leads
        required = [f"{literal(first[0])} {first[1]}"]
        required += [f"{literal(f', {lead}')} {value}" for lead, value in others]
        return _sequence(*required, tail)

    def _has_evidence(self, field: _Field) -> bool:
        """Whether an optional field may be filled: a choice or number that the source lacks would
        be made up.
        """
        source, schema = self.rules.source, field.schema
        if source is None or not isinstance(schema, dict):
            return True
        if schema.get("enum"):
            return bool(source.mentioned(schema["enum"]))
        match schema.get("type"):
            case "boolean":
                return bool(source.mentioned(re.findall(r"[^\W_]+", field.name)))
            case "integer" | "number":
                return bool(source.numbers())
        return True


def _sequence(*expressions: str) -> str:
    return " ".join(expression for expression in expressions if expression)
