"""The request fields that make an upstream constrain calls to the toolset while prose stays free.

The grammar is lazy: the model writes any prose, and code of any other language, until it opens a Python
block. In the block it can only write valid calls, one per line, and then the end of the block. A model under
this grammar cannot write programs that use results; therefore no profile sends it by default.

* ``grammar``: llama.cpp, GBNF (its grammars/README.md).
* ``guided_grammar``, ``structured_outputs``: vLLM before and since 0.12 (its page "Structured Outputs").
* ``ebnf``: SGLang. XGrammar, which both vLLM and SGLang use, reads GBNF.
* ``structural_tag``: vLLM and SGLang. The opening of a block triggers the grammar; prose is not checked.
* ``json_schema``: servers without grammars (Ollama's ``format``, set by `response_format`). It constrains the
  whole answer, so it is sent only if a call is required.
"""

from __future__ import annotations

from typing import Any

from emulator.answering.call_policy import CallPolicy
from emulator.answering.grammar.calls import gbnf
from emulator.answering.grammar.rules import UnusableGrammar
from emulator.answering.grammar.words import words
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset
from emulator.upstream_settings import GrammarField

OPENING, CLOSING = "```python\n", "```"


def lazy_grammar(toolset: Toolset, choice: CallPolicy) -> str:
    """Return the GBNF for prose followed by a block of calls, or prose alone unless a call is required.

    Raises `UnusableGrammar`.
    """
    calls = _calls(toolset, choice).splitlines()
    rules = [line.replace("root ::=", "block-calls ::=", 1) for line in calls]
    names = frozenset(name for tool in toolset.tools for name in (tool.name, tool.python_name))
    prose = [f"{name} ::= {body}" for name, body in words(names).items()]
    block = r'block ::= "```python\n" block-calls "\n```"'
    root = r'(words "\n")? block' if choice.required else r'block | words ("\n" block)?'
    return "\n".join([f"root ::= {root}", block, *rules, *prose]) + "\n"


def grammar_fields(field: GrammarField, toolset: Toolset, choice: CallPolicy) -> dict[str, Any]:
    """Return the request fields that constrain a reply; {} if nothing can be constrained."""
    if field == "off" or not toolset.tools:
        return {}
    if field == "json_schema":
        return {"response_format": _json_schema(toolset, choice)} if choice.required else {}
    try:
        if field == "structural_tag":
            return {"response_format": _structural_tag(toolset, choice)}
        text = lazy_grammar(toolset, choice)
    except UnusableGrammar:
        return {}
    return {field: {"grammar": text} if field == "structured_outputs" else text}


def _calls(toolset: Toolset, choice: CallPolicy) -> str:
    return gbnf(toolset.tools, required=True, only=choice.name, parallel=not choice.one_at_a_time)


def _structural_tag(toolset: Toolset, choice: CallPolicy) -> dict[str, Any]:
    content = {"type": "grammar", "grammar": _calls(toolset, choice)}
    tag = {"type": "tag", "begin": OPENING, "content": content, "end": f"\n{CLOSING}"}
    return {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": [OPENING.rstrip()],
            "tags": [tag],
            "at_least_one": choice.required,
            "stop_after_first": True,
        },
    }


def _json_schema(toolset: Toolset, choice: CallPolicy) -> dict[str, Any]:
    """Return a schema for one call as a JSON object, a form that the reader of JSON calls understands."""
    tools = [tool for tool in toolset.tools if choice.name in (None, tool.python_name)]
    schema = {"anyOf": [_as_object(tool) for tool in tools]}
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _as_object(tool: Tool) -> dict[str, Any]:
    parameters = {name: part for name, part in tool.parameters.items() if name != "$defs"}
    call: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    # References start at the root of the schema that contains them.
    if definitions := tool.parameters.get("$defs"):
        call["$defs"] = definitions
    return call
