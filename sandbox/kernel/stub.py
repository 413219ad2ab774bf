"""Send the code that runs inside a kernel (`sandbox.inside`) there as text, call it, and read what it
sends: the calls that a cell makes, and how it failed.

Stops: calls of names that were not offered, arguments that are not JSON, calls that are too large.

Does not stop: a call that the cell forged, or a traceback of its own making; both are only data here.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from sandbox import inside
from sandbox.engine import Paused
from sandbox.errors import Frame, ProgramFailed, SandboxLimit, render_traceback
from sandbox.kernel.connection import Message

STUB = "__import__('sys').modules['sandbox.inside.stub']"
"""A Python expression for the stub, valid anywhere inside a kernel."""

_MODULES = "values calls tasks asyncio_changes cells threads files stub".split()
"""Ordered: each module imports only modules before it."""


def call(function: str, **payload: Any) -> str:
    """Python source that calls a function of the stub with a JSON payload."""
    # repr of a str is Python source for it.
    return f"{STUB}.{function}({json.dumps(payload)!r})"


def _loader() -> str:
    """Python source that defines the modules in a kernel, which needs none of our files."""
    (folder,) = inside.__path__
    modules = [
        (f"sandbox.inside.{name}", Path(folder, f"{name}.py").read_text()) for name in _MODULES
    ]
    # From 64 KiB pyzmq sends without a copy, for which it keeps a thread and sockets of its own.
    packed = base64.b64encode(zlib.compress(json.dumps(modules).encode())).decode()
    return (
        "import base64, json, sys, types, zlib\n"
        "for name in ('sandbox', 'sandbox.inside'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        f"for name, source in json.loads(zlib.decompress(base64.b64decode({packed!r}))):\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    setattr(sys.modules['sandbox.inside'], name.rpartition('.')[2], module)\n"
        "    exec(compile(source, f'<{name}>', 'exec'), module.__dict__)\n"
        "del base64, json, zlib, name, source, module\n"
    )


STUB_LOADER = _loader()


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
