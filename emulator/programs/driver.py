"""Run a program as far as the known results allow. One driver for every engine.

`run` is a function of the program so far and of the calls already recorded: it replays these, then goes
on. A program that grows while it is streamed, one that is resumed with results, and one that moves to
another engine are therefore the same thing. Knows nothing of HTTP or of how the program was written.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from emulator import departure, json_codec
from emulator.events import ToolKind
from emulator.programs.missing_keys import keys_there_are
from emulator.programs.order import Batch, Outgoing
from emulator.programs.placeholders import Prepared, prepare
from emulator.programs.unknown import PLACEHOLDER, TOGETHER, WAIT, holds_placeholder
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.readers import Statement
from emulator.settings import Order
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset
from sandbox.engine import Engine, Finished, Paused, Session
from sandbox.errors import (
    ProgramFailed,
    SandboxBusy,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
    Unsupported,
)
from sandbox.parsing import parse


@dataclass(frozen=True)
class Program:
    """What a model wrote, read: top-level statements in order."""

    statements: tuple[Statement, ...] = ()

    def __add__(self, statements: Sequence[Statement]) -> Program:
        return Program((*self.statements, *statements))

    @cached_property
    def source(self) -> str:
        return "\n".join(statement.source for statement in self.statements)

    def before(self, line: int) -> Program:
        """The statements that end before ``line`` of `source`."""
        kept, end = [], 0
        for statement in self.statements:
            end += statement.source.count("\n") + 1
            if end >= line:
                break
            kept.append(statement)
        return Program(tuple(kept))

    def tree(self) -> ast.Module:
        """A new tree, whose lines are those of `source`."""
        return parse(self.source)

    def diagnostic(
        self, message: str, line: int, column: int = 0, hint: str | None = None
    ) -> Diagnostic:
        lines = self.source.splitlines()
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return Diagnostic(message, max(line, 1), column, text, hint)


@dataclass(frozen=True)
class Call:
    """A call that left a program: the tool's wire name and the arguments that its schema accepts."""

    name: str
    arguments: dict[str, Any]
    kind: ToolKind = "function"


@dataclass(frozen=True)
class Recorded:
    """A call of an earlier run, with its result where that has come in."""

    call: Call
    result: Any = None
    """What its text says as JSON, or else the text."""
    known: bool = False
    text: str | None = None
    """The text as it came, where ``result`` is something else."""


@dataclass(frozen=True)
class Outcome:
    """How far a run came.

    ``stopped``: before its end, where it needs a result that is not known yet. ``pending``: a call is
    out whose result is not known, so that what was printed or computed is not to be told to anyone.
    """

    calls: tuple[Call, ...] = ()
    stopped: bool = False
    pending: bool = False
    stdout: str = ""
    value: str | None = None
    made: tuple[tuple[int, str], ...] = ()
    """Line and tool of every call of the run, the recorded ones first."""

    @property
    def output(self) -> str:
        """What the program has to say: what it printed, and the value of its last expression."""
        parts = (self.stdout.rstrip("\n"), self.value)
        return "\n".join(part for part in parts if part)


class ProgramRejected(Exception):
    """The program cannot be run or did something that it may not; the model can repair it.

    ``calls`` left the run before that, and ``stdout`` was printed.
    """

    def __init__(
        self, diagnostics: Sequence[Diagnostic], calls: tuple[Call, ...] = (), stdout: str = ""
    ) -> None:
        super().__init__("; ".join(diagnostic.message for diagnostic in diagnostics))
        self.diagnostics = tuple(diagnostics)
        self.calls = calls
        self.stdout = stdout


class ProgramRaised(ProgramRejected):
    """The program went wrong by itself, as Python runs it: what it had called before is called."""

    of_types = False
    """Whether another reading of a result, as text or as JSON, might not have done so."""


class ProgramTooSlow(ProgramRejected):
    """The program, or the sandbox that it runs in, took too long; from here the two look alike."""


class _KeptBack(Exception):
    """A call that may not leave yet: it would have a placeholder, or may not be beside those that are out."""


MAX_ARGUMENT_BYTES = 8 * 2**20
"""Of all calls of one program."""


class Diverged(Exception):
    """A replayed program made another call than the recorded one."""


_MOST_TRIES = 3
"""Tools whose results are read otherwise, one after the other, where a program fails on a type."""


@dataclass(frozen=True)
class Driver:
    """Runs programs against one toolset on the first engine that is able to."""

    engines: Sequence[Engine]
    toolset: Toolset
    max_calls: int = 128
    one_at_a_time: bool = False
    order: Order = "auto"

    def run(self, program: Program, recorded: Sequence[Recorded] = (), seed: int = 0) -> Outcome:
        """Run ``program`` to its end, or to where it needs a result that is not ``recorded``.

        Only what an engine does not support moves on to the next; a failure, a limit or a refusal never
        does. Raises `ProgramRejected`, `Diverged`, and the sandbox errors that are not the program's
        fault.
        """
        prepared = prepare(program.source, self.toolset.names)
        try:
            return self._run(program, prepared, recorded, seed, frozenset())
        except ProgramRaised as error:
            if not error.of_types:
                raise
            for other_way in _other_ways(recorded):
                with contextlib.suppress(ProgramRejected, Diverged):
                    return self._run(program, prepared, recorded, seed, other_way)
            raise

    def _run(
        self,
        program: Program,
        prepared: Prepared,
        recorded: Sequence[Recorded],
        seed: int,
        other_way: frozenset[str],
    ) -> Outcome:
        """``other_way`` are the tools whose results are read otherwise than their use suggests."""
        unable: Unsupported | SandboxUnavailable | None = None
        for engine in self.engines:
            attempt = _Attempt(self, program, prepared, recorded, other_way)
            try:
                preamble = self.toolset.preamble + prepared.preamble
                with (
                    engine.session(attempt.names, preamble=preamble, seed=seed) as session,
                    departure.stopping(session.kill),
                ):
                    return attempt.drive(session)
            except Unsupported as error:
                unable = error
            except SandboxBusy:
                raise  # not the program's fault, and soon over
            except SandboxUnavailable as error:
                # Said together with what the earlier engine lacked: it is what the model can change.
                if not isinstance(unable, Unsupported):
                    raise
                unable = Unsupported(f"{unable.message} ({error.reason})", unable.line)
                break
            except ProgramFailed as error:
                if error.kind == "SystemExit":
                    return attempt.left(error)
                if attempt.may_lack_results(error):
                    return attempt.stopped()
                raise attempt.failed(error) from error
            except SandboxTimeout as error:
                message = f"the program ran longer than {error.seconds:g} s"
                raise attempt.rejected(message, kind=ProgramTooSlow) from error
            except SandboxLimit as error:
                raise attempt.rejected(f"the program used too much: {error.what}") from error
        assert isinstance(unable, Unsupported), "there is at least one engine"
        raise attempt.rejected(
            f"this cannot be run here: {unable.message}",
            unable.line,
            hint="write it with plain calls, loops and conditions",
        ) from unable


def _other_ways(recorded: Sequence[Recorded]) -> Iterator[frozenset[str]]:
    """Which tools' results may be read otherwise, the latest first."""
    reported = [one.call.name for one in reversed(recorded) if one.known and one.text is not None]
    names = list(dict.fromkeys(reported))
    for name in names[:_MOST_TRIES]:
        yield frozenset({name})
    if len(names) > 1:
        yield frozenset(names)


class _Attempt:
    """One run on one engine."""

    def __init__(
        self,
        driver: Driver,
        program: Program,
        prepared: Prepared,
        recorded: Sequence[Recorded],
        other_way: frozenset[str],
    ) -> None:
        self._other_way = other_way
        self._driver = driver
        self._program = program
        self._prepared = prepared
        self._recorded = recorded
        self._made = 0
        self._argument_bytes = 0
        self._unknown = 0
        """How many calls are out whose results are not known."""
        self._outgoing = Outgoing(driver.order)
        self._batches: Counter[int] = Counter()
        """How often each site has begun calls that leave together."""
        self._new: list[Call] = []
        self._lines: list[tuple[int, str]] = []
        self.names = driver.toolset.names | frozenset(prepared.later) | {WAIT, TOGETHER}

    def drive(self, session: Session) -> Outcome:
        step = session.start(self._prepared.source)
        while isinstance(step, Paused):
            if step.name == WAIT:
                if self._unknown:
                    return self.stopped()
                step = session.resume(None)
            elif step.name == TOGETHER:
                self._batches.update(site for site in step.args if isinstance(site, int))
                step = session.resume(None)
            else:
                try:
                    known, result = self._call(step)
                except _KeptBack:
                    return self.stopped()
                must_stop = step.name not in self._prepared.later or self._driver.one_at_a_time
                if not known and must_stop:
                    return self.stopped()
                step = session.resume(result if known else PLACEHOLDER)
        return self._finished(step)

    def _call(self, step: Paused) -> tuple[bool, Any]:
        """Bind one call in the host, and find its result: whether it is known, and which it is.

        Raises `_KeptBack` where it must wait for calls that are out.
        """
        if self._unknown and holds_placeholder([*step.args, *step.kwargs.values()]):
            raise _KeptBack
        site, name = self._prepared.later.get(step.name, (0, step.name))
        tool = self._driver.toolset.find(name)
        try:
            arguments = self._driver.toolset.bind(name, step.args, step.kwargs)
        except BindError as error:
            diagnostics = self._bind_diagnostics(error, step)
            raised = ProgramRaised(diagnostics, tuple(self._new))
            raised.of_types = True
            raise raised from error
        assert tool is not None, "bind refuses unknown tools"
        call = Call(tool.name, arguments, tool.kind)
        batch: Batch | None = (site, self._batches[site]) if self._batches[site] else None
        position, self._made = self._made, self._made + 1
        self._lines.append((self._line(step.line), tool.name))
        if self._made > self._driver.max_calls:
            raise self.rejected(f"the program makes more than {self._driver.max_calls} tool calls")
        self._argument_bytes += len(json_codec.dumps(arguments))
        if self._argument_bytes > MAX_ARGUMENT_BYTES:
            raise self.rejected(
                f"the calls of the program have more than {MAX_ARGUMENT_BYTES} bytes of arguments"
            )
        if position < len(self._recorded):
            recorded = self._recorded[position]
            if recorded.call != call:
                raise Diverged(f"call {position} was {recorded.call}, now it is {call}")
            if not recorded.known:
                self._unknown += 1
                self._outgoing.add(tool, arguments, batch)
            return recorded.known, self._value(recorded, tool, step)
        if not self._outgoing.may_leave(tool, arguments, batch):
            raise _KeptBack
        self._outgoing.add(tool, arguments, batch)
        self._new.append(call)
        self._unknown += 1
        return False, None

    def _value(self, recorded: Recorded, tool: Tool, step: Paused) -> Any:
        """The result as text, or as what it says in JSON: by its schema, else by its use."""
        if recorded.text is None:
            return recorded.result
        if tool.returns.kind is not None:
            return recorded.text if tool.returns.kind == "text" else recorded.result
        use = (self._line(step.line), tool.python_name)
        as_text = (use in self._prepared.texts) != (tool.name in self._other_way)
        # A JSON text that is itself a text reads as what it says, unless the program parses it.
        says_text = isinstance(recorded.result, str) and not self._prepared.texts.get(use)
        return recorded.text if as_text and not says_text else recorded.result

    def _bind_diagnostics(self, error: BindError, step: Paused) -> list[Diagnostic]:
        line = self._line(step.line)
        return [
            self._program.diagnostic(f"{error.call}: {problem}", line) for problem in error.problems
        ]

    def rejected(
        self,
        message: str,
        line: int | None = None,
        hint: str | None = None,
        *,
        stdout: str = "",
        kind: type[ProgramRejected] = ProgramRejected,
    ) -> ProgramRejected:
        diagnostic = self._program.diagnostic(message, self._line(line), hint=hint)
        return kind([diagnostic], tuple(self._new), stdout)

    def failed(self, error: ProgramFailed) -> ProgramRejected:
        """What the program raised; the keys there are, where it looked for one that is missing."""
        line = self._line(error.line)
        results = [(one.call.name, one.result) for one in self._recorded if one.known]
        hint = keys_there_are(error.kind, error.message, results)
        message = f"{error.kind}: {error.message}" if error.message else error.kind
        diagnostic = self._program.diagnostic(message, line, hint=hint)
        raised = ProgramRaised([diagnostic], tuple(self._new), error.stdout)
        raised.of_types = error.kind in ("TypeError", "AttributeError") or (
            error.kind == "KeyError" and "slice(" in error.message
        )
        return raised

    def _line(self, line: int | None) -> int:
        """The program's own line for one of the rewritten source; a statement's inner lines are its first."""
        before = [new for new in self._prepared.lines if new <= (line or 0)]
        return self._prepared.lines[max(before)] if before else 0

    def stopped(self) -> Outcome:
        return Outcome(tuple(self._new), stopped=True, pending=True)

    def may_lack_results(self, error: ProgramFailed) -> bool:
        """Whether a failure may come of an unknown result: it shows again, or not, when that is known."""
        return self._unknown > 0 and "_Unknown" in error.message

    def left(self, error: ProgramFailed) -> Outcome:
        """``exit()`` ends a program as its last line does; a text that it is given is printed."""
        said = error.message if error.message not in ("", "None", "0") else ""
        printed = error.stdout + (f"{said}\n" if said else "")
        return self._finished(Finished(printed))

    def _finished(self, step: Finished) -> Outcome:
        if self._unknown:
            return Outcome(tuple(self._new), pending=True)
        return Outcome(
            tuple(self._new), stdout=step.stdout, value=step.text, made=tuple(self._lines)
        )
