"""A grammar that admits prose, or valid calls of the offered tools and nothing that only looks like one.

    get_weather(location="London", days=3)

A call is a line of Python: keyword arguments in schema order, the required ones first, literals of their
schemas. Knows nothing of HTTP, prompts or profiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.answering.grammar.notation import literal
from emulator.answering.grammar.rules import GrammarRules, NoValue, UnusableGrammar
from emulator.answering.grammar.values import Values
from emulator.answering.grammar.words import PROSE
from emulator.answering.tiny.copying import CopySource
from emulator.tools.tool import Tool

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
    argument stays free and an optional choice or number is left out. Raises `UnusableGrammar`, a ValueError,
    where no tool is left to call or the grammar would be too long.
    """
    offered = [tool for tool in tools if only is None or only in (tool.name, tool.python_name)]
    rules = GrammarRules()
    copied = None if source is None else CopySource(source)
    names: list[str] = []
    for n, tool in enumerate(offered):
        try:
            names.append(_call(rules, f"tool-{n}", tool, copied))
        except (NoValue, RecursionError):
            continue  # nothing that it could be called with is valid, or it cannot be found
    if not names:
        raise UnusableGrammar(
            f"no tool to call: {only!r} is not among {[tool.name for tool in tools]}"
        )
    rules.add("call", " | ".join(names))
    rules.add("calls", f'call ("\\n" call){{0,{MAX_CALLS - 1}}}' if parallel else "call")
    if required or only is not None:
        rules.add("root", "calls")
    else:
        for name, body in PROSE.items():
            rules.add(name, body)
        rules.add("root", "calls | prose")
    return rules.text()


def _call(rules: GrammarRules, name: str, tool: Tool, source: CopySource | None) -> str:
    python_names = {parameter.name: parameter.python_name for parameter in tool.arguments}
    values = Values(rules, name, tool.parameters, source)
    arguments = values.members(tool.parameters, name, lambda wire: f"{python_names[wire]}=")
    begin = literal(f"{tool.python_name}(")
    return rules.add(name, " ".join(filter(None, (begin, arguments, '")"'))))
