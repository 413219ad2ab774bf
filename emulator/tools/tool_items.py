"""One item of a ``tools`` array, in the format of Chat Completions or of Responses.

Knows nothing of the other items: Python names are chosen for all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.events import ToolKind
from emulator.tools import schema_cleaning
from emulator.tools.custom_tools import custom_input
from emulator.tools.effects import Effect, effect_of, hints_of
from emulator.tools.lark_grammar import LarkGrammar
from emulator.tools.return_types import ReturnType, find_return_type
from emulator.tools.schema import SchemaError

MAX_NAME = 128

#: Punctuation allowed in a wire name; OpenAI allows the first two characters.
_NAME_PUNCTUATION = frozenset("_-.:/")


@dataclass(frozen=True)
class ToolItem:
    """One item of a ``tools`` array, parsed but without a Python name."""

    name: str
    description: str
    parameters: dict[str, Any]
    kind: ToolKind
    place: str
    effect: Effect
    return_type: ReturnType
    grammar: LarkGrammar | None


def read_item(item: Mapping[str, Any], place: str) -> ToolItem:
    """Parse the item at `place` (``tools[2]``). Raises SchemaError whose `param` begins with it."""
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
    description = inside.get("description")
    if description is not None and not isinstance(description, str):
        raise SchemaError("description must be text", f"{place}.description")
    written, grammar = inside.get("parameters"), None
    if kind == "custom":
        written, grammar = custom_input(inside, place)
    parameters = schema_cleaning.clean_schema(written, f"{place}.parameters")
    effect = effect_of(
        name,
        description or "",
        # Free text is often a command, a patch or a program.
        ["code"] if kind == "custom" else _names(parameters),
        hints=hints_of(item, inside),
        schema=written if isinstance(written, Mapping) else {},
    )
    returns = find_return_type(description or "", inside, item)
    return ToolItem(name, description or "", parameters, kind, place, effect, returns, grammar)


def _names(parameters: Mapping[str, Any]) -> list[str]:
    properties = parameters.get("properties")
    return list(properties) if isinstance(properties, Mapping) else []


def _is_name(name: str) -> bool:
    letters = [c for c in name if c.isalnum()]
    return bool(letters) and all(c in _NAME_PUNCTUATION for c in name if not c.isalnum())
