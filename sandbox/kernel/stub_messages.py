"""Read what the stub in a kernel sends: the calls that a program makes, and how it failed.

Stops: calls of names that were not offered, arguments that are not JSON, calls that are too large.

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
_LONGEST_ERROR = 10_000


def read_calls(text: str, names: Collection[str]) -> tuple[list[Paused], bool]:
    """Return the calls of one pause, and whether they came as a list (see `sandbox.inside.calls`).

    Raises SandboxLimit, and ValueError, TypeError or LookupError for text that the stub does not write.
    """
    if len(text) > _LARGEST:
        raise SandboxLimit("argument bytes in a call")
    payload = json.loads(text, parse_constant=_refuse_constant)
    is_list = isinstance(payload, list)
    return [_read_call(call, names) for call in (payload if is_list else [payload])], is_list


def _read_call(call: Any, names: Collection[str]) -> Paused:
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


def read_failure(reply: Message, stdout: str) -> ProgramFailed:
    """The error in an ``execute_reply``."""
    kind, message = str(reply["ename"]), str(reply["evalue"])[:_LONGEST_ERROR]
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


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
