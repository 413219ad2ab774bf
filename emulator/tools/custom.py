"""A custom tool takes one free text; as a function it is one with a single string.

A regex grammar is enforced, by the validator's engine: OpenAI's ("Custom tools", "Regex") and this one have
the same syntax, Rust's. A Lark grammar is told to the model and not enforced: Lark matches its terminals with
Python's ``re``, which a grammar of a stranger's can keep busy for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.tools.guards import SchemaError
from emulator.tools.validator import enforceable

MAX_GRAMMAR = 50_000


def custom_input(tool: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The parameters of a custom tool's function. Raises `SchemaError`."""
    text: dict[str, Any] = {"type": "string", "description": "The whole input, as text."}
    written = tool.get("format")
    if isinstance(written, Mapping) and written.get("type") == "grammar":
        text |= _held_to(written, f"{place}.format")
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}


def _held_to(written: Mapping[str, Any], place: str) -> dict[str, Any]:
    # Chat completions have a grammar in an object of its own, Responses in the format itself.
    if isinstance(written.get("grammar"), Mapping):
        written, place = written["grammar"], f"{place}.grammar"
    syntax, definition = written.get("syntax"), written.get("definition")
    if syntax not in ("regex", "lark"):
        raise SchemaError("syntax must be regex or lark", f"{place}.syntax")
    if not isinstance(definition, str) or not 0 < len(definition) <= MAX_GRAMMAR:
        message = f"definition must be a grammar of at most {MAX_GRAMMAR} characters"
        raise SchemaError(message, f"{place}.definition")
    if syntax == "lark":
        return {"description": f"The whole input, as text of this Lark grammar:\n{definition}"}
    pattern = f"^(?:{definition})$"
    if not (enforceable(definition) and enforceable(pattern)):
        message = "definition is no regular expression in Rust's syntax, without look-around"
        raise SchemaError(message, f"{place}.definition")
    return {"pattern": pattern}
