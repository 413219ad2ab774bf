"""The same calls as models write them: each style turns calls into the text of one ideal reply.

A style writes what a model could have read in the prompt: Python names as in the stubs, wire names
where a format calls for them. Knows nothing of BFCL, servers or who reads the reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from emulator.tools.names import KEYWORDS, RESERVED
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset
from emulator.tools.type_trees import TypeTree

Json = Any


@dataclass(frozen=True)
class Call:
    """A call to be written; `arguments` are under their wire names."""

    tool: Tool
    arguments: Mapping[str, Json]

    @property
    def keywords(self) -> dict[str, Json]:
        """The arguments under the names of the stub."""
        python = {parameter.name: parameter.python_name for parameter in self.tool.arguments}
        return {python.get(name, name): value for name, value in self.arguments.items()}


Style = Callable[[Sequence[Call], Toolset], str]


def keywords(calls: Sequence[Call], _toolset: Toolset) -> str:
    """``f(a=1)`` in a fence, a call a line."""
    return _fence("\n".join(map(_by_keyword, calls)))


def bare(calls: Sequence[Call], _toolset: Toolset) -> str:
    """The same without a fence, each call's result printed."""
    return "\n".join(f"print({_by_keyword(call)})" for call in calls)


def positional(calls: Sequence[Call], _toolset: Toolset) -> str:
    """Positional as far as the stub's signature allows; keywords from the first gap on."""
    return _fence("\n".join(map(_by_position, calls)))


def constructors(calls: Sequence[Call], toolset: Toolset) -> str:
    """Nested objects through the models of the prompt: ``f(at=Place(city='Oslo'))``."""
    return _fence("\n".join(_constructed(call, toolset) for call in calls))


def variables(calls: Sequence[Call], toolset: Toolset) -> str:
    """A call's arguments through variables; calls of one tool in a row through a loop."""
    parts = []
    for _, group in groupby(calls, key=lambda call: call.tool.name):
        same = list(group)
        parts.append(_loop(same) if len(same) > 1 else _assigned(same[0], toolset))
    return _fence("\n\n".join(parts))


def as_json(calls: Sequence[Call], _toolset: Toolset) -> str:
    """A fenced JSON object, or a list of them."""
    written = [_object(call) for call in calls]
    body = json.dumps(written[0] if len(written) == 1 else written, indent=2, ensure_ascii=False)
    return _fence(body, "json")


def tool_call(calls: Sequence[Call], _toolset: Toolset) -> str:
    """Hermes and Qwen: JSON in ``<tool_call>`` tags."""
    return "\n".join(
        f"<tool_call>\n{json.dumps(_object(call), ensure_ascii=False)}\n</tool_call>"
        for call in calls
    )


def function_tags(calls: Sequence[Call], _toolset: Toolset) -> str:
    """Qwen3-Coder: ``<function=f>`` with one ``<parameter=a>`` for each argument."""
    return "\n".join(
        "\n".join(
            [
                f"<tool_call>\n<function={call.tool.name}>",
                *(
                    f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value)}"
                    "\n</parameter>"
                    for name, value in call.arguments.items()
                ),
                "</function>\n</tool_call>",
            ]
        )
        for call in calls
    )


def bracketed(calls: Sequence[Call], _toolset: Toolset) -> str:
    """What BFCL's own prompt asks for: ``[math.lcm(a=1), g(b=2)]``, dotted names, no fence."""
    return f"[{', '.join(_by_keyword(call, _dotted(call.tool)) for call in calls)}]"


def sole_dict(calls: Sequence[Call], _toolset: Toolset) -> str:
    """``f({"a": 1})``: the arguments object as the only argument. By keyword where the first
    parameter takes any value, for there the object would be that value."""

    def written(call: Call) -> str:
        takes_anything = bool(call.tool.arguments) and not call.tool.arguments[0].tree
        whole = f"{call.tool.python_name}({call.keywords!r})"
        return _by_keyword(call) if takes_anything else whole

    return _fence("\n".join(map(written, calls)))


def stringly(calls: Sequence[Call], _toolset: Toolset) -> str:
    """OpenAI's own shape as models remember it: arguments as a string, and every scalar in quotes."""
    entries: list[Json] = []
    for call in calls:
        trees = {parameter.name: parameter.tree for parameter in call.tool.arguments}
        quoted = {name: _quoted(value, trees[name]) for name, value in call.arguments.items()}
        function = {"name": call.tool.name, "arguments": json.dumps(quoted, ensure_ascii=False)}
        entries.append({"id": f"call_{len(entries)}", "type": "function", "function": function})
    return _fence(json.dumps({"tool_calls": entries}, indent=2, ensure_ascii=False), "json")


def mistral(calls: Sequence[Call], _toolset: Toolset) -> str:
    """``[TOOL_CALLS]f[ARGS]{"a": 1}``"""
    return "".join(
        f"[TOOL_CALLS]{call.tool.name}[ARGS]{json.dumps(call.arguments)}" for call in calls
    )


def deepseek(calls: Sequence[Call], _toolset: Toolset) -> str:
    """DeepSeek's tokens, as they look when a server leaves them in the text."""
    written = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.tool.name}\n"
        f"```json\n{json.dumps(call.arguments, ensure_ascii=False)}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


def python_tag(calls: Sequence[Call], _toolset: Toolset) -> str:
    """Llama 3: ``<|python_tag|>`` and JSON objects between semicolons."""
    written = ({"name": call.tool.name, "parameters": call.arguments} for call in calls)
    return f"<|python_tag|>{'; '.join(map(json.dumps, written))}<|eom_id|>"


def react(calls: Sequence[Call], _toolset: Toolset) -> str:
    """``Action:`` and ``Action Input:`` after a thought."""
    return "Thought: a tool can do this.\n" + "\n".join(
        f"Action: {call.tool.name}\nAction Input: {json.dumps(call.arguments)}" for call in calls
    )


def thinking(calls: Sequence[Call], _toolset: Toolset) -> str:
    """Reasoning that drafts a wrong call, prose, the code with the label of our prompt, and more prose."""
    name = calls[0].tool.python_name
    code = "\n".join(map(_by_keyword, calls))
    return (
        f"<think>\nThe user wants something that {name} can do. First idea:\n"
        f"{_fence(f'{name}()')}\nNo, the arguments are missing. Let me write it out.\n</think>\n\n"
        "I'll look that up for you.\n\n"
        f"{_fence(code, 'tool_code')}\n\n"
        "Once the results are in, I can tell you more."
    )


STYLES: dict[str, Style] = {
    "keywords": keywords,
    "positional": positional,
    "constructors": constructors,
    "variables + loop": variables,
    "JSON": as_json,
    "<tool_call>": tool_call,
    "list": bracketed,
    "think + prose + code": thinking,
    "<function=...>": function_tags,
    "bare, printed": bare,
    "sole dict": sole_dict,
    "all in strings": stringly,
    "[TOOL_CALLS]": mistral,
    "DeepSeek tokens": deepseek,
    "Llama python_tag": python_tag,
    "ReAct": react,
}


# Replies that call nothing


def refusal(_toolset: Toolset) -> str:
    """Plain prose."""
    return "I'm sorry, but none of my tools can help with that. Could you tell me more?"


def mention(toolset: Toolset) -> str:
    """Prose that names a function and how it would be called."""
    if not toolset.tools:
        return refusal(toolset)
    tool = toolset.tools[0]
    names = [parameter.python_name for parameter in tool.arguments]
    signature = f"{tool.python_name}({', '.join(names)})"
    return (
        f"The closest thing I have is {tool.name}, which does something else. If that is what you "
        f"want, I could call `{signature}`, or you could use {signature} yourself: just tell me "
        "which values to use."
    )


def menu(toolset: Toolset) -> str:
    """A list of what is on offer, as a model answers "what can you do?"."""
    offers = [
        f"- `{tool.python_name}`: {tool.description.splitlines()[0] if tool.description else ''}"
        for tool in toolset.tools
    ]
    return "\n".join(["None of these fits, but here is what I can do:", "", *offers])


def documentation(_toolset: Toolset) -> str:
    """Prose around code that calls no tool."""
    return (
        "No tool is needed; you can do it yourself:\n\n"
        "```python\nnumbers = [3, 4]\nprint(sum(n * n for n in numbers) ** 0.5)\n```\n\n"
        "That prints 5.0."
    )


PROSE: dict[str, Callable[[Toolset], str]] = {
    "refusal": refusal,
    "mention": mention,
    "menu": menu,
    "documentation": documentation,
}


# How Python is written


def _by_keyword(call: Call, name: str = "") -> str:
    arguments = (f"{key}={value!r}" for key, value in call.keywords.items())
    return f"{name or call.tool.python_name}({', '.join(arguments)})"


def _by_position(call: Call) -> str:
    rest = dict(call.arguments)
    placed = []
    optional_seen = False
    for parameter in call.tool.arguments:
        # The stub is keyword-only from the first required parameter after an optional one.
        keyword_only = parameter.required and optional_seen
        if keyword_only or parameter.name not in rest:
            break
        placed.append(repr(rest.pop(parameter.name)))
        optional_seen = optional_seen or not parameter.required
    named = Call(call.tool, rest).keywords.items()
    return f"{call.tool.python_name}({', '.join([*placed, *(f'{k}={v!r}' for k, v in named)])})"


def _constructed(call: Call, toolset: Toolset) -> str:
    trees = {parameter.python_name: parameter.tree for parameter in call.tool.arguments}
    arguments = (
        f"{key}={_expression(value, trees.get(key, {}), toolset)}"
        for key, value in call.keywords.items()
    )
    return f"{call.tool.python_name}({', '.join(arguments)})"


def _expression(value: Json, tree: TypeTree, toolset: Toolset) -> str:
    """`value` with a constructor wherever the stub shows a model."""
    if isinstance(value, list):
        item: TypeTree = next((part["items"] for part in _kinds(tree) if "items" in part), {})
        return f"[{', '.join(_expression(each, item, toolset) for each in value)}]"
    if not isinstance(value, dict):
        return repr(value)
    models = {model.name: model for model in toolset.models}
    for part in _kinds(tree):
        model = models.get(part.get("$ref", ""))
        fields = {field.name: field for field in model.fields} if model else {}
        if model and value.keys() <= fields.keys():
            written = (
                f"{fields[key].python_name}={_expression(member, fields[key].tree, toolset)}"
                for key, member in value.items()
            )
            return f"{model.name}({', '.join(written)})"
    return repr(value)


def _kinds(tree: TypeTree) -> Sequence[TypeTree]:
    kinds: Sequence[TypeTree] = tree.get("anyOf", [tree])
    return kinds


def _loop(calls: Sequence[Call]) -> str:
    """``for a, b in [(1, 2), (3, 4)]: f(a=a, b=b)``; over dicts where the calls' arguments differ."""
    tool = calls[0].tool
    names = list(calls[0].keywords)
    if not names or any(list(call.keywords) != names for call in calls):
        rows = "".join(f"    {call.keywords!r},\n" for call in calls)
        return f"requests = [\n{rows}]\nfor request in requests:\n    {tool.python_name}(**request)"
    rows = "".join(
        f"    {values[0] if len(values) == 1 else '(' + ', '.join(values) + ')'},\n"
        for values in ([repr(value) for value in call.keywords.values()] for call in calls)
    )
    targets = {name: _variable(name, tool.python_name) for name in names}
    body = ", ".join(f"{name}={target}" for name, target in targets.items())
    return f"for {', '.join(targets.values())} in [\n{rows}]:\n    {tool.python_name}({body})"


def _assigned(call: Call, toolset: Toolset) -> str:
    taken = toolset.names | toolset.constructors
    targets = {name: _variable(name, *taken) for name in call.keywords}
    lines = [f"{targets[name]} = {value!r}" for name, value in call.keywords.items()]
    body = ", ".join(f"{name}={target}" for name, target in targets.items())
    return "\n".join([*lines, f"result = {call.tool.python_name}({body})"])


def _variable(name: str, *taken: str) -> str:
    return f"{name}_value" if name in RESERVED or name in taken else name


def _quoted(value: Json, tree: TypeTree) -> Json:
    """`value` with text wherever its schema wants another scalar, so that only that can be meant."""
    if tree.get("type") in ("integer", "number", "boolean"):
        return json.dumps(value)
    if isinstance(value, list) and "items" in tree:
        return [_quoted(each, tree["items"]) for each in value]
    return value


def _dotted(tool: Tool) -> str:
    parts = tool.name.split(".")
    is_python = all(part.isidentifier() and part not in KEYWORDS for part in parts)
    return tool.name if is_python else tool.python_name


def _object(call: Call) -> dict[str, Json]:
    return {"name": call.tool.name, "arguments": dict(call.arguments)}


def _fence(body: str, language: str = "python") -> str:
    return f"```{language}\n{body}\n```"
