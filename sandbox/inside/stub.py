"""The entry of the code that runs inside a kernel: the host calls the functions in `__all__`.

A kernel serves one session. The host calls, in this order:

1. `prepare`, when the kernel starts, before it is handed out;
2. `open_session`, once;
3. `offer`, before the cells that may call these functions; again for other functions;
4. cells, one at a time, and between them `files`, `libraries`, `read`,
   `remove` and `write` (`files`).

Each offered function pauses the code: it asks the host and returns its answer (`calls`). Values leave as
`sandbox.inside.values.plain` has them.

Stops: nothing. Whatever runs in the kernel can read and change all of this; the host therefore
believes no message beyond its shape, and a hostile program can at most forge a call.
"""

# ruff: noqa: SLF001 - IPython has no public way to these
import asyncio
import contextlib
import importlib
import json
import linecache
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.getipython import get_ipython

from sandbox.inside import threads
from sandbox.inside.asyncio_changes import change_asyncio, settled
from sandbox.inside.calls import (
    OFFERED,
    PIECES,
    connect,
    end_piece,
    request,
    start_piece,
    write_call,
)
from sandbox.inside.cells import change_cells
from sandbox.inside.files import files, libraries, own_folder, read, remove, write
from sandbox.inside.tasks import drop_all, interruptible, send_all, start_cell
from sandbox.inside.values import AWAITED, VALUE_MIME, ToolError, plain

__all__ = ["files", "libraries", "offer", "open_session", "prepare", "read", "remove", "write"]

_restart_count: Callable[[], None]


def prepare(most: int, preload: Sequence[str] = (), *, shared: bool = False) -> None:
    """Change this kernel as every session needs it. One piece may print `most` characters.

    Modules in `preload` are imported now, if they are installed, so that programs need not wait for them.
    `shared` says that other kernels may have the same working directory.
    """
    global _restart_count  # noqa: PLW0603 - one kernel, one session
    shell: Any = get_ipython()
    shell.user_ns.pop("open", None)  # IPython's own; the builtin does as Python does
    shell.user_ns.update({"exit": _exit, "quit": _exit, "ToolError": ToolError, AWAITED: settled})
    shell.transform_cell = _unchanged  # `?x` and `!ls` are not Python
    shell._tee = _no_tee
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)
    warnings.formatwarning = _format_warning
    _report_values(shell, most)
    _report_errors(shell)
    _restart_count = _count_output(most)
    change_asyncio()
    if shared:
        own_folder()
    for module in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def open_session() -> None:
    """Give a prepared kernel to one session."""
    shell: Any = get_ipython()
    threads.take_turns()
    shell.kernel._cancel_on_sigint = interruptible
    shell.events.register("pre_run_cell", _start_piece)
    shell.events.register("post_run_cell", _end_piece)
    change_cells(shell)
    get_code_name = shell.compile.get_code_name

    def remember_name(*args: Any, **kwargs: Any) -> str:
        name: str = get_code_name(*args, **kwargs)
        PIECES.clear()
        PIECES.add(name)
        _restart_count()
        return name

    shell.compile.get_code_name = remember_name


def _start_piece(_: Any) -> None:
    start_piece()
    start_cell()


def _end_piece(result: Any) -> None:
    """Finish the threads and send the calls that a piece started. After an interrupt drop them: the host
    expects no more calls."""
    interrupts = KeyboardInterrupt | asyncio.CancelledError
    interrupted = result is None or isinstance(result.error_in_exec, interrupts)
    if interrupted:
        threads.drop_waiting()
        drop_all()
    threads.finish()
    send_all()
    end_piece()


def offer(payload: str) -> None:
    """Offer functions instead of those offered before. `payload` is JSON: names, preamble, marker."""
    options = json.loads(payload)
    shell: Any = get_ipython()
    for name, function in OFFERED.items():
        if function is shell.user_ns.get(name):
            del shell.user_ns[name]
    OFFERED.clear()
    if options["preamble"]:
        preamble = compile(options["preamble"], "<preamble>", "exec")
        exec(preamble, shell.user_ns)  # noqa: S102
    connect(shell.kernel.raw_input, options["marker"])
    OFFERED.update({name: _pausing(name) for name in options["names"]})
    shell.user_ns.update(OFFERED)


def _pausing(name: str) -> Callable[..., Any]:
    def pausing(*args: Any, **kwargs: Any) -> Any:
        call = write_call(name, args, kwargs)
        send_all()  # earlier calls leave first
        return request(call)

    pausing.__name__ = pausing.__qualname__ = name
    return pausing


def _exit(code: object = None) -> None:
    """What `exit` and `quit` do in Python."""
    raise SystemExit(code)


def _unchanged(cell: str) -> str:
    return cell


def _no_tee(channel: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG001
    """Replaces IPython's copy of everything that is printed, for a history that is never read."""
    return contextlib.nullcontext()


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,  # noqa: ARG001
) -> str:
    """A warning in the form of our errors: with a line of the program, and no file names."""
    place = f"line {lineno}: " if "ipykernel_" in filename else ""
    return f"{place}{category.__name__}: {message}\n"


def _count_output(most: int) -> Callable[[], None]:
    """Drop output beyond `most` characters, except one more, which shows the host that output was dropped.

    The host's own count decides; this one protects it from a flood. Returns a function that restarts the
    count.
    """
    remaining = most + 1

    def restart() -> None:
        nonlocal remaining
        remaining = most + 1
        for stream in (sys.stdout, sys.stderr):
            if not hasattr(stream.write, "counted"):
                vars(stream)["write"] = counted(stream.write)

    def counted(write: Callable[[str], int]) -> Callable[[str], int]:
        def write_some(text: str) -> int:
            nonlocal remaining
            if remaining > 0:
                write(text[:remaining])
                remaining -= len(text)
            return len(text)

        vars(write_some)["counted"] = True
        return write_some

    return restart


def _report_values(shell: Any, most: int) -> None:
    """Send the last expression's repr on one line, and its value as JSON if JSON can hold it."""
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
    """Send errors as frames: [in the current piece?, line, function, source line]."""

    def show(exc_tuple: Any = None, *_: Any, **__: Any) -> None:
        kind, error, trace = shell._get_exc_info(exc_tuple)
        frames: list[tuple[bool, int, str, str]] = []
        if isinstance(error, SyntaxError) and error.lineno and error.filename in PIECES:
            frames.append((True, error.lineno, "<module>", (error.text or "").strip()))
        while trace is not None:
            code = trace.tb_frame.f_code
            if "ipykernel_" in code.co_filename:
                text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
                current = code.co_filename in PIECES
                frames.append((current, trace.tb_lineno, code.co_name, text[:200]))
            trace = trace.tb_next
        del frames[4:-4]
        if isinstance(error, SyntaxError):
            error.filename = error.lineno = None  # or str() would name a file of ours
        stb = [json.dumps(frames)]
        shell._last_traceback = stb
        shell._showtraceback(kind, error, stb)

    shell.showtraceback = show
    shell.showsyntaxerror = lambda *_, **__: show()
