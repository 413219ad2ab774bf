"""One run of a program on one engine: answer each call of the program from the record, or make it a new call.

The engine pauses the program at each call of a tool and at each check of a placeholder. For each pause
`Attempt.drive` takes one of these transitions:

* **check met a placeholder** (`WAIT`): the run stops, unless every result is known;
* **batch begins** (`BATCH`): the calls of one simultaneous expression follow; they count as one batch
  (`order`);
* **call with a placeholder among its arguments**: the run stops;
* **recorded call with a result**: the program gets the result;
* **recorded call without a result, or a new call that may join the pending ones**
  (`PendingCalls.accepts`): the program gets a placeholder and continues; where it cannot continue without
  the result, the run stops;
* **new call that may not join the pending ones**: the run stops *before* it. A later run makes it.

So every run ends finished, stopped, or with an exception of the program. What may never happen:

* A call is sent whose arguments, or whose existence, depend on an unknown result.
* Recorded calls are replayed in another order or with other arguments (`ReplayDiverged`).
* Output of a run with pending calls is returned. If such a run raises, output after a printed placeholder
  is cut off, and an exception that mentions a placeholder counts as a stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import json_codec
from emulator.programs.missing_keys import missing_key_hint
from emulator.programs.order import Batch, PendingCalls
from emulator.programs.placeholder import BATCH, CLASS_NAME, PLACEHOLDER, WAIT, holds_placeholder
from emulator.programs.program import (
    Call,
    CallRecord,
    Outcome,
    Program,
    ProgramRaised,
    ProgramRejected,
    ProgramTypeError,
    ReplayDiverged,
)
from emulator.programs.rewrite import RewrittenProgram
from emulator.settings import Order
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset
from sandbox.engine import Finished, Paused, Session
from sandbox.errors import ProgramFailed

MAX_ARGUMENT_BYTES = 8 * 2**20
"""The arguments of all calls of one program together."""


class _MustStop(Exception):
    """A call cannot be made yet: an argument is unknown, or it may not join the pending calls."""


@dataclass(frozen=True)
class RunRules:
    """The settings that all runs of a driver share."""

    toolset: Toolset
    max_calls: int
    one_at_a_time: bool
    order: Order


class Attempt:
    """One run on one engine."""

    def __init__(
        self,
        rules: RunRules,
        program: Program,
        rewritten: RewrittenProgram,
        recorded: Sequence[CallRecord],
        reread_tools: frozenset[str] = frozenset(),
    ) -> None:
        """Results of ``reread_tools`` are read the other way: as text instead of JSON, or vice versa."""
        self._rules = rules
        self._program = program
        self._rewritten = rewritten
        self._recorded = recorded
        self._reread_tools = reread_tools
        self._argument_bytes = 0
        self._pending = PendingCalls(rules.order)
        self._batches: Counter[int] = Counter()
        """How often each simultaneous expression has been evaluated, by its site."""
        self._new: list[Call] = []
        self._call_sites: list[tuple[int, str]] = []

    @property
    def names(self) -> frozenset[str]:
        """The functions at which an engine must pause the rewritten program."""
        return self._rules.toolset.names | frozenset(self._rewritten.deferred) | {WAIT, BATCH}

    def drive(self, session: Session) -> Outcome:
        step = session.start(self._rewritten.source)
        while isinstance(step, Paused):
            if step.name == WAIT:
                if self._pending.total:
                    return self.stopped()
                step = session.resume(None)
            elif step.name == BATCH:
                self._batches.update(site for site in step.args if isinstance(site, int))
                step = session.resume(None)
            else:
                try:
                    known, result = self._call(step)
                except _MustStop:
                    return self.stopped()
                must_wait = step.name not in self._rewritten.deferred or self._rules.one_at_a_time
                if not known and must_wait:
                    return self.stopped()
                step = session.resume(result if known else PLACEHOLDER)
        return self._finished(step)

    def _call(self, step: Paused) -> tuple[bool, Any]:
        """Bind one call, and look up its result. Returns whether the result is known, and the result.

        Raises `_MustStop` if the call has to wait for pending ones.
        """
        if self._pending.total and holds_placeholder([*step.args, *step.kwargs.values()]):
            raise _MustStop
        site, name = self._rewritten.deferred.get(step.name, (0, step.name))
        tool = self._rules.toolset.find(name)
        line = self._line(step.line)
        try:
            arguments = self._rules.toolset.bind(name, step.args, step.kwargs)
        except BindError as error:
            diagnostics = [
                self._program.diagnostic(f"{error.call}: {problem}", line)
                for problem in error.problems
            ]
            raise ProgramTypeError(diagnostics, tuple(self._new)) from error
        assert tool is not None, "bind refuses unknown tools"
        call = Call(tool.name, arguments, tool.kind)
        batch: Batch | None = (site, self._batches[site]) if self._batches[site] else None
        position = len(self._call_sites)
        self._call_sites.append((line, tool.name))
        if position >= self._rules.max_calls:
            raise self.rejected(f"the program makes more than {self._rules.max_calls} tool calls")
        self._argument_bytes += len(json_codec.dumps(arguments))
        if self._argument_bytes > MAX_ARGUMENT_BYTES:
            raise self.rejected(
                f"the calls of the program have more than {MAX_ARGUMENT_BYTES} bytes of arguments"
            )
        if position < len(self._recorded):
            record = self._recorded[position]
            if record.call != call:
                raise ReplayDiverged(f"call {position} was {record.call}, now it is {call}")
            if not record.known:
                self._pending.add(tool, arguments, batch)
            return record.known, self._value(record, tool, line)
        if not self._pending.accepts(tool, arguments, batch):
            raise _MustStop
        self._pending.add(tool, arguments, batch)
        self._new.append(call)
        return False, None

    def _value(self, record: CallRecord, tool: Tool, line: int) -> Any:
        """Return the result as text or as JSON: by the tool's schema, else by how the program uses it."""
        if record.text is None:
            return record.result
        if tool.return_type.kind is not None:
            return record.text if tool.return_type.kind == "text" else record.result
        use = (line, tool.python_name)
        as_text = (use in self._rewritten.texts) != (tool.name in self._reread_tools)
        # A JSON string is read as the string that it spells, unless the program parses the text itself.
        is_string = isinstance(record.result, str) and not self._rewritten.texts.get(use)
        return record.text if as_text and not is_string else record.result

    def rejected(
        self,
        message: str,
        line: int | None = None,
        hint: str | None = None,
        *,
        kind: type[ProgramRejected] = ProgramRejected,
    ) -> ProgramRejected:
        diagnostic = self._program.diagnostic(message, self._line(line), hint=hint)
        return kind([diagnostic], tuple(self._new))

    def failed(self, error: ProgramFailed) -> ProgramRejected:
        """The program's exception; for a missing key with the keys that exist."""
        results = [(one.call.name, one.result) for one in self._recorded if one.known]
        hint = missing_key_hint(error.kind, error.message, results)
        message = f"{error.kind}: {error.message}" if error.message else error.kind
        diagnostic = self._program.diagnostic(message, self._line(error.line), hint=hint)
        # Output from a printed placeholder on is dropped.
        stdout = error.stdout
        if self._pending.total and CLASS_NAME in stdout:
            stdout = stdout[: stdout.rfind("\n", 0, stdout.index(CLASS_NAME)) + 1]
        is_type_error = error.kind in ("TypeError", "AttributeError") or (
            error.kind == "KeyError" and "slice(" in error.message
        )
        kind = ProgramTypeError if is_type_error else ProgramRaised
        return kind([diagnostic], tuple(self._new), stdout)

    def stopped(self) -> Outcome:
        return Outcome(
            tuple(self._new), stopped=True, pending=True, call_sites=tuple(self._call_sites)
        )

    def is_caused_by_placeholder(self, error: ProgramFailed) -> bool:
        """Return True if the exception may come from a placeholder; with the result it may not occur."""
        return self._pending.total > 0 and CLASS_NAME in error.message

    def exited(self, error: ProgramFailed) -> Outcome:
        """``exit()`` ends a program as its last line does; its argument is printed, as Python prints it."""
        text = error.message if error.message not in ("", "None", "0") else ""
        return self._finished(Finished(error.stdout + (f"{text}\n" if text else "")))

    def _finished(self, step: Finished) -> Outcome:
        calls, sites = tuple(self._new), tuple(self._call_sites)
        if self._pending.total:
            return Outcome(calls, pending=True, call_sites=sites)
        return Outcome(calls, stdout=step.stdout, value=step.text, call_sites=sites)

    def _line(self, line: int | None) -> int:
        return self._rewritten.line(line or 0)
