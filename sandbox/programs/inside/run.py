"""One run of a program in a child: execute statements, answer calls from the record, ask for new ones.

The messages are JSON objects (`channel`). The host sends first

    {"recorded": [{"key", "text", "failure", "as_text"}, ...], "tools": [name, ...], "preamble": source,
     "seed": n}

then, in turn with the child's answers,

    {"statements": [[source, first line], ...]}   -> ... "ready" when they are executed
    the answer to a call: its record

and the child sends, each with the `replayed` calls since its last message ([line, batch] of each),

    {"call": name, "args", "kwargs", "texts", "key", "batch", "line", "unlooked", "passed", "skipped"}
    {"ready": true, "output", "value", "unlooked"}
    {"end": "waits" | "finished" | "raised" | "limit", "output", "error", "message", "line", "unlooked"}

A run is a replay: a recorded call is answered here if the program passes the same as before (`key`, a
digest). Its ``text`` is null until its result has arrived: then the program gets an `Unknown`, and the run
ends where the program looks at it. Order, binding, limits and the decision about failures are the host's;
the child tells facts: the batch, the failures that were not looked at, which of them an argument carries
(`passed`), whether printing skipped a look. A child that lies can make a valid call, never an invalid one.

A failed call raises ToolError where a handler would catch it (`places`). So a call under such a handler
waits for its result: in a batch at the end of the batch, in a task where it is awaited, elsewhere
immediately.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import sys
import traceback
import types
from collections import Counter
from collections.abc import Callable, Hashable
from types import CodeType, FrameType
from typing import Any, NoReturn

from sandbox.inside.values import plain
from sandbox.programs.inside import asking, channel, clock, loop
from sandbox.programs.inside.c_code import is_caused_by_unknown
from sandbox.programs.inside.digests import digest
from sandbox.programs.inside.notation import result, texts_in
from sandbox.programs.inside.places import FILE
from sandbox.programs.inside.results import (
    WATCH,
    ToolError,
    arrived,
    arrived_deep,
    failed_in,
    failure,
    is_failed,
    is_unknown,
    must_have_succeeded,
    passed_failures,
    plain_text,
    seen,
    unknown,
)
from sandbox.programs.inside.rewrite import Compiler, awaits

_MAX_MESSAGE = 2_000
"""Characters of an exception's message."""
_PART = 50_000
"""Characters of the beginning of the output, of its end, and of the last expression's value."""
_MAX_PRINTED = 16 << 20
"""Characters that a program may print: they are counted, and only the two parts are stored."""
_CONVERSIONS: dict[int, Callable[[Any], Any]] = {
    -1: lambda value: value,
    115: str,
    114: repr,
    97: ascii,
}
"""Of an f-string: ``!s``, ``!r``, ``!a``."""


class Looked(BaseException):
    """The program looked at an unknown result where only output is lost."""


class Returned(BaseException):
    """``return`` outside functions."""


class Output(io.TextIOBase):
    """Stores the first and the last `_PART` characters of what is written."""

    def __init__(self, on_flood: Callable[[], NoReturn]) -> None:
        super().__init__()
        self._on_flood = on_flood
        self._written = 0
        self._head, self._tail = io.StringIO(), io.StringIO()

    def write(self, text: str, /) -> int:
        text = str(text)
        room = max(0, _PART - self._written)
        self._written += len(text)
        if self._written > _MAX_PRINTED:
            self._on_flood()
        self._head.write(text[:room])
        self._tail.write(text[room:][-_PART:])
        if self._tail.tell() > 2 * _PART:
            end = self._tail.getvalue()[-_PART:]
            self._tail = io.StringIO()
            self._tail.write(end)
        return len(text)

    def text(self) -> str:
        head, tail = self._head.getvalue(), self._tail.getvalue()[-_PART:]
        cut = self._written - len(head) - len(tail)
        return f"{head}\n... [{cut:,} characters omitted] ...\n{tail}" if cut else head + tail


class Run:
    """The run of this process."""

    def __init__(self, opening: dict[str, Any]) -> None:
        self._recorded: list[dict[str, Any]] = opening["recorded"]
        self._position = 0
        """How many calls have been made."""
        self._replayed: list[Any] = []
        self._pending = 0
        """How many of the calls have no result."""
        self._quiet = 0
        """How many expressions are evaluated whose looks only lose output."""
        self._skipped = False
        self._compiler = Compiler()
        self._places = self._compiler.places
        self._evaluations: Counter[int] = Counter()
        self._batches: dict[Hashable, int] = {}
        self._members: dict[int, list[tuple[bool, Any]]] = {}
        """The results of the open evaluation of each display: (a handler would catch a failure, value)."""
        self._runner = asyncio.Runner()
        self._value: Any = None
        self._output = Output(lambda: self._end("limit", message="output"))
        WATCH.look = self._look
        WATCH.is_handled = lambda frame: bool(self._places.handler_of(frame, ToolError))
        clock.set_seed(opening["seed"])
        module = types.ModuleType("__main__")
        self._names = vars(module)
        self._names.update(asking.NAMES)
        self._names.update(
            ToolError=ToolError,
            print=self._print,
            exit=sys.exit,
            quit=sys.exit,
            _Returned_=Returned,
            _attribute_=asking.attribute,
            _arrived_=arrived,
            _arrived_deep_=arrived_deep,
            _awaitable_=loop.awaitable,
            _begin_=self._begin,
            _caught_=self.caught,
            _item_=asking.item,
            _percent_=asking.percent,
            _quiet_=self._evaluate_quietly,
            _text_=self._text,
            _together_=self._together,
        )
        self._names.update({name: self._tool(name) for name in opening["tools"]})
        sys.modules["__main__"] = module
        sys.stdout = sys.stderr = self._output
        exec(opening["preamble"], self._names)  # noqa: S102 - what a child is for

    # Calls

    def _tool(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs, sys._getframe(1))  # noqa: SLF001

        call.__name__ = call.__qualname__ = name
        return call

    def _call(self, name: str, args: Any, kwargs: Any, frame: FrameType) -> Any:
        site = self._places.batch_of(frame)
        handler = self._places.handler_of(frame, ToolError)
        batch, line = self._batch(site, name, frame), _line(frame)
        passed: Any = [
            [plain(value, f"{name}() argument {i}") for i, value in enumerate(args, 1)],
            {key: plain(value, f"{name}() argument {key}") for key, value in kwargs.items()},
        ]
        texts = list(texts_in([args, kwargs]))
        key = digest(name, passed[0], passed[1], texts)
        position = self._position
        self._position += 1
        if position < len(self._recorded) and self._recorded[position]["key"] == key:
            self._replayed.append([line, batch])
        else:
            call = {"call": name, "args": passed[0], "kwargs": passed[1], "texts": texts}
            facts = {"key": key, "batch": batch, "line": line, "skipped": self._skipped}
            unlooked = self._unlooked()
            passed_on = {*passed_failures([args, kwargs])} if unlooked else set()
            self._send(**call, **facts, unlooked=unlooked, passed=sorted(passed_on & {*unlooked}))
            self._recorded[position : position + 1] = [channel.receive()]
        value = self._result(position, is_handled=bool(handler))
        if loop.in_task() and self._places.is_passed_on(frame, handler):
            return value  # it raises where it is awaited
        if site and not loop.in_task():
            self._members[site].append((bool(handler), value))
        elif handler:
            self._must_have_succeeded([(True, value)])
        return value

    def _batch(self, site: int, name: str, frame: FrameType) -> int:
        """The number of the simultaneous calls that this one belongs to; 0 for none."""
        if site:
            key: Hashable = (site, self._evaluations[site])
        elif loop.TURNS:
            turn = loop.TURNS[-1]
            place = (frame.f_code, frame.f_lasti) if frame.f_code.co_filename == FILE else name
            turn.call_counts[place] += 1
            key = (turn.group, place, turn.call_counts[place])
        else:
            return 0
        return self._batches.setdefault(key, len(self._batches) + 1)

    def _result(self, position: int, *, is_handled: bool) -> Any:
        record = self._recorded[position]
        text, failed = record["text"], record["failure"]
        if text is None:
            self._pending += 1
            if self._pending == 1:
                self._watch_c_code()
            return unknown(must_arrive=is_handled)
        value = result(text, as_text=record["as_text"])
        if not failed:
            return value
        raises = is_handled and failed == "failed"
        return failure(value if isinstance(value, dict) else text, {position}, raises=raises)

    def _must_have_succeeded(self, members: list[tuple[bool, Any]]) -> None:
        """End the run if one of these results under a handler is unknown; raise the first failure."""
        handled = [value for is_handled, value in members if is_handled]
        must_have_succeeded(
            value for value in handled if is_unknown(value) or (is_failed(value) and value.raises)
        )

    def _unlooked(self) -> list[int]:
        return [
            position
            for position, record in enumerate(self._recorded[: self._position])
            if record["failure"] and position not in WATCH.looked
        ]

    # What the rewritten program calls

    def _begin(self, site: int) -> int:
        self._evaluations[site] += 1
        self._members[site] = []
        return site

    def _together(self, site: int, display: Any) -> Any:
        self._must_have_succeeded(self._members.pop(site, []))
        return display

    def _look(self) -> NoReturn:
        if self._quiet:
            raise Looked
        self._end("waits")

    def _evaluate_quietly(self, expression: Callable[[], Any]) -> Any:
        """The value of an expression that is only printed; unknown if it looks at an unknown result."""
        self._quiet += 1
        try:
            return expression()
        except (Looked, Exception) as error:
            if not self._pending and not isinstance(error, Looked):
                raise
        finally:
            self._quiet -= 1
        self._skipped = True
        return unknown()

    def _text(self, *parts: Any) -> Any:
        """An f-string. Unknown with an unknown result in it; a failure with a failure in it."""
        values = [part[0] if type(part) is tuple else part for part in parts]
        if any(map(is_unknown, values)):
            return unknown()
        texts = [_formatted(part) for part in parts]
        text = "".join(map(plain_text, texts))
        failed = failed_in(texts)
        return failure(text, failed) if failed else text

    def _print(self, *values: Any, **options: Any) -> None:
        if self._pending and (options.get("file") or sys.stdout) is self._output:
            skipped, arguments = self._skipped, values
            values = self._evaluate_quietly(lambda: tuple(map(str, arguments)))
            if is_unknown(values):
                self._skipped = skipped or not all(map(_has_text, arguments))
                return
        shown = (plain_text(str(value)) if is_failed(value) else value for value in values)
        builtins.print(*shown, **options)  # noqa: T201 - the program does

    def caught(self, error: BaseException | None = None) -> None:
        """A handler has caught an exception: the program has looked at the failures that the expression
        which raised it names."""
        error = error or sys.exception()
        if error is None:
            return
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                self.caught(one)
        seen(error)
        trace = error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_filename == FILE:
                for value in self._places.values_at(frame, trace.tb_lasti):
                    if is_failed(value):
                        seen(value)
            trace = trace.tb_next

    # What C code raises about an unknown result

    def _watch_c_code(self) -> None:
        """From the first unknown result on, end the run where C code raises because of one: before any
        handler of the program sees the exception."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        sys.settrace(self._trace)
        while frame is not None:
            frame.f_trace, frame.f_trace_lines = self._trace, False
            frame = frame.f_back

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        if event == "exception" and not self._quiet and is_caused_by_unknown(frame, argument):
            self._look()
        return self._trace

    # Statements

    def execute(self, source: str, first_line: int) -> None:
        """Execute one statement. Ends the run with an exception that the program does not catch."""
        self._value = None
        try:
            sys.settrace(None)  # not through the rewrite
            statements, value = self._compiler.compile(source, first_line)
            if self._pending:
                self._watch_c_code()
            if statements is not None:
                self._evaluate(statements)
            if value is not None:
                self._value = self._evaluate(value)
        except Returned as returned:
            if returned.args[0] is not None:
                self._print(returned.args[0])
            self._end("finished")
        except SystemExit as error:
            if error.code not in (None, 0):
                self._output.write(f"{error.code}\n")
            self._end("finished")
        except MemoryError:
            self._end("limit", message="memory")
        except BaseException as error:  # noqa: BLE001 - it is the program's
            sys.settrace(None)
            self._end("raised", error=error)

    def _evaluate(self, code: CodeType) -> Any:
        with loop.running(self._runner.get_loop()):
            value = eval(code, self._names)  # noqa: S307 - what a child is for
        return self._runner.run(value) if awaits(code) else value

    def ready(self) -> None:
        """Report that the statements are executed."""
        self._send(ready=True, unlooked=self._unlooked(), **self._shown())

    # Messages

    def _shown(self) -> dict[str, Any]:
        """The output, and the repr of the last expression's value, unless it may depend on a pending call."""
        value, self._value = None if self._pending else self._value, None
        self._quiet += 1
        try:
            text = None if value is None else plain_text(repr(value))
        except (Looked, Exception):  # noqa: BLE001 - its repr is the program's
            text = object.__repr__(value)
        finally:
            self._quiet -= 1
        shown = None if text is None else _sendable(text[:_PART])
        return {"output": _sendable(self._output.text()), "value": shown}

    def _end(
        self, status: str, *, error: BaseException | None = None, message: str = ""
    ) -> NoReturn:
        fields: dict[str, Any] = {"error": "", "message": message, "line": None}
        if error is not None:
            fields = _described(error)
        self._send(end=status, unlooked=self._unlooked(), **self._shown(), **fields)
        os._exit(0)

    def _send(self, **message: Any) -> None:
        replayed, self._replayed = self._replayed, []
        channel.send({"replayed": replayed, **message})


def _has_text(value: Any, depth: int = 8) -> bool:
    """Return True if the text of a value cannot raise, whatever an unknown result in it will be."""
    kind = getattr(type(value), "like", type(value))
    if is_unknown(value) or kind in (str, int, float, bool, types.NoneType):
        return True
    parts = dict.values(value) if kind is dict else value if kind in (list, tuple) else None
    return parts is not None and depth > 0 and all(_has_text(part, depth - 1) for part in parts)


def _formatted(part: Any) -> Any:
    if type(part) is not tuple:
        return part
    value, conversion, spec = part
    return format(_CONVERSIONS[conversion](value), spec)


def _line(frame: FrameType | None) -> int | None:
    """The innermost line of the program."""
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else None


def _described(error: BaseException) -> dict[str, Any]:
    lines = [
        one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == FILE
    ]
    try:
        message = plain_text(str(error))[:_MAX_MESSAGE]
    except Exception:  # noqa: BLE001 - the program's own exception
        message = ""
    if isinstance(error, SyntaxError):
        message = error.msg or message
        lines = lines or [error.lineno or 1]
    line = lines[-1] if lines else None
    return {"error": type(error).__name__, "message": _sendable(message), "line": line}


def _sendable(text: str) -> str:
    """`text` without lone surrogates, which JSON for others cannot hold."""
    return text.encode(errors="replace").decode()


_current: list[Run] = []


def install() -> None:
    """Change the modules of the standard library, once, in the server."""
    asking.install(lambda error: _current[0].caught(error))  # noqa: PLW0108 - no run yet
    loop.install()
    clock.install()


def main() -> NoReturn:
    """Serve the host in a child, until it closes the channel."""
    run = Run(channel.receive())
    _current.append(run)
    while True:
        for source, first_line in channel.receive()["statements"]:
            run.execute(source, first_line)
        run.ready()
