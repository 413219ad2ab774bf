"""One item of a ``tools`` array, in the format of Chat Completions or of Responses.

Knows nothing of the other items: Python names are chosen for all of them together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from emulator.tools import schema_cleaning
from emulator.tools.custom_tools import custom_input
from emulator.tools.effects import declares_reading, effect_of, hints_of
from emulator.tools.return_types import find_return_type
from emulator.tools.schema import SchemaError, kind_of
from emulator.tools.tool import ANY_CALLER, Caller, Tool

MAX_NAME = 128

#: Punctuation allowed in a wire name; OpenAI allows the first two characters.
_NAME_PUNCTUATION = frozenset("_-.:/")


def read_item(item: Mapping[str, Any], place: str, taken: Collection[str]) -> Tool:
    """Parse the item at `place` (``tools[2]``), without its Python name and its arguments.

    Raises SchemaError whose `param` begins with `place`; also if the name is `taken`.
    """
    kind = item.get("type", "function")
    if kind not in ("function", "custom"):
        raise SchemaError(f"tools of type {kind!r} are not supported", f"{place}.type")
    inside: Any = item
    if kind in item or "name" not in item:  # Responses puts name and parameters on the item itself
        inside, place = item.get(kind), f"{place}.{kind}"
    if not isinstance(inside, Mapping):
        raise SchemaError(f"{kind} must be an object", place)
    name = inside.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not _is_name(name):
        raise SchemaError(
            "a tool's name must be letters, digits, underscores, dashes or dots,"
            f" at most {MAX_NAME} of them",
            f"{place}.name",
        )
    if name in taken:
        raise SchemaError(f"two tools are called {name!r}", f"{place}.name")
    description = inside.get("description")
    if description is not None and not isinstance(description, str):
        raise SchemaError("description must be text", f"{place}.description")
    field = _parameter_field(inside)
    written, grammar = inside.get(field), None
    if kind == "custom":
        written, grammar = custom_input(inside, place)
    strict = inside.get("strict") is True
    parameters = schema_cleaning.clean_schema(written, f"{place}.{field}", strict=strict)
    hints, schema = hints_of(item, inside), written if isinstance(written, Mapping) else {}
    effect = effect_of(
        name,
        description or "",
        # Free text is often a command, a patch or a program.
        ["code"] if kind == "custom" else list(parameters.get("properties", ())),
        hints=hints,
        schema=schema,
    )
    returns = find_return_type(description or "", inside, item)
    reads = declares_reading(hints, schema) is True
    tool = Tool(
        name, "", description or "", parameters, (), kind, effect, reads, returns, grammar=grammar
    )
    examples = inside.get("input_examples") if kind == "function" else None
    tool = replace(tool, callers=_callers(item.get("callers")))
    return replace(tool, examples=_examples(tool, examples, f"{place}.input_examples"))


def _examples(tool: Tool, written: Any, place: str) -> tuple[dict[str, Any], ...]:
    """Anthropic's ``input_examples``, without fields that a call cannot have. Raises SchemaError for one
    that the schema refuses."""
    if not isinstance(written, list | None):
        raise SchemaError(f"examples must be an array, not {kind_of(written)}", place)
    for n, example in enumerate(written or ()):
        if not isinstance(example, dict):
            message = f"an example must be an object, not {kind_of(example)}"
            raise SchemaError(message, f"{place}[{n}]")
        if (error := next(tool.validator.iter_errors(example), None)) is not None:
            message = f"the example does not match the schema: {error.message[:200]}"
            raise SchemaError(message, f"{place}[{n}]")
    accepts = tool.members.schema_of
    return tuple({k: v for k, v in e.items() if accepts(k) is not None} for e in written or ())


def _callers(value: Any) -> frozenset[Caller]:
    """Who may call the tool. Fronts write this field, from the fields of their clients' APIs."""
    named = (caller for caller in ANY_CALLER if isinstance(value, list) and caller in value)
    return frozenset(named) or ANY_CALLER


_READ_HERE_ONLY = frozenset(
    {
        *("allowed_callers", "annotations", "callers", "defer_loading", "input_examples"),
        *("output_schema", "outputSchema"),
    }
)
"""Fields of tools and functions that other servers refuse."""


def for_other_servers(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item of a function as other servers know it: its schema in ``parameters``, its examples in the
    description, and without the fields that only this proxy reads."""
    function = item.get("function")
    if not isinstance(function, Mapping):
        return item
    field, examples = _parameter_field(function), function.get("input_examples")
    if field == "parameters" and _READ_HERE_ONLY.isdisjoint((*item, *function)):
        return item
    known = {
        ("parameters" if name == field else name): value
        for name, value in function.items()
        if name not in _READ_HERE_ONLY
    }
    if examples:
        lines = [json.dumps(one, ensure_ascii=False) for one in examples]
        described = [*filter(None, [known.get("description")]), "\n".join(["Examples:", *lines])]
        known["description"] = "\n\n".join(described)
    others = {name: value for name, value in item.items() if name not in _READ_HERE_ONLY}
    return {**others, "function": known}


def _parameter_field(function: Mapping[str, Any]) -> str:
    """The field that holds a function's schema: OpenAI's, Anthropic's or MCP's."""
    fields = ("parameters", "input_schema", "inputSchema")
    return next((field for field in fields if function.get(field) is not None), "parameters")


def _is_name(name: str) -> bool:
    letters = [c for c in name if c.isalnum()]
    return bool(letters) and all(c in _NAME_PUNCTUATION for c in name if not c.isalnum())
