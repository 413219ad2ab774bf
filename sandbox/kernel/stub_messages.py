"""What the stub in a kernel says of a program: the calls that it makes, and how it failed.

Stops: calls of other names than those offered, arguments that are no JSON, calls too large.

Does not stop: a call that the program forged, or a traceback of its own making; both are only data here.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NoReturn

from sandbox.engine import Paused
from sandbox.errors import Frame, ProgramFailed, SandboxLimit, render_traceback
from sandbox.kernel.connection import Message

_LARGEST = 1024 * 1024
"""Characters of the calls of one pause."""
_LONGEST_MESSAGE = 10_000


def calls(said: str, names: Collection[str]) -> tuple[list[Paused], bool]:
    """The calls of one pause, and whether they came as a list: the one that pauses and those ahead of it.

    Raises `SandboxLimit`, and ``ValueError``, ``TypeError`` or ``LookupError`` for what no stub says.
    """
    if len(said) > _LARGEST:
        raise SandboxLimit("argument bytes in a call")
    found = json.loads(said, parse_constant=_no_constant)
    several = isinstance(found, list)
    return [_call(call, names) for call in (found if several else [found])], several


def _call(call: Any, names: Collection[str]) -> Paused:
    name, args, kwargs, line = call["name"], call["args"], call["kwargs"], call["line"]
    if name not in names or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ValueError(name)
    batch = call.get("batch")
    return Paused(
        name,
        tuple(args),
        kwargs,
        line if type(line) is int else None,
        batch if type(batch) is int else 0,
    )


def failure(reply: Message, stdout: str) -> ProgramFailed:
    """The error that an ``execute_reply`` tells of."""
    kind, message = str(reply["ename"]), str(reply["evalue"])[:_LONGEST_MESSAGE]
    try:
        frames = [
            (bool(current), Frame(int(line), str(function), str(text)))
            for current, line, function, text in json.loads(reply["traceback"][0])
        ]
    except (ValueError, TypeError, LookupError, RecursionError):
        frames = []  # not written by our stub
    lines = [frame.line for current, frame in frames if current]
    traceback = render_traceback([frame for _, frame in frames], kind, message)
    return ProgramFailed(kind, message, lines[-1] if lines else None, traceback, stdout)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
