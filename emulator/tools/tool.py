"""One function that a model may call: its names, its schema, its arguments. Knows nothing of other
tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jsonschema_rs

from emulator.core.cached_property import cached_property
from emulator.core.events import ToolKind
from emulator.tools import expansion
from emulator.tools.effects import Effect
from emulator.tools.lark_grammar import LarkGrammar
from emulator.tools.return_types import UNKNOWN_RETURN, ReturnType
from emulator.tools.type_trees import Parameter
from emulator.tools.validator import compile_validator

Caller = Literal["direct", "program"]
"""Who may call a tool: the model itself, or a program that it writes."""
ANY_CALLER: frozenset[Caller] = frozenset(get_args(Caller))


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
    """In schema order, which is the order of positional arguments."""
    kind: ToolKind = "function"
    effect: Effect = Effect.ORDERED
    """Which other calls may be sent together with its calls."""
    declares_reading: bool = False
    """Its definition says that it only reads (``readOnlyHint``, ``x-read-only``)."""
    return_type: ReturnType = UNKNOWN_RETURN
    """What its results are, if its definition specifies it."""
    examples: tuple[dict[str, Any], ...] = ()
    """Valid arguments objects that show the model how to call it."""
    grammar: LarkGrammar | None = None
    """The grammar that a custom tool's text must match, in addition to its schema."""
    callers: frozenset[Caller] = ANY_CALLER
    """A program ends at its call of a tool that it may not call: the model must see the result."""

    @property
    def is_direct_only(self) -> bool:
        return "program" not in self.callers

    @property
    def is_program_only(self) -> bool:
        return "direct" not in self.callers

    @cached_property
    def members(self) -> expansion.Members:
        """The arguments that the schema allows."""
        return expansion.members(self.parameters, self.parameters.get("$defs", {}))

    def wire_name(self, keyword: str) -> str:
        """Return the wire name of an argument, given by either name; an unknown name stays
        unchanged.
        """
        return self._wire_names.get(keyword, keyword)

    @cached_property
    def _wire_names(self) -> dict[str, str]:
        python = {p.python_name: p.name for p in self.arguments}
        return python | {p.name: p.name for p in self.arguments}

    @cached_property
    def validator(self) -> jsonschema_rs.Validator:
        """The authority on arguments objects."""
        return compile_validator(self.parameters)
