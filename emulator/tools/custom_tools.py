"""A custom tool takes one free text; as a function it is one with a single string.

Its grammar is enforced. A regex is the schema's pattern: OpenAI's ("Custom tools", "Regex") and the
validator's engine have the same syntax, Rust's. A Lark grammar is told to the model, and `lark_grammar` holds
the text to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.tools.lark_grammar import LarkGrammar, UnusableGrammar
from emulator.tools.schema import SchemaError
from emulator.tools.validator import enforceable

MAX_GRAMMAR = 50_000


def custom_input(tool: Mapping[str, Any], place: str) -> tuple[dict[str, Any], LarkGrammar | None]:
    """The parameters of a custom tool's function, and what else its text must fit. Raises `SchemaError`."""
    text: dict[str, Any] = {"type": "string", "description": "The whole input, as text."}
    grammar = None
    written = tool.get("format")
    kind = written.get("type") if isinstance(written, Mapping) else written
    if kind not in ("grammar", "text", None):
        raise SchemaError("type must be text or grammar", f"{place}.format.type")
    if isinstance(written, Mapping) and kind == "grammar":
        further, grammar = _held_to(written, f"{place}.format")
        text |= further
    parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
    return parameters, grammar


def _held_to(written: Mapping[str, Any], place: str) -> tuple[dict[str, Any], LarkGrammar | None]:
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
        try:
            grammar = LarkGrammar(definition)
        except UnusableGrammar as error:
            message = f"definition is no Lark grammar that can be enforced: {error}"
            raise SchemaError(message, f"{place}.definition") from error
        told = f"The whole input, as text of this Lark grammar:\n{definition}"
        return {"description": told}, grammar
    pattern = f"^(?:{definition})$"
    if not (enforceable(definition) and enforceable(pattern)):
        message = "definition is no regular expression in Rust's syntax, without look-around"
        raise SchemaError(message, f"{place}.definition")
    return {"pattern": pattern}, None
