"""Turn a call as the model wrote it into one tool's arguments object, or into problems that the
model can repair.

Three steps: assign positional and keyword arguments to wire names, coerce them, validate them.
Whatever a sandbox passes in, the result is valid arguments or a BindError.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from emulator.core.command_tools import COMMAND_PARAMETERS, COMMAND_TOOLS
from emulator.tools.coercion import Coercion
from emulator.tools.diagnosis import Diagnosis
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.problems import BindError, Problem, format_call, shorten
from emulator.tools.schema import SchemaError, guard_values
from emulator.tools.tool import Tool
from emulator.tools.type_trees import Parameter, TypeTree

MAX_DEPTH = 32
MAX_VALUES = 50_000
MAX_CHARS = 2**20
"""The limit for all texts in one call."""


def bind(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments object for a call of `tool`. Raises BindError."""
    problems = _guard(args, kwargs)
    if problems:
        raise BindError(f"{tool.python_name}(...)", problems)
    plain = [_copy(arg) for arg in args]
    named = {key: _copy(value) for key, value in kwargs.items()}
    written = partial(format_call, tool.python_name, plain, named)
    expanded = ExpandedSchema(tool.parameters.get("$defs", {}))
    if len(plain) == 1 and not named and isinstance(plain[0], dict):
        plain, named = _spread_dict(tool, plain[0], expanded)
    problems = _misplaced(tool, len(plain), list(named))
    if problems:
        raise BindError(written(), problems)
    arguments = dict(zip((p.name for p in tool.arguments), plain, strict=False))
    arguments |= {tool.wire_name(key): value for key, value in named.items()}
    arguments = convert_command(tool, arguments)
    arguments = Coercion(expanded).members(arguments, tool.parameters)
    if not tool.validator.is_valid(arguments):
        raise BindError(written(), Diagnosis(expanded).problems(arguments, tool.parameters))
    if tool.grammar is not None:
        matched = tool.grammar.match(arguments["input"])
        if isinstance(matched, Problem):
            raise BindError(written(), [matched])
        arguments["input"] = matched
    return arguments


def check(tool: Tool, positional: int, keywords: Sequence[str]) -> tuple[Problem, ...]:
    """Return the problems of a call that do not depend on values: unknown, repeated and missing
    arguments.

    A single positional argument may be a dict of all arguments, so it is not checked.
    """
    if positional == 1 and not keywords:
        return ()
    problems = _misplaced(tool, positional, keywords)
    bound_names = {p.name for p in tool.arguments[:positional]} | set(map(tool.wire_name, keywords))
    missing = [p for p in tool.arguments if p.required and p.name not in bound_names]
    return (*problems, *map(_missing, missing))


def _misplaced(tool: Tool, positional: int, keywords: Sequence[str]) -> list[Problem]:
    """Return the problems of arguments that the signature does not accept."""
    accepted = tool.arguments
    problems: list[Problem] = []
    if positional > len(accepted):
        takes = f"at most {len(accepted)} positional arguments" if accepted else "no arguments"
        problems.append(Problem("", f"takes {takes}, found {positional}"))
    bound_names = {p.name for p in accepted[:positional]}
    for keyword in keywords:
        name = tool.wire_name(keyword)
        if name in bound_names:
            problems.append(Problem("", f'argument "{shorten(keyword)}" given twice'))
        elif tool.members.schema_of(name) is None:
            problems.append(_unknown(keyword, accepted))
        bound_names.add(name)
    return problems


def _guard(args: Sequence[Any], kwargs: Mapping[Any, Any]) -> list[Problem]:
    """Return the problem of a value that is not JSON or exceeds the limits. Values come from a
    sandbox, so nothing is assumed.
    """
    if not all(isinstance(key, str) and _is_text(key) for key in kwargs):
        return [Problem("", "an argument's name must be text")]
    named = [*((f"argument {n}", arg) for n, arg in enumerate(args, 1)), *kwargs.items()]
    try:
        guard_values(named, MAX_DEPTH, MAX_VALUES, MAX_CHARS)
    except SchemaError as error:
        return [Problem(shorten(error.param), error.message)]
    return []


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _copy(value: Any) -> Any:
    """Copy a value, with tuples as lists. `guard_values` has limited the depth."""
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list | tuple) else value


def _spread_dict(
    tool: Tool, sole: dict[str, Any], expanded: ExpandedSchema
) -> tuple[list[Any], dict[str, Any]]:
    """``f({"city": "Oslo"})`` means ``f(city="Oslo")``, unless the first parameter accepts an
    object.

    In that case the object is spread only if it is a full set of arguments and does not fit the
    first parameter alone. An object whose key is the parameter's own name does not fit there alone
    either: ``f({"body": {"mode": "on"}})``.
    """
    if not tool.arguments or not _may_be_object(tool.arguments[0].tree):
        return [], sole
    first = tool.arguments[0]
    bound_names = set(map(tool.wire_name, sole))
    required = {p.name for p in tool.arguments if p.required}
    known = all(tool.members.schema_of(name) is not None for name in bound_names)
    is_full = bool(sole) and known and required <= bound_names
    fits_alone = required <= {first.name} and expanded.admits(sole, first.schema)
    if fits_alone and first.tree and first.name not in expanded.members(first.schema).properties:
        own = [value for key, value in sole.items() if tool.wire_name(key) == first.name]
        fits_alone = not (own and expanded.admits(own[0], first.schema))
    return ([], sole) if is_full and not fits_alone else ([sole], {})


def _may_be_object(tree: TypeTree) -> bool:
    if "anyOf" in tree:
        return any(map(_may_be_object, tree["anyOf"]))
    return not tree or "$ref" in tree or tree.get("type") == "object"


def _unknown(keyword: str, accepted: Sequence[Parameter]) -> Problem:
    choices = [p.python_name for p in accepted]
    near = difflib.get_close_matches(keyword[:100], choices, n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    expected = shorten(", ".join(choices) or "no arguments", 400)
    message = f'unknown argument "{shorten(keyword)}"{hint}; expected {expected}'
    return Problem("", message)


def _missing(parameter: Parameter) -> Problem:
    kind = shorten(parameter.annotation, 400)
    return Problem("", f'missing argument "{parameter.python_name}" ({kind})')


_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh"})
_RUN = frozenset({"-c", "-lc", "-cl"})


def convert_command(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, with a shell command in the form that the command tool takes: text or a list
    of words. Agents' prompts teach both: ``"ls -l"`` is ``["bash", "-lc", "ls -l"]``.
    """
    if tool.name.lower() not in COMMAND_TOOLS:
        return arguments
    properties = tool.parameters.get("properties") or {}
    types = {
        name: schema.get("type") if isinstance(schema, dict) else None
        for name, schema in properties.items()
        if name in COMMAND_PARAMETERS
    }
    return {
        name: _convert(value, types[name]) if name in types else value
        for name, value in arguments.items()
    }


def _convert(value: Any, kind: Any) -> Any:
    match value:
        case str() if kind == "array" and not value.lstrip().startswith("["):
            return ["bash", "-lc", value]
        case [str(shell), str(run), str(script)] if (
            kind == "string" and shell in _SHELLS and run in _RUN
        ):
            return script
        case [_, *_] if kind == "string" and all(isinstance(word, str) for word in value):
            return shlex.join(value)
    return value
