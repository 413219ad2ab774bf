"""Ask the host for the result of a call. Runs inside the kernel.

The protocol with the host (`sandbox.kernel.session`) runs over Jupyter's stdin channel, one exchange at a
time:

* The kernel sends an `input_request`. Its prompt is the session's marker followed by JSON: one call, as
  `write_call` writes it, or an array of pending calls in the order in which the cell made them (`tasks`).
* The host answers with an `input_reply`: for one call the JSON of its result; for an array the JSON array
  of the results of its first calls (the host decides how many); or `REFUSED` followed by the reason why the
  first call is refused.

Only the main thread of the process to which the functions were offered may ask, and only while a piece of
code runs. Other threads would receive each other's replies; and between two pieces the host reads nothing, so
the kernel would wait forever.

Stops: nothing. The host does not trust a call that comes from here.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

from sandbox.inside.values import REFUSED, ToolError, plain, received

OFFERED: dict[str, Callable[..., Any]] = {}
"""The functions whose calls are the host's to answer."""

PIECES: set[str] = set()
"""File names of the code that runs now, to tell its frames from those of libraries."""

LARGEST_MESSAGE = 1000 * 1000
"""Characters of the calls of one message. The host accepts no more, and a larger message may end zmq."""

ONE_AFTER_THE_OTHER = (
    "threads run one after the other here, and this one waits for another; "
    "call the functions in order instead"
)


@dataclass
class _Host:
    ask: Callable[[str], str]
    marker: str
    thread: int
    process: int
    waited: float = 0.0
    """Seconds spent waiting for replies."""


_hosts: list[_Host] = []
"""The current one, if any."""
_pieces: list[Context] = []
"""The context of the piece that runs, if any. ipykernel reads from it which request a call belongs to: a task
that an earlier cell started has the context of that cell."""


def connect(ask: Callable[[str], str], marker: str) -> None:
    """Use `ask`, Jupyter's `raw_input`, for the calls of this thread."""
    waited = seconds_waited()
    _hosts[:] = [_Host(ask, marker, threading.get_ident(), os.getpid(), waited)]


def start_piece() -> None:
    """Accept calls, as those of the piece that starts now."""
    _pieces[:] = [copy_context()]


def end_piece() -> None:
    _pieces.clear()


def in_main_thread() -> bool:
    """Return True if the current thread may ask the host."""
    return any(
        host.thread == threading.get_ident() and host.process == os.getpid() for host in _hosts
    )


def seconds_waited() -> float:
    """The seconds that this kernel has spent waiting for the host's replies."""
    return _hosts[0].waited if _hosts else 0.0


def request(payload: str) -> Any:
    """Send one call, or an array of calls, as JSON, and return the decoded reply.

    Raises TypeError if the host refuses the first call, ToolError if the one call failed.
    """
    host = _hosts[0]
    began = time.monotonic()
    try:
        reply = _pieces[0].copy().run(host.ask, host.marker + payload)
    finally:
        host.waited += time.monotonic() - began
    if reply.startswith(REFUSED):
        raise TypeError(reply.removeprefix(REFUSED))
    result = received(json.loads(reply))
    if isinstance(result, ToolError):
        raise result
    return result


def write_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call as JSON: name, args, kwargs, line.

    Raises TypeError for an argument that JSON cannot hold, ValueError if the call is too large,
    RuntimeError in another thread or process than the main one, or while no piece of code runs.
    """
    if not in_main_thread():
        raise RuntimeError(
            f"{name}() cannot be called from another thread or process: {ONE_AFTER_THE_OTHER}"
        )
    if not _pieces:
        raise RuntimeError(f"{name}() was called while no cell was running: await it in a cell")
    try:
        call = {
            "name": name,
            "args": [plain(v, f"{name}() argument {i}") for i, v in enumerate(args, 1)],
            "kwargs": {k: plain(v, f"{name}() argument {k}") for k, v in kwargs.items()},
            "line": _calling_line(),
        }
    except TypeError as error:
        raise TypeError(str(error)) from None
    text = json.dumps(call, allow_nan=False)
    if len(text) > LARGEST_MESSAGE:
        raise ValueError(f"{name}() was given more than {LARGEST_MESSAGE} characters")
    return text


def _calling_line() -> int | None:
    """The innermost line of the current piece."""
    frame: Any = sys._getframe(2)  # noqa: SLF001 - frames have no public way to their callers
    while frame is not None:
        if frame.f_code.co_filename in PIECES:
            line: int = frame.f_lineno
            return line
        frame = frame.f_back
    return None
