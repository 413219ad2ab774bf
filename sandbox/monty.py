"""Run programs in pydantic-monty: a Rust Python subset in worker processes, about 0.3 ms a program.

Stops: files, network, environment, processes and imports of anything but Monty's own modules (the
interpreter has no code for them; what asks for them is refused here), running time, memory,
recursion, printed bytes and calls per session, a crashed worker (the session alone is lost).

Does not stop: a bug in the Monty interpreter, whose worker is an ordinary process of this user;
swallowing: where Monty cannot do what CPython can and the program catches the resulting error
(`try: "a".translate(t) except Exception: ...`), the program runs on and no other engine is asked.
"""

import ast
import datetime as dt
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Any, NoReturn, Self

import pydantic_monty as pm

from sandbox.awaits import settle_awaits
from sandbox.engine import Finished, Limits, Paused, Session, Step
from sandbox.errors import (
    Frame,
    ProgramFailed,
    SandboxBusy,
    SandboxDied,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
    Unsupported,
    render_traceback,
)
from sandbox.lazy import write_out
from sandbox.looks import without_looks
from sandbox.monty_gaps import BUILTINS, OPAQUE, holds_opaque, is_gap
from sandbox.monty_language import check
from sandbox.parsing import line_map, misplaced, parse
from sandbox.shadows import rename_shadows
from sandbox.values import JSON, RECORDS, NotPlain, plain

RECORDS[pm.MontyClassProxy] = lambda proxy: proxy.attributes

_NOT_CATCHABLE = re.compile(r"(?:feed|turn) time limit exceeded|memory limit exceeded: ")
_GUARDS = re.compile(r"\b(?:try|suppress)\b")

_SHIMS = """
_round = round
def round(number, ndigits=None):
    if type(number) is float and type(ndigits) is int and 0 < ndigits < 324:
        return float(format(number, f".{ndigits}f"))
    return _round(number, ndigits)
"""
"""Builtins as CPython has them: Monty rounds 2.675 to 2.68."""


class MontyEngine:
    """A pool of Monty workers, started at the first session and closed by `close`.

    `workers` bounds the sessions open at once (about 20 MB each when idle); a session that finds
    none free within `patience` seconds raises SandboxBusy.
    """

    name = "monty"

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        warm: int = 1,
        workers: int = 32,
        patience: float = 5.0,
    ) -> None:
        self.limits = limits or Limits()
        self._pool: pm.Monty | None = None
        self._pool_lock = threading.Lock()
        self._settings: dict[str, Any] = {
            "min_processes": warm,
            "max_processes": workers,
            "checkout_timeout": patience,
            "max_checkouts_per_worker": 1000,
        }
        self._closed = False

    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> AbstractContextManager[Session]:
        return self._session(names, preamble, seed)

    @contextmanager
    def _session(self, names: frozenset[str], preamble: str, seed: int) -> Iterator[Session]:
        checkout = self._started().checkout(
            limits=_resource_limits(self.limits),
            os_policy=_os_policy(seed),
            assert_message_annotations=False,
        )
        try:
            checkout.__enter__()
        except TimeoutError as error:
            workers = self._settings["max_processes"]
            raise SandboxBusy(
                f"all {workers} monty workers are in use", "try again, or allow more workers"
            ) from error
        except pm.MontyError as error:
            raise SandboxDied(str(error)) from error
        try:
            session = _MontySession(checkout, names, self.limits)
            session.run_preamble(_SHIMS + preamble)
            yield session
        finally:
            # Leaving a suspended session makes the pool abort what still runs in it.
            checkout.__exit__(None, None, None)

    def _started(self) -> pm.Monty:
        with self._pool_lock:
            if self._closed:
                raise SandboxUnavailable("the monty engine is closed", "create a new one")
            if self._pool is None:
                try:
                    self._pool = pm.Monty(**self._settings).__enter__()
                except (OSError, pm.MontyError) as error:
                    raise SandboxUnavailable(
                        f"monty's workers do not start: {error}",
                        "install the pydantic-monty wheel of this platform",
                    ) from error
            return self._pool

    def close(self) -> None:
        with self._pool_lock:
            pool, self._pool, self._closed = self._pool, None, True
        if pool is not None:
            pool.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _resource_limits(limits: Limits) -> pm.ResourceLimits:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_memory": limits.memory,
        "max_recursion_depth": 1000,
        # Name lookups and imports suspend too; `pauses` itself is counted in the session.
        "max_suspensions": 1000 + 4 * limits.pauses,
    }


def _os_policy(seed: int) -> pm.OSPolicy:
    policy: pm.OSPolicy = {"sleep": "zero"}
    if seed:
        instant = dt.datetime.fromtimestamp(seed / 1_000_000, dt.UTC)
        policy |= {"datetime": instant, "timezone": "utc", "random_start": {"seed": seed}}
    return policy


@lru_cache(maxsize=64)  # a program is run again on each of its turns
def _for_monty(source: str, names: frozenset[str]) -> tuple[str, dict[int, int]]:
    """The source that means to Monty what `source` means to CPython, and whence its lines came.

    Raises Unsupported, and SyntaxError for what only CPython's compiler finds.
    """
    source = settle_awaits(source, names)
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source, {}  # Monty finds it too
    for line, words in misplaced(tree):
        raise SyntaxError(words, ("<program>", line, 1, source.splitlines()[line - 1]))
    lines: dict[int, int] = {}
    if write_out(tree):
        source = ast.unparse(ast.fix_missing_locations(tree))
        tree, before = parse(source), tree
        lines = line_map(before, tree)
    check(without_looks(parse(source)), names)
    return rename_shadows(source), lines


class _MontySession:
    """One worker's REPL. `_suspended` is the call that waits for `resume`, if any."""

    def __init__(self, checkout: pm.MontySession, names: frozenset[str], limits: Limits) -> None:
        self._checkout = checkout
        self._worker = checkout.worker_pid  # not told while it runs
        self._names = names
        self._limits = limits
        self._pieces: list[str] = []  # by Monty's running number, as in <python-input-3>
        self._lines: dict[int, int] = {}
        """Line of the piece that runs -> line of the program, where the piece was rewritten."""
        self._first = 0  # pieces before this one are the preamble
        self._printed = pm.CollectString()
        self._suspended: pm.FunctionSnapshot | None = None
        self._pauses = 0
        self._guarded = False

    def run_preamble(self, source: str) -> None:
        step = self._feed(source)
        if not isinstance(step, Finished):
            raise Unsupported("the preamble calls a pausing name")
        self._first = len(self._pieces)

    def start(self, source: str) -> Step:
        if self._suspended is not None:
            raise RuntimeError("the program is paused: resume it before starting another piece")
        return self._feed(self._prepared(source))

    def _prepared(self, source: str) -> str:
        try:
            source, self._lines = _for_monty(source, self._names)
        except SyntaxError as error:
            # What CPython's compiler says of a whole piece before it runs any of it.
            line, text = error.lineno or 1, (error.text or "").strip()
            traceback = render_traceback([Frame(line, "<module>", text)], "SyntaxError", error.msg)
            raise ProgramFailed("SyntaxError", error.msg, line, traceback) from error
        return source

    def _feed(self, source: str) -> Step:
        self._pieces.append(source)
        self._guarded = self._guarded or bool(_GUARDS.search(source))
        self._printed = pm.CollectString(max_bytes=self._limits.output)
        with self._errors():
            return self._advance(self._checkout.feed_start(source, print_callback=self._printed))

    def resume(self, value: JSON) -> Step:
        if self._suspended is None:
            raise RuntimeError("the program is not paused")
        call, self._suspended = self._suspended, None
        with self._errors():
            return self._advance(call.resume({"return_value": value}))

    def kill(self) -> None:
        if self._worker is not None:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)

    def _advance(self, snapshot: pm.SyncSnapshot) -> Step:
        """Answer all that needs no host until the program pauses or finishes."""
        while True:
            match snapshot:
                case pm.MontyComplete():
                    return self._finished(snapshot.output)
                case pm.NameLookupSnapshot():
                    snapshot = self._look_up(snapshot)
                case pm.FunctionSnapshot() if snapshot.is_os_function:
                    snapshot = self._refuse(snapshot)
                case pm.FunctionSnapshot() if snapshot.function_name in self._names:
                    try:
                        paused = self._paused(snapshot)
                    except NotPlain as error:
                        snapshot = snapshot.resume({"exception": TypeError(str(error))})
                        continue
                    self._suspended = snapshot
                    return paused
                case pm.FunctionSnapshot():
                    snapshot = self._unknown_call(snapshot)
                case _:
                    raise Unsupported("monty waits for a future that nobody owes it")

    def _look_up(self, snapshot: pm.NameLookupSnapshot) -> pm.SyncSnapshot:
        name = snapshot.variable_name
        if name in self._names and snapshot.object_id is None:
            if self._guarded:
                # Monty raises where a pausing function is called back by a builtin (`map`, `key=`);
                # a program with a try statement could mistake that for the tool's own failure.
                raise Unsupported(
                    f"{name} is used as a value in a program that catches errors",
                    self._line(snapshot.position),
                )
            return snapshot.resume(value=_callable_named(name))
        if name in BUILTINS:
            raise Unsupported(f"monty has no {name}", self._line(snapshot.position))
        return snapshot.resume()

    def _unknown_call(self, snapshot: pm.FunctionSnapshot) -> pm.SyncSnapshot:
        # Monty reports a call of any undefined name as a call of the host's.
        name = snapshot.function_name
        if name in BUILTINS:
            raise Unsupported(f"monty has no {name}", self._line(snapshot.position))
        return snapshot.resume({"exception": NameError(f"name '{name}' is not defined")})

    def _refuse(self, snapshot: pm.FunctionSnapshot) -> pm.SyncSnapshot:
        # Monty reports open, os.environ and import as function calls too; they are not tools.
        name = snapshot.function_name
        if name == "import":
            raise Unsupported(
                f"monty has no module {snapshot.args[0]}", self._line(snapshot.position)
            )
        refusal = f"{name} is not permitted here; only the given functions reach the outside"
        return snapshot.resume({"exception": PermissionError(refusal)})

    def _paused(self, snapshot: pm.FunctionSnapshot) -> Paused:
        name, line = snapshot.function_name, self._line(snapshot.position)
        self._pauses += 1
        if self._pauses > self._limits.pauses:
            raise SandboxLimit("calls")
        values = [*snapshot.args, *snapshot.kwargs.values()]
        if any(holds_opaque(value) for value in values):
            raise Unsupported(f"monty loses the type of an argument of {name}", line)
        return Paused(
            name,
            tuple(
                plain(value, f"{name}() argument {i}")
                for i, value in enumerate(snapshot.args, start=1)
            ),
            {
                key: plain(value, f"{name}() argument {key}")
                for key, value in snapshot.kwargs.items()
            },
            line,
        )

    def _finished(self, output: Any) -> Finished:
        stdout = self._printed.output
        if output is None:
            return Finished(stdout)
        if isinstance(output, str) and OPAQUE.match(output):
            return Finished(stdout, None, output)
        try:
            text = _shown(output)
        except ValueError as error:  # CPython writes no number of so many digits
            raise ProgramFailed(
                "ValueError", str(error), None, f"ValueError: {error}", stdout
            ) from error
        if len(text) > self._limits.output:
            raise SandboxLimit("output")
        try:
            return Finished(stdout, plain(output), text)
        except NotPlain:
            return Finished(stdout, None, text)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Sort Monty's errors by whose fault they are."""
        try:
            yield
        except pm.MontySyntaxError as error:
            self._syntax(error)
        except pm.MontyRuntimeError as error:
            self._runtime(error)
        except pm.MontyCrashedError as error:
            if error.timed_out:
                raise SandboxTimeout(self._limits.seconds) from error
            raise SandboxDied(str(error)) from error
        except (pm.MontyConversionError, pm.MontyDisconnectError) as error:
            raise SandboxDied(str(error)) from error

    def _syntax(self, error: pm.MontySyntaxError) -> NoReturn:
        """Valid Python that Monty cannot parse is its own lack; else CPython's words are better."""
        trace = error.traceback()
        try:
            parse(self._pieces[-1])
        except SyntaxError as wrong:
            line, text = wrong.lineno or 1, (wrong.text or "").strip()
            frames = [Frame(line, "<module>", text)]
            kind, message = type(wrong).__name__, wrong.msg
            traceback = render_traceback(frames, kind, message)
            raise ProgramFailed(kind, message, line, traceback, self._printed.output) from error
        except (ValueError, RecursionError, MemoryError) as wrong:
            self._fail(error, type(wrong).__name__, str(wrong), trace)
        raise Unsupported(str(error), trace[0].line if trace else None) from error

    def _runtime(self, error: pm.MontyRuntimeError) -> NoReturn:
        inner, trace = error.exception(), error.traceback()
        kind, message = type(inner).__name__, str(inner)
        if _NOT_CATCHABLE.match(message):
            if isinstance(inner, TimeoutError):
                raise SandboxTimeout(self._limits.seconds) from error
            if isinstance(inner, MemoryError):
                # The cap on printed text reports itself as memory, outside any line of the program.
                over_output = message.endswith(f"> {self._limits.output} bytes")
                raise SandboxLimit("output" if over_output else "memory") from error
        if message.startswith("suspension limit"):
            raise SandboxLimit("calls") from error
        if is_gap(inner, message):
            raise Unsupported(message, self._line_of(trace)) from error
        self._fail(error, kind, message, trace)

    def _fail(
        self, error: Exception, kind: str, message: str, trace: Sequence[pm.Frame]
    ) -> NoReturn:
        current = len(self._pieces) - 1
        frames = [
            Frame(
                self._lines.get(frame.line, frame.line)
                if _piece_number(frame.filename) == current
                else frame.line,
                frame.function_name or "<module>",
                frame.source_line or "",
            )
            for frame in trace
            if _piece_number(frame.filename) >= self._first
        ]
        raise ProgramFailed(
            kind,
            message,
            self._line_of(trace),
            render_traceback(frames, kind, message),
            self._printed.output,
        ) from error

    def _line_of(self, trace: Sequence[pm.Frame]) -> int | None:
        """The innermost line within the piece that runs."""
        current = len(self._pieces) - 1
        lines = [frame.line for frame in trace if _piece_number(frame.filename) == current]
        return self._lines.get(lines[-1], lines[-1]) if lines else None

    def _line(self, position: pm.SourceRange) -> int | None:
        if _piece_number(position.filename) != len(self._pieces) - 1:
            return None
        line = self._pieces[-1].encode()[: position.start].count(b"\n") + 1
        return self._lines.get(line, line)


def _piece_number(filename: str) -> int:
    """3 for <python-input-3>; -1 for code in an eval() or exec() string."""
    digits = filename.removeprefix("<python-input-").removesuffix(">")
    return int(digits) if digits.isdigit() else -1


def _callable_named(name: str) -> Any:
    """A function by which Monty knows a pausing name that is used as a value. Never called."""

    def pausing() -> None: ...

    pausing.__name__ = name
    return pausing


def _shown(value: Any) -> str:
    """repr(value), with objects of the program's own classes as their constructor call."""
    if isinstance(value, pm.MontyClassProxy):
        fields = ", ".join(f"{name}={_shown(item)}" for name, item in value.attributes.items())
        return f"{value.name}({fields})"
    if type(value) is list:
        return f"[{', '.join(map(_shown, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{_shown(k)}: {_shown(v)}' for k, v in value.items())}}}"
    return repr(value)
