"""From a call as it was written to one tool's arguments object, or to problems worth repairing.

Three steps: put positional and keyword arguments under their wire names, coerce them, and let the
validator judge. Whatever a sandbox hands over, the outcome is valid arguments or a BindError.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from emulator.tools import command_arguments
from emulator.tools.coercion import Coercion, walk
from emulator.tools.diagnosis import Diagnosis
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.problems import BindError, Problem, brief, written_call
from emulator.tools.tool import Tool
from emulator.tools.type_trees import Parameter, TypeTree

_CONTAINERS = (list, tuple, dict)
_JSON = (bool, int, float, str, *_CONTAINERS, type(None))

MAX_DEPTH = 32
MAX_VALUES = 50_000
MAX_CHARS = 2**20
"""Of all texts in one call."""


def bind(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments object for a call of `tool`. Raises BindError."""
    problems = _foreign(args, kwargs)
    if problems:
        raise BindError(f"{tool.python_name}(...)", problems)
    plain = [_jsonlike(arg) for arg in args]
    named = {key: _jsonlike(value) for key, value in kwargs.items()}
    written = partial(written_call, tool.python_name, plain, named)
    reading = ExpandedSchema(tool.parameters.get("$defs", {}))
    if len(plain) == 1 and not named and isinstance(plain[0], dict):
        plain, named = _spread(tool, plain[0], reading)
    problems = _unfitting(tool, len(plain), list(named))
    if problems:
        raise BindError(written(), problems)
    arguments = dict(zip((p.name for p in tool.arguments), plain, strict=False))
    arguments |= {tool.wire_name(key): value for key, value in named.items()}
    arguments = command_arguments.fitted(tool, arguments)
    arguments = Coercion(reading).members(arguments, tool.parameters)
    if not tool.validator.is_valid(arguments):
        raise BindError(written(), Diagnosis(reading).problems(arguments, tool.parameters))
    if tool.grammar is not None:
        fitted = tool.grammar.fitted(arguments["input"])
        if isinstance(fitted, Problem):
            raise BindError(written(), [fitted])
        arguments["input"] = fitted
    return arguments


def check(tool: Tool, positional: int, keywords: Sequence[str]) -> tuple[Problem, ...]:
    """What is wrong with a call whatever its values: unknown, doubled and missing arguments.

    A sole positional argument may turn out to be a dict of all of them, or of none.
    """
    if positional == 1 and not keywords:
        return ()
    problems = _unfitting(tool, positional, keywords)
    named_arguments = {p.name for p in tool.arguments[:positional]} | set(
        map(tool.wire_name, keywords)
    )
    missing = [p for p in tool.arguments if p.required and p.name not in named_arguments]
    return (*problems, *map(_missing, missing))


def _unfitting(tool: Tool, positional: int, keywords: Sequence[str]) -> list[Problem]:
    """Arguments that have no place in the signature."""
    accepted = tool.arguments
    problems: list[Problem] = []
    if positional > len(accepted):
        takes = f"at most {len(accepted)} positional arguments" if accepted else "no arguments"
        expected = ", ".join(p.python_name for p in accepted)
        problems.append(
            Problem("", f"takes {takes}, found {positional}", expected, str(positional))
        )
    named_arguments = {p.name for p in accepted[:positional]}
    for keyword in keywords:
        name = tool.wire_name(keyword)
        if name in named_arguments:
            problems.append(
                Problem("", f'argument "{brief(keyword)}" given twice', found=brief(keyword))
            )
        elif tool.members.schema_of(name) is None:
            problems.append(_unknown(keyword, accepted))
        named_arguments.add(name)
    return problems


def _foreign(args: Sequence[Any], kwargs: Mapping[Any, Any]) -> list[Problem]:
    """What is not JSON, or too much of it. A sandbox is not to be trusted with the difference."""
    if not all(isinstance(key, str) and _is_text(key) for key in kwargs):
        return [Problem("", "an argument's name must be text")]
    named = [*((f"argument {n}", arg) for n, arg in enumerate(args, 1)), *kwargs.items()]
    values = chars = 0
    for place, value in named:
        nodes = walk(value) if isinstance(value, _CONTAINERS) else ((value, 1),)
        for node, depth in nodes:
            values += 1
            if depth > MAX_DEPTH:
                return [Problem(brief(place), f"nested deeper than {MAX_DEPTH} levels")]
            if values > MAX_VALUES:
                return [Problem("", f"more than {MAX_VALUES} values")]
            if isinstance(node, str):
                chars += len(node)
            elif isinstance(node, dict):
                chars += sum(len(key) for key in node if isinstance(key, str))
            if chars > MAX_CHARS:
                return [Problem(brief(place), f"more than {MAX_CHARS} characters in one call")]
            reason = _not_json(node)
            if reason:
                return [Problem(brief(place), reason, "JSON", type(node).__name__)]
    return []


def _not_json(node: Any) -> str:
    if isinstance(node, float) and not math.isfinite(node):
        return f"{node} is not a JSON number"
    if isinstance(node, int) and node.bit_length() > 1024:
        return "number too large"
    if isinstance(node, str) and not _is_text(node):
        return "holds half of a surrogate pair, which is no Unicode text"
    if isinstance(node, dict) and not all(isinstance(k, str) and _is_text(k) for k in node):
        return "an object's keys must be text"
    if not isinstance(node, _JSON):
        return f"{type(node).__name__} is not a JSON value"
    return ""


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _jsonlike(value: Any) -> Any:
    """A copy without tuples. Recursion is bounded by `_foreign`."""
    if isinstance(value, dict):
        return {key: _jsonlike(child) for key, child in value.items()}
    return [_jsonlike(child) for child in value] if isinstance(value, list | tuple) else value


def _spread(
    tool: Tool, sole: dict[str, Any], reading: ExpandedSchema
) -> tuple[list[Any], dict[str, Any]]:
    """``f({"city": "Oslo"})`` is ``f(city="Oslo")``, unless an object is what the first parameter
    takes: then only a full set of arguments that does not fit there alone is spread. Nor does an
    object whose key is the parameter's own name fit there: ``f({"body": {"mode": "on"}})``."""
    if not tool.arguments or not _may_be_object(tool.arguments[0].tree):
        return [], sole
    first = tool.arguments[0]
    named_arguments = set(map(tool.wire_name, sole))
    required = {p.name for p in tool.arguments if p.required}
    known = all(tool.members.schema_of(name) is not None for name in named_arguments)
    is_full = bool(sole) and known and required <= named_arguments
    fits_alone = required <= {first.name} and reading.admits(sole, first.schema)
    if fits_alone and first.tree and first.name not in reading.members(first.schema).properties:
        own = [value for key, value in sole.items() if tool.wire_name(key) == first.name]
        fits_alone = not (own and reading.admits(own[0], first.schema))
    return ([], sole) if is_full and not fits_alone else ([sole], {})


def _may_be_object(tree: TypeTree) -> bool:
    if "anyOf" in tree:
        return any(map(_may_be_object, tree["anyOf"]))
    return not tree or "$ref" in tree or tree.get("type") == "object"


def _unknown(keyword: str, accepted: Sequence[Parameter]) -> Problem:
    choices = [p.python_name for p in accepted]
    near = difflib.get_close_matches(keyword[:100], choices, n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    expected = brief(", ".join(choices) or "no arguments", 400)
    message = f'unknown argument "{brief(keyword)}"{hint}; expected {expected}'
    return Problem("", message, expected, brief(keyword))


def _missing(parameter: Parameter) -> Problem:
    kind = brief(parameter.annotation, 400)
    return Problem("", f'missing argument "{parameter.python_name}" ({kind})', expected=kind)
