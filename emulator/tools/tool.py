"""One function that a model may call: its names, its schema, its arguments. Knows nothing of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jsonschema_rs

from emulator.events import ToolKind
from emulator.tools import expansion
from emulator.tools.effects import Effect
from emulator.tools.lark_grammar import LarkGrammar
from emulator.tools.return_types import UNKNOWN_RETURN, ReturnType
from emulator.tools.type_trees import Parameter
from emulator.tools.validator import compile_validator

_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool}
_SAID = ("type", "title", "description", "default", "examples")
_PLAIN_OBJECT = frozenset((*_SAID, "properties", "required", "additionalProperties", "$defs"))
_PLAIN_SCALAR = frozenset(
    (*_SAID, "format", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum")
)


@dataclass(frozen=True)
class Tool:
    """One function that a model may call."""

    name: str
    """On the wire."""
    python_name: str
    description: str
    parameters: dict[str, Any]
    """Cleaned JSON Schema 2020-12: self-contained, every ``$ref`` into its own ``$defs``."""
    arguments: tuple[Parameter, ...]
    """In schema order, which is what positional arguments follow."""
    kind: ToolKind = "function"
    effect: Effect = Effect.ORDERED
    """How its calls may leave beside others."""
    return_type: ReturnType = UNKNOWN_RETURN
    """What its results are, as far as it says."""
    grammar: LarkGrammar | None = None
    """What the text of a custom tool must fit, besides its schema."""

    @cached_property
    def members(self) -> expansion.Members:
        """Which argument names there are."""
        return expansion.members(self.parameters, self.parameters.get("$defs", {}))

    @cached_property
    def scalars(self) -> Mapping[str, type]:
        """The arguments that are texts, whole numbers or booleans, whatever else the call has: their types.

        Of such a value that is valid coercion changes nothing.
        """
        if not self.parameters.keys() <= _PLAIN_OBJECT:
            return {}
        return {
            name: _TYPES[schema["type"]]
            for name, schema in self.parameters.get("properties", {}).items()
            if isinstance(schema, dict)
            and schema.keys() <= _PLAIN_SCALAR
            and schema.get("type") in tuple(_TYPES)
        }

    def wire_name(self, keyword: str) -> str:
        """The wire name of an argument written by either name; an unknown one as it is."""
        return self._wire_names.get(keyword, keyword)

    @cached_property
    def _wire_names(self) -> dict[str, str]:
        python = {p.python_name: p.name for p in self.arguments}
        return python | {p.name: p.name for p in self.arguments}

    @cached_property
    def validator(self) -> jsonschema_rs.Validator:
        """The authority on arguments objects."""
        return compile_validator(self.parameters)
