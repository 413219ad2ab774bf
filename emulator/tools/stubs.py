"""Write what a model reads: typed function stubs with Google-style docstrings.

Descriptions come from strangers. Whatever they contain, the result is Python that parses to one
function with one docstring, and contains no code fence that could end the block around it. Knows
nothing of models' source (`codegen`) and of prompts.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.tools import expansion, names
from emulator.tools.return_types import UNKNOWN_RETURN, ReturnType
from emulator.tools.schema import Definitions
from emulator.tools.type_trees import Parameter, quote

MAX_DESCRIPTION = 4_000
MAX_REMARK = 1_000
MAX_EXAMPLES = 2_000
MAX_LINE = 85

#: The wording of each bound, in the order in which bounds are shown.
_BOUNDS = {
    "format": "format {}",
    "pattern": "pattern {}",
    "minLength": "{} or more characters",
    "maxLength": "{} or fewer characters",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "{} or more items",
    "maxItems": "{} or fewer items",
    "uniqueItems": "no item twice",
}

#: Double quotes that would close a docstring: three in a row, or any at the end.
_ENDING_QUOTES = re.compile(r'"{3,}|"+\Z')


def function(
    name: str,
    description: str,
    parameters: Sequence[Parameter],
    *,
    extra: str | None = None,
    definitions: Definitions,
    returns: ReturnType = UNKNOWN_RETURN,
    examples: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return one stub. `extra` is the type of additional keyword arguments; None if there are none.

    `examples` are arguments objects. Those that together exceed `MAX_EXAMPLES` characters are left out.
    """
    calls = _example_calls(name, parameters, examples)
    docstring = _docstring(description, parameters, definitions, returns.remark, calls)
    body = textwrap.indent(docstring or "...", "    ")
    return (
        f"def {name}({_signature(parameters, extra, len(name))}) -> {returns.annotation}:\n{body}\n"
    )


def escape_fences(source: str) -> str:
    """Return `source`, a stub or a model, without the marks of a code fence.

    Backticks and runs of tildes occur only inside string literals, where an escape means the same.
    """
    return source.replace("```", r"\x60\x60\x60").replace("~~~", r"\x7e\x7e\x7e")


def _signature(parameters: Sequence[Parameter], extra: str | None, reserved: int) -> str:
    """Return the parameters in schema order, which is the order of positional arguments. A required
    parameter after an optional one must be keyword-only in Python.
    """
    parts: list[str] = []
    optional_seen = False
    for parameter in parameters:
        if parameter.required and optional_seen and "*" not in parts:
            parts.append("*")
        optional_seen = optional_seen or not parameter.required
        parts.append(_declaration(parameter))
    if extra is not None:
        parts.append(f"**{names.unique('extra', {p.python_name for p in parameters})}: {extra}")
    line = ", ".join(parts)
    if len(line) + reserved <= MAX_LINE:
        return line
    return "".join(f"\n    {part}," for part in parts) + "\n"


def _declaration(parameter: Parameter) -> str:
    declared = f"{parameter.python_name}: {parameter.annotation}"
    if parameter.required:
        return declared
    if parameter.shows_default:
        return f"{declared} = {_literal(parameter.default)}"
    kind = parameter.annotation
    admits_none = kind in ("Any", "None") or kind.endswith("| None")
    return f"{declared} = None" if admits_none else f"{declared} | None = None"


def _literal(value: Any) -> str:
    return quote(value) if isinstance(value, str) else repr(value)


def _example_calls(
    name: str, parameters: Sequence[Parameter], examples: Sequence[Mapping[str, Any]]
) -> list[str]:
    python_names = {parameter.name: parameter.python_name for parameter in parameters}
    calls: list[str] = []
    for example in examples:
        arguments = {python_names.get(key, key): value for key, value in example.items()}
        call = f"{name}({', '.join(_keyword(key, value) for key, value in arguments.items())})"
        if sum(map(len, calls)) + len(call) <= MAX_EXAMPLES:
            calls.append(call)
    return calls


def _keyword(name: str, value: Any) -> str:
    if name.isidentifier() and name not in names.KEYWORDS:
        return f"{name}={_literal(value)}"
    return f"**{ {name: value}!r}"


def _docstring(
    description: str,
    parameters: Sequence[Parameter],
    definitions: Definitions,
    returns: str,
    examples: Sequence[str],
) -> str:
    remarks = [(p.python_name, _remark(p, definitions)) for p in parameters]
    entries = "".join(
        f"    {name}: {_indent_continuation(remark)}\n" for name, remark in remarks if remark
    )
    text = _truncate(description, MAX_DESCRIPTION)
    if entries:
        # A client that sends a whole docstring as the description has its own Args section there.
        title = "Parameters" if re.search(r"^\s*Args:", text, re.MULTILINE) else "Args"
        text = f"{text}\n\n{title}:\n{entries}" if text else f"{title}:\n{entries}"
    if returns:
        text = f"{text.rstrip()}\n\nReturns: {_truncate(returns, MAX_DESCRIPTION)}\n".lstrip()
    if examples:
        lines = "".join(f"    {call}\n" for call in examples)
        text = f"{text.rstrip()}\n\nExamples:\n{lines}".lstrip()
    elif "\n" in text and not (entries or returns):
        text = f"{text}\n"
    return f'"""{_escape_docstring(text)}"""' if text else ""


def _remark(parameter: Parameter, definitions: Definitions) -> str:
    """Return the text about one parameter: its description, then bounds that its type does not
    show.
    """
    view = expansion.expand(parameter.schema, definitions)
    remark = parameter.remark("description")
    if remark is None and "$ref" not in parameter.tree:
        remark = view.get("description")
    notes = _bounds(_sole_kind(view, definitions))
    if isinstance(view.get("items"), dict):
        inside = _bounds(expansion.expand(view["items"], definitions))
        notes += [f"each item {', '.join(inside)}"] if inside else []
    if "enum" in view and "Literal[" not in parameter.annotation:
        notes.append(f"one of {_format_value(view['enum'], 600)}")
    if parameter.default is not None and (parameter.required or not parameter.shows_default):
        notes.append(f"default {_format_value(parameter.default)}")
    text = _truncate(remark or "", MAX_REMARK)
    bounds = "; ".join(notes)
    return f"{text} ({bounds})" if text and bounds else text or bounds[:1].upper() + bounds[1:]


def _sole_kind(view: dict[str, Any], definitions: Definitions) -> dict[str, Any]:
    """Return the type of an optional value when it is not null: Pydantic writes `anyOf: [it,
    null]`.
    """
    parts = [
        p for p in expansion.alternatives(view) if p not in ({"type": "null"}, {"const": None})
    ]
    return expansion.expand(parts[0], definitions) if len(parts) == 1 else view


def _bounds(view: dict[str, Any]) -> list[str]:
    return [
        wording.format(_format_value(view[keyword]))
        for keyword, wording in _BOUNDS.items()
        if keyword in view and view[keyword] is not False
    ]


def _format_value(value: object, limit: int = 200) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _truncate(text, limit)


def _truncate(text: str, limit: int) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    return lines if len(lines) <= limit else f"{lines[:limit].rstrip()}..."


def _indent_continuation(text: str) -> str:
    return text.replace("\n", "\n        ")


def _escape_docstring(text: str) -> str:
    """Escape backslashes, quotes, control and invisible characters in `text`, so that it is safe
    between triple double quotes and reads as the text itself.
    """
    escaped = text.replace("\t", "    ")
    if "\\" in escaped or not escaped.replace("\n", "").isprintable():
        escaped = "".join(
            c
            if c == "\n" or (c.isprintable() and c != "\\")
            else c.encode("unicode_escape").decode()
            for c in escaped
        )
    return _ENDING_QUOTES.sub(lambda quotes: r"\"" * len(quotes[0]), escaped)
