"""A custom tool takes one free text; its function has a single string parameter.

Its grammar is enforced. A regex becomes the schema's pattern: OpenAI's ("Custom tools", "Regex")
and the validator's engine use the same syntax, Rust's. A Lark grammar is shown to the model, and
`lark_grammar` checks the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.tools.lark_grammar import InvalidLarkGrammar, LarkGrammar
from emulator.tools.schema import SchemaError
from emulator.tools.validator import enforceable

MAX_GRAMMAR = 50_000


def custom_input(tool: Mapping[str, Any], place: str) -> tuple[dict[str, Any], LarkGrammar | None]:
    """Return the parameters of a custom tool's function, and its Lark grammar or None. Raises
    `SchemaError`.
    """
    input_schema: dict[str, Any] = {"type": "string", "description": "The whole input, as text."}
    grammar = None
    written = tool.get("format")
    kind = written.get("type") if isinstance(written, Mapping) else written
    if kind not in ("grammar", "text", None):
        raise SchemaError("type must be text or grammar", f"{place}.format.type")
    if isinstance(written, Mapping) and kind == "grammar":
        constraint, grammar = _grammar_constraint(written, f"{place}.format")
        input_schema |= constraint
    parameters = {"type": "object", "properties": {"input": input_schema}, "required": ["input"]}
    return parameters, grammar


def _grammar_constraint(
    written: Mapping[str, Any], place: str
) -> tuple[dict[str, Any], LarkGrammar | None]:
    # Chat completions put the grammar in an object of its own, Responses in the format itself.
    if "grammar" in written:
        written, place = written["grammar"], f"{place}.grammar"
        if not isinstance(written, Mapping):
            raise SchemaError("grammar must be an object", place)
    syntax, definition = written.get("syntax"), written.get("definition")
    if syntax not in ("regex", "lark"):
        raise SchemaError("syntax must be regex or lark", f"{place}.syntax")
    if not isinstance(definition, str) or not 0 < len(definition) <= MAX_GRAMMAR:
        message = f"definition must be a grammar of at most {MAX_GRAMMAR} characters"
        raise SchemaError(message, f"{place}.definition")
    if syntax == "lark":
        try:
            grammar = LarkGrammar(definition)
        except InvalidLarkGrammar as error:
            message = f"definition is not a Lark grammar that can be enforced: {error}"
            raise SchemaError(message, f"{place}.definition") from error
        description = f"The whole input, as text of this Lark grammar:\n{definition}"
        return {"description": description}, grammar
    pattern = f"^(?:{definition})$"
    if not (enforceable(definition) and enforceable(pattern)):
        message = "definition must be a regular expression in Rust's syntax, without look-around"
        raise SchemaError(message, f"{place}.definition")
    return {"pattern": pattern}, None
