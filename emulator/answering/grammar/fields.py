"""A grammar that holds calls to the toolset and leaves words free, in the field where an upstream takes it.

Lazily: words are free, and also code of any other language, until a Python block opens; from there on only
valid calls can be written, one a line, and the block's end. So the model loses what programs can do with
results: that is why no profile sends it by itself.

* ``grammar``: llama.cpp, GBNF (its grammars/README.md).
* ``guided_grammar``, ``structured_outputs``: vLLM before and since 0.12 (its page "Structured Outputs").
* ``ebnf``: SGLang. XGrammar, which both of these use, reads GBNF.
* ``structural_tag``: the same by a trigger, for vLLM and SGLang: the words are not even looked at.
* ``json_schema``: for servers without grammars (Ollama's ``format``, by `response_format`). It holds the
  whole answer, so that it is sent only where a call is required.
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
    """GBNF: words and then a block of calls, or words alone where no call is required.

    Raises `UnusableGrammar`.
    """
    calls = _calls(toolset, choice).splitlines()
    rules = [line.replace("root ::=", "block-calls ::=", 1) for line in calls]
    names = frozenset(name for tool in toolset.tools for name in (tool.name, tool.python_name))
    spoken = [f"{name} ::= {body}" for name, body in words(names).items()]
    block = r'block ::= "```python\n" block-calls "\n```"'
    root = r'(words "\n")? block' if choice.required else r'block | words ("\n" block)?'
    return "\n".join([f"root ::= {root}", block, *rules, *spoken]) + "\n"


def grammar_fields(field: GrammarField, toolset: Toolset, choice: CallPolicy) -> dict[str, Any]:
    """The fields of a request; none where there is nothing to hold a reply to."""
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
    """One call as an object, which is read like any call that is written as JSON."""
    tools = [tool for tool in toolset.tools if choice.name in (None, tool.python_name)]
    schema = {"anyOf": [_as_object(tool) for tool in tools]}
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _as_object(tool: Tool) -> dict[str, Any]:
    parameters = {name: part for name, part in tool.parameters.items() if name != "$defs"}
    written: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    # References start at the root of the schema that contains them.
    if definitions := tool.parameters.get("$defs"):
        written["$defs"] = definitions
    return written
