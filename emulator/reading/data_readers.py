"""Readers of calls in JSON, ReAct and YAML: a whole block in, Python statements out.

A block in such a dialect holds few, short calls, so it is read when it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import count

from emulator.reading.calls import JSON, call_statement, find_calls, unquoted_scalar
from emulator.reading.loose_json import values
from emulator.reading.python_reader import PythonReader
from emulator.reading.repairs import parse_repaired
from emulator.reading.statements import MAX_BLOCK, Statement, unreadable
from emulator.reading.tool_names import ToolNames

ReadBlock = Callable[[str, ToolNames], list[Statement]]


class BlockReader:
    """Collects the block and calls `read` at its end; see `readers.Reader`."""

    def __init__(self, read: ReadBlock, names: Collection[str]) -> None:
        self._read = read
        self._names = ToolNames.of(names)
        self._parts: list[str] = []
        self._size = 0

    def feed(self, text: str) -> list[Statement]:
        self._size += len(text)
        if self._size <= MAX_BLOCK:
            self._parts.append(text)
        return []

    def close(self) -> list[Statement]:
        if self._size > MAX_BLOCK:
            raise unreadable(f"the block is longer than {MAX_BLOCK} characters")
        return self._read("".join(self._parts), self._names)


_CALL = re.compile(r"[\s\[(]*[\"']?[^\W\d][\w.]{0,200}\(")


def read_json(text: str, names: ToolNames) -> list[Statement]:
    """Read consecutive values: each is a call, a list of calls or an envelope of calls; others are
    skipped.

    A fence labelled ``json`` may also contain Python: ``[f(a=1), g(b=2)]``.
    """
    if _CALL.match(text):
        return read_python(text, names)
    return [
        call_statement(name, arguments, names, found.line)
        for found in values(text)
        for name, arguments in find_calls(found.value, names)
    ]


def read_nothing(text: str, names: ToolNames) -> list[Statement]:  # noqa: ARG001
    """Code that is shown has no statements."""
    return []


def read_leftover(text: str, names: ToolNames) -> list[Statement]:  # noqa: ARG001
    """Reject a fragment of a call. Raises Unreadable."""
    raise unreadable(
        "this tag belongs to a call, but there is no call around it",
        source_line=text,
        hint="write the whole call again, or write the answer without this tag",
    )


def read_python(text: str, names: ToolNames) -> list[Statement]:
    """Read a whole block of Python, for dialects that may contain it."""
    reader = PythonReader(names)
    return [*reader.feed(text), *reader.close()]


# ---------------------------------------------------------------------------- ReAct

_STEP = re.compile(
    r"^[ \t>*]*(?:Action[ \t]*\d*(?P<input>[ _]*Input)?|Observation|Thought|Final Answer)"
    r"[ \t]*\d*[ \t]*\**:\**[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_BRACKETED = re.compile(r"(?P<name>[\w.\-]+)\[(?P<text>.*)\]\Z", re.DOTALL)


def read_react(text: str, names: ToolNames) -> list[Statement]:
    """``Action: name`` and ``Action Input: {...}``; also ``Action: name(a=1)`` and ``name[text]``."""
    found: list[Statement] = []
    steps = list(_STEP.finditer(text))
    counted, line = 0, 1
    for number, step in enumerate(steps):
        line += text.count("\n", counted, step.start())
        counted = step.start()
        following = steps[number + 1] if number + 1 < len(steps) else None
        action = text[step.end() : following.start() if following else len(text)].strip(" \t\n`*")
        if not step.group().strip(" \t>*").lower().startswith("action") or step["input"]:
            continue
        argument_text: str | None = None
        if following is not None and following["input"] is not None:
            end = steps[number + 2].start() if number + 2 < len(steps) else len(text)
            argument_text = text[following.end() : end].strip()
        found += _action(action, argument_text, names, line)
    return found


def _action(action: str, argument_text: str | None, names: ToolNames, line: int) -> list[Statement]:
    if names.find(action) or argument_text is not None:
        return [_with_input(action, argument_text or "", names, line)]
    bracketed = _BRACKETED.match(action)
    if bracketed and names.find(bracketed["name"]):
        return [call_statement(bracketed["name"], bracketed["text"], names, line)]
    return [Statement(s.source, line + s.line - 1) for s in read_python(action, names)]


def _with_input(name: str, argument_text: str, names: ToolNames, line: int) -> Statement:
    body = argument_text.removeprefix("```json").removeprefix("```").strip()
    if body[:1] in ("{", "["):
        return call_statement(name, next(values(body, first=True)).value, names, line)
    python_name = names.find(name)
    if python_name and "=" in body:
        call = f"{python_name}({body})"
        try:
            parse_repaired(call, names)
            return Statement(call, line)
        except SyntaxError:
            pass
    body = body.split("\n\n", 1)[0].strip()
    quoted = len(body) > 1 and body[0] == body[-1] and body[0] in "\"'"
    return call_statement(name, (body[1:-1] if quoted else body) or None, names, line)


# ---------------------------------------------------------------------------- YAML

_YAML_SIZE = 1 << 16  # PyYAML's scanner is slow
_YAML_NODES = 10_000  # aliases can multiply the number of nodes


def read_yaml(text: str, names: ToolNames) -> list[Statement]:
    """``name: f`` with ``arguments:`` below it; one call or a list of calls."""
    import yaml

    if len(text) > _YAML_SIZE:
        raise unreadable(f"the YAML is longer than {_YAML_SIZE} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        row = mark.line if mark else 0
        raise unreadable(
            f"invalid YAML: {error.problem}",
            line=row + 1,
            column=mark.column + 1 if mark else 0,
            source_line=[*text.split("\n"), ""][row],
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise unreadable(f"invalid YAML: {type(error).__name__}") from None
    if node is None:
        return []
    try:
        value = _yaml_value(node, count(1))
    except RecursionError:
        raise unreadable("the YAML is nested too deep") from None
    return [call_statement(name, args, names, 1) for name, args in find_calls(value, names)]


def _yaml_value(node: object, numbers: Iterator[int]) -> JSON:
    """Convert a node to JSON. YAML 1.1 reads `NO` as False and a date as a date; a model means
    text.
    """
    import yaml

    if next(numbers) > _YAML_NODES:
        raise unreadable(f"the YAML has more than {_YAML_NODES} values")
    match node:
        case yaml.MappingNode(value=pairs):
            return {
                str(_yaml_value(key, numbers)): _yaml_value(item, numbers) for key, item in pairs
            }
        case yaml.SequenceNode(value=items):
            return [_yaml_value(item, numbers) for item in items]
        case yaml.ScalarNode(value=text, style=None):
            return None if text in ("", "~") else unquoted_scalar(text)
        case yaml.ScalarNode(value=text):
            return str(text)
    raise TypeError(node)
