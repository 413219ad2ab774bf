"""JSON values that mean calls: every JSON shape in which models write them, as (name, arguments).

Knows nothing of text; `data_readers` parses. A value that is not a call yields none: an answer in
JSON is an answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from emulator.core.command_tools import COMMAND_PARAMETERS
from emulator.reading.statements import LiteralCall, Statement, unreadable
from emulator.reading.tool_names import ToolNames
from sandbox.parsing import literal

JSON = None | bool | int | float | str | list[Any] | dict[str, Any]

_CONSTANTS: dict[str, JSON] = {"true": True, "false": False, "null": None, "none": None}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,2})?")

#: Keys that hold the function's name, in order of precedence.
NAME_KEYS = tuple(
    "name function function_name tool tool_name recipient_name action api func tool_call function_call"
    " tool_use call".split()
)
#: Keys that hold the arguments, in order of precedence.
ARGUMENT_KEYS = tuple(
    "arguments parameters args input kwargs params action_input tool_input tool_args function_args "
    "inputs".split()
)
#: Keys whose value is a call or a list of calls.
CALLS_KEYS = tuple(
    "tool_calls function_calls tool_uses functionCalls calls actions function_call functionCall tool_call"
    " function".split()
)
#: OpenAI's invented function that makes several calls: ``{"tool_uses": [...]}``.
PARALLEL = "multi_tool_use.parallel"
#: Keys that may accompany a call and are not arguments.
ENVELOPE = frozenset({"type", "id", "index", "call_id", "thought", "thoughts", "reasoning"})


def find_calls(value: JSON, names: ToolNames) -> Iterator[tuple[str, JSON]]:
    """Yield (written name, arguments) for every call that `value` means, in order."""
    if isinstance(value, list):
        for item in value:
            yield from find_calls(item, names)
    elif isinstance(value, dict) and not ("content" in value and value.get("role") in _OTHER_ROLES):
        yield from _calls_in_object(value, names)


def _calls_in_object(value: dict[str, Any], names: ToolNames) -> Iterator[tuple[str, JSON]]:
    for key in CALLS_KEYS:
        if isinstance(value.get(key), (list, dict)):
            yield from find_calls(value[key], names)
            return
    for key in NAME_KEYS:
        name = value.get(key)
        if isinstance(name, str):
            for written, arguments in _named_call(key, name, value, names):
                yield from unfold(written, arguments, names)
            return
    if (inner := _inside_message(value)) is not None:
        yield from find_calls(inner, names)
    elif (command := _command_in(value, names)) is not None:
        yield command
    elif value and all(names.find(key) and _is_object(item) for key, item in value.items()):
        # {"get_weather": {"city": "Oslo"}}, but not a script of package.json: {"run": "vite build"}
        yield from value.items()


def _is_object(value: JSON) -> bool:
    """Return True for an object, null, or an object in a string."""
    return value is None or isinstance(value, dict) or str(value).lstrip().startswith("{")


#: Their messages tell of calls, but make none.
_OTHER_ROLES = ("system", "developer", "user", "tool", "function")


def _inside_message(value: dict[str, Any]) -> dict[str, Any] | list[Any] | None:
    """Return the part of an API's message or response that may contain calls, or None."""
    match value:
        case {"method": "tools/call", "params": dict(inner)}:  # JSON-RPC, as in MCP
            return inner
        case {"choices": list(inner)}:
            return _members(inner, "message")
        case {"candidates": list(inner)}:  # Gemini
            return _members(inner, "content")
        case {"parts": list(inner)}:
            return [*_members(inner, "functionCall"), *_members(inner, "function_call")]
        case {"role": "assistant", "content": list(inner)}:  # Anthropic
            return [one for one in inner if isinstance(one, dict) and one.get("type") == "tool_use"]
        case {"content": str(text)} if len(value) == 1:  # Qwen 3.5
            parsed = _parse_arguments(text)
            return parsed if isinstance(parsed, (dict, list)) else None
    return None


def _members(items: list[Any], key: str) -> list[Any]:
    return [
        item[key] for item in items if isinstance(item, dict) and isinstance(item.get(key), dict)
    ]


def unfold(name: str, arguments: JSON, names: ToolNames) -> Iterator[tuple[str, JSON]]:
    """Yield the call, or the calls that a `PARALLEL` call consists of."""
    if name.strip().removeprefix("functions.") != PARALLEL or names.find(name):
        yield name, arguments
        return
    yield from find_calls(_parse_arguments(arguments), names)


def unquoted_scalar(text: str) -> JSON:
    """The constant or number that an unquoted text means, else the text itself."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if any(c in ".eE" for c in text) else int(text)
    return text


def _named_call(
    name_key: str, name: str, value: dict[str, Any], names: ToolNames
) -> Iterator[tuple[str, JSON]]:
    for key in ARGUMENT_KEYS:
        if key in value:
            is_definition = key == "parameters" and _is_schema(value[key])
            if not is_definition:
                yield name, value[key]
            return
    if names.find(name):  # {"name": "get_weather", "city": "Oslo"}
        ignored = ENVELOPE | {name_key}
        flat = {key: item for key, item in value.items() if key not in ignored}
        if not _NOT_CALL_KEYS & flat.keys():
            yield name, flat


#: Keys that mark a description of a tool or the result of a call, which is not a call.
_NOT_CALL_KEYS = frozenset(
    {"description", "result", "results", "output", "response", "observation"}
)


def _is_schema(value: JSON) -> bool:
    return isinstance(value, dict) and value.get("type") == "object" and "properties" in value


def call_statement(name: str, arguments: JSON, names: ToolNames, line: int) -> Statement:
    """Return the call as a statement: ``f(**{'city': 'Oslo'})``.

    Raises Unreadable if the name cannot be a function's or the arguments are not an object.
    """
    python_name = names.find_near(name) or name.strip().replace("\\_", "_")
    if not python_name.isidentifier():
        raise unreadable(f"no function is called {name!r}", line=line)
    call = LiteralCall(python_name, written_name=name)
    match _parse_arguments(arguments):
        case None:
            pass
        case dict(mapping):
            call = replace(call, kwargs=mapping)
        case list(items):
            call = replace(call, args=items)
        case str(text) if text.lstrip()[:1] in ("{", "["):
            raise unreadable(
                f"the arguments of {name} are not valid JSON",
                line=line,
                source_line=text[:200],
                hint='write them as an object: {"argument": value}',
            )
        case scalar:
            call = replace(call, args=[scalar])
    source = call.source
    if _HALF.search(source):
        raise unreadable(HALF, line=line, hint="write the whole character, or both of its escapes")
    return Statement(source, line, call=call)


HALF = "a string contains half of a surrogate pair, which is not a character"
#: A lone surrogate as `repr` writes it: after an even number of backslashes.
_HALF = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}")


def join_surrogates(text: str) -> str:
    """Join pairs of surrogates in ``text``. Raises ValueError for half of a pair."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def loads(text: str) -> JSON:
    """Parse JSON. Newlines in strings are allowed; NaN and infinity are not. Raises ValueError."""
    value: JSON = json.loads(text, strict=False, parse_float=_finite, parse_constant=_finite)
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number


def _parse_arguments(arguments: JSON) -> JSON:
    """Parse arguments that are given as text, if the text is an object or a list."""
    if not isinstance(arguments, str):
        return arguments
    text = arguments.strip()
    if not text:
        return None
    if text[0] not in "{[":
        return arguments
    try:
        parsed = loads(text)
    except (ValueError, RecursionError):
        try:
            parsed = literal(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return arguments
    return parsed if isinstance(parsed, (dict, list)) else arguments


PATCH = re.compile(r"^\*\*\* Begin Patch[ \t]*\n.*?^\*\*\* End Patch\b", re.DOTALL | re.MULTILINE)

#: Keys that may accompany a command.
_COMMAND_OPTIONS = frozenset(
    "workdir cwd timeout timeout_ms justification with_escalated_permissions sandbox_permissions".split()
)


def _command_in(value: dict[str, Any], names: ToolNames) -> tuple[str, Any] | None:
    """Return the call that ``{"command": ["bash", "-lc", "ls"]}`` means, if a command tool is
    offered.
    """
    keys = sorted(COMMAND_PARAMETERS & value.keys())
    if len(keys) != 1 or value.keys() - COMMAND_PARAMETERS - _COMMAND_OPTIONS:
        return None
    command = value[keys[0]]
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    if names.patch and (found := PATCH.search("\n".join(command))):
        return names.patch, [found.group()]
    return (names.command, value) if names.command and command else None
