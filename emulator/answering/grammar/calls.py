"""The grammar of a reply: prose, or valid calls of the offered tools. Prose cannot look like a call.

    get_weather(location="London", days=3)

A call is one line of Python. Its arguments are keyword arguments with literals that their schemas allow:
first the required ones, then the others, both in schema order. Knows nothing of HTTP, prompts or profiles.
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
"""In one reply. The limit ends the reply of a small model that repeats itself."""


def gbnf(
    tools: Sequence[Tool],
    *,
    required: bool = False,
    only: str | None = None,
    parallel: bool = True,
    source: str | None = None,
) -> str:
    """Return the grammar of a reply: calls of `tools`, or prose unless `required`.

    `only` names the one tool (wire or Python name) that may be called, and implies `required`. Without
    `parallel` a reply has at most one call.

    With `source`, a string or number must be a copy from that text, and an enum allows only the values that
    the text mentions. If the text has no suitable value, a required argument stays unrestricted, and an
    optional enum, boolean or number is omitted.

    Raises `UnusableGrammar` if no tool can be called or the grammar would be too long.
    """
    offered = [tool for tool in tools if only is None or only in (tool.name, tool.python_name)]
    rules = GrammarRules()
    copied = None if source is None else CopySource(source)
    names: list[str] = []
    for n, tool in enumerate(offered):
        try:
            names.append(_call(rules, f"tool-{n}", tool, copied))
        except (NoValue, RecursionError):
            continue  # no valid arguments exist, or they are nested too deeply to find
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
