"""The part of the engine that runs *inside* a kernel. The host sends this file there as text.

Each pausing name is a function here that asks the host over the stdin channel, Jupyter's own way
to wait for someone: an `input_request` whose prompt is the session's marker and a JSON payload, an
`input_reply` whose value is JSON. Values leave as `sandbox.inside.values.plain` has them.

Stops: nothing. Whatever runs in the kernel can read and change all of this; the host therefore
believes no message beyond its shape, and a hostile program can at most forge a call.
"""

# ruff: noqa: SLF001 - IPython and asyncio have no public way to these
import asyncio
import contextlib
import importlib
import json
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.getipython import get_ipython

from sandbox.inside.ahead import look_ahead
from sandbox.inside.clock import freeze
from sandbox.inside.files import files, libraries, own_folder, read, remove, write
from sandbox.inside.groups import OFFERED, REPLY, written
from sandbox.inside.inserted import AHEAD
from sandbox.inside.tasks import make_waiting
from sandbox.inside.threads import REASON, finish, one_after_the_other, run_waiting, settled
from sandbox.inside.values import AWAITED, REFUSED, VALUE_MIME, plain

__all__ = ["files", "libraries", "offer", "open_session", "prepare", "read", "remove", "write"]

_PIECES: set[str] = set()
"""Code file names of the program's own pieces, to tell its frames from those of libraries."""


_restart_count: Callable[[], None]


def prepare(most: int, preload: Sequence[str] = (), *, shared: bool = False) -> None:
    """Change this kernel as every session needs it; `most` characters may one piece print.

    Modules in `preload` that can be imported are, so that programs need not wait for them. `shared`
    if other kernels may have the same working directory.
    """
    global _restart_count  # noqa: PLW0603 - one kernel, one session
    shell: Any = get_ipython()
    shell.user_ns.pop("open", None)  # IPython's own; the builtin does as Python does
    shell.user_ns.update({"exit": _leave, "quit": _leave, AWAITED: settled})
    shell.transform_cell = _as_it_is  # `?x` and `!ls` are not Python
    shell._tee = _no_tee
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)
    warnings.formatwarning = _warning
    _report_values(shell, most)
    _report_errors(shell)
    _restart_count = _count_output(most)
    asyncio.run = _run_nested
    if shared:
        own_folder()
    for module in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def open_session(payload: str) -> None:
    """Give a prepared kernel to one session. `payload` is JSON: seed, ordered.

    `ordered` is for programs that are run again: their threads take turns. The others are cells, whose
    calls are told to the host before their turn where they can be.
    """
    asked = json.loads(payload)
    shell: Any = get_ipython()
    if asked["seed"]:
        freeze(asked["seed"], run_waiting)
    if asked["ordered"]:
        one_after_the_other(_PIECES.__contains__)
        shell.events.register("post_run_cell", _end_threads)
    else:
        look_ahead(shell)
    compiler_name = shell.compile.get_code_name

    def remember(*args: Any, **kwargs: Any) -> str:
        name: str = compiler_name(*args, **kwargs)
        _PIECES.clear()
        _PIECES.add(name)
        _restart_count()
        return name

    shell.compile.get_code_name = remember


def offer(payload: str) -> None:
    """Define what pauses, and nothing else that did. `payload` is JSON: names, preamble, marker."""
    asked = json.loads(payload)
    shell: Any = get_ipython()
    for name, pausing in OFFERED.items():
        if pausing is shell.user_ns.get(name):
            del shell.user_ns[name]
    OFFERED.clear()
    if asked["preamble"]:
        preamble = compile(asked["preamble"], "<preamble>", "exec")
        exec(preamble, shell.user_ns)  # noqa: S102  # nosec B102
    for name in asked["names"]:
        OFFERED[name] = _pausing(name, asked["marker"], shell.kernel.raw_input)
    shell.user_ns.update(OFFERED)


def _end_threads(_: Any) -> None:
    finish()


def _leave(code: object = None) -> None:
    """What `exit` and `quit` are in Python."""
    raise SystemExit(code)


def _as_it_is(cell: str) -> str:
    return cell


def _no_tee(channel: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG001
    """IPython keeps a copy of all that is printed, for a history that nobody reads."""
    return contextlib.nullcontext()


def _warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,  # noqa: ARG001
) -> str:
    """A warning as errors are told: with a line of the program, and no file names."""
    place = f"line {lineno}: " if "ipykernel_" in filename else ""
    return f"{place}{category.__name__}: {message}\n"


def _pausing(name: str, marker: str, ask: Callable[[str], str]) -> Callable[..., Any]:
    main, process = threading.get_ident(), os.getpid()

    def pausing(*args: Any, **kwargs: Any) -> Any:
        call = written(name, args, kwargs, _calling_line())
        return reply_to(call)

    def reply_to(call: str) -> Any:
        if threading.get_ident() != main or os.getpid() != process:
            raise RuntimeError(
                f"{name}() cannot be called from another thread or process: {REASON}"
            )
        make_waiting()  # what was asked for before
        reply = ask(marker + call)
        if reply.startswith(REFUSED):
            raise TypeError(reply.removeprefix(REFUSED))
        return json.loads(reply)

    pausing.__name__ = pausing.__qualname__ = name
    vars(pausing)[REPLY] = reply_to
    return pausing


def _calling_line() -> int | None:
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename in _PIECES:
            line: int = frame.f_lineno
            return line
        frame = frame.f_back
    return None


def _count_output(most: int) -> Callable[[], None]:
    """Drop what is printed beyond `most`, but for one character that tells the host of it.

    The host counts too and is the one to be relied on; this spares it the flood.
    """
    left = most + 1

    def restart() -> None:
        nonlocal left
        left = most + 1
        for stream in (sys.stdout, sys.stderr):
            if not hasattr(stream.write, "counted"):
                vars(stream)["write"] = counted(stream.write)

    def counted(write: Callable[[str], int]) -> Callable[[str], int]:
        def write_some(text: str) -> int:
            nonlocal left
            if left > 0:
                write(text[:left])
                left -= len(text)
            return len(text)

        vars(write_some)["counted"] = True
        return write_some

    return restart


def _report_values(shell: Any, most: int) -> None:
    """Send the last expression's repr on one line, and its value as JSON where it has one."""
    format_rich = shell.display_formatter.format

    def format_value(value: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
        data, metadata = format_rich(value, *args, **kwargs)
        data["text/plain"] = repr(value)[: most + 1]
        with contextlib.suppress(Exception):  # no shape in JSON, or a property of its own raised
            data[VALUE_MIME] = json.dumps(plain(value), allow_nan=False)
            if len(data[VALUE_MIME]) > 8 * most:
                del data[VALUE_MIME]
        return data, metadata

    shell.display_formatter.format = format_value


def _report_errors(shell: Any) -> None:
    """Send errors as [file is a piece of the program?, line, function, source line] frames."""

    def show(exc_tuple: Any = None, *_: Any, **__: Any) -> None:
        kind, error, trace = shell._get_exc_info(exc_tuple)
        frames: list[tuple[bool, int, str, str]] = []
        if isinstance(error, SyntaxError) and error.lineno and error.filename in _PIECES:
            frames.append((True, error.lineno, "<module>", (error.text or "").strip()))
        while trace is not None:
            code = trace.tb_frame.f_code
            if "ipykernel_" in code.co_filename and AHEAD not in code.co_varnames[:1]:
                text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
                ours = code.co_filename in _PIECES
                frames.append((ours, trace.tb_lineno, code.co_name, text[:200]))
            trace = trace.tb_next
        del frames[4:-4]
        if isinstance(error, SyntaxError):
            error.filename = error.lineno = None  # or str() would name a file of ours
        stb = [json.dumps(frames)]
        shell._last_traceback = stb
        shell._showtraceback(kind, error, stb)

    shell.showtraceback = show
    shell.showsyntaxerror = lambda *_, **__: show()


def _run_nested(main: Any, **kwargs: Any) -> Any:
    """asyncio.run for code that already runs in the kernel's loop: models write it by habit."""
    outer = asyncio.events._get_running_loop()
    asyncio.events._set_running_loop(None)
    try:
        with asyncio.Runner(**kwargs) as runner:
            return runner.run(main)
    finally:
        asyncio.events._set_running_loop(outer)
        asyncio.set_event_loop(outer)
