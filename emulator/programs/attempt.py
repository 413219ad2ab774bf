"""One run of a program on one engine: answer each call of the program from the record, or make it a new call.

The engine pauses the program at each call of a tool and at each check of a placeholder. For each pause
`Attempt.drive` takes one of these transitions:

* **check met a placeholder** (`WAIT`): the run stops, unless every result is known;
* **batch begins** (`BATCH`): the calls of one simultaneous expression follow; they count as one batch
  (`order`);
* **call with a placeholder among its arguments**: the run stops;
* **condition that may handle a failure** (`HANDLED`): failures of the calls that it is about no longer end
  the program;
* **recorded call with a result**: the program gets the result;
* **new call of a tool that the program may not call**: `direct_calls`;
* **recorded call without a result, or a new call that may join the pending ones**
  (`PendingCalls.accepts`): the program gets a placeholder and continues; where it cannot continue without
  the result, the run stops;
* **new call after a failure that the program has not handled, or after a refusal**: the program ends
  (`ProgramRejected`);
* **new call that may not join the pending ones**: the run stops *before* it. A later run makes it;
* **no coroutine can continue** (in a program with an event loop): the run stops unless the results of all
  calls that share the message are known.

So every run ends finished, stopped, or with an exception of the program. What may never happen:

* A call is sent whose arguments, or whose existence, depend on an unknown result.
* A new call is made after a refusal, or after an unhandled failure.
* Recorded calls are replayed in another order or with other arguments (`ReplayDiverged`).
* Output of a run with pending calls is returned. If such a run raises, output after a printed placeholder
  is cut off, and an exception that mentions a placeholder counts as a stop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import json_codec
from emulator.programs.direct_calls import DirectCalls
from emulator.programs.handling import HANDLED
from emulator.programs.order import Batch, PendingCalls
from emulator.programs.placeholder import (
    BATCH,
    CLASS_NAME,
    PLACEHOLDER,
    WAIT,
    holds_placeholder,
    raising,
)
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
from emulator.programs.scalar_results import NO_SCALARS, ScalarResults, is_respelled
from emulator.programs.unhandled_failures import UnhandledFailures
from emulator.settings import Order
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset
from sandbox.engine import Finished, Paused, Session, Step
from sandbox.errors import ProgramFailed

_NO_NUMBER = re.compile(r"format|^Cannot specify '")
"""Of a text: ``format(text, ".2f")``."""
MAX_ARGUMENT_BYTES = 8 * 2**20
"""The arguments of all calls of one program together."""


class _MustStop(Exception):
    """A call cannot be made yet: an argument is unknown, or it may not join the pending calls, or a call has
    failed and others are pending."""


@dataclass(frozen=True)
class RunRules:
    """The settings that all runs of a driver share."""

    toolset: Toolset
    max_calls: int
    one_at_a_time: bool
    order: Order
    held_tools: frozenset[str] = frozenset()
    """Tools whose results arrive in the same answer: where replaying is slow, a run waits at their calls."""
    is_plain: bool = False
    """The program consists only of calls."""


class Attempt:
    """One run on one engine."""

    def __init__(
        self,
        rules: RunRules,
        program: Program,
        rewritten: RewrittenProgram,
        recorded: Sequence[CallRecord],
        scalars: ScalarResults = NO_SCALARS,
        reread_tools: frozenset[str] = frozenset(),
    ) -> None:
        """Results of ``reread_tools`` are read the other way: as text instead of JSON, or vice versa."""
        self._rules = rules
        self._program = program
        self._rewritten = rewritten
        self._recorded = recorded
        self._scalars = scalars
        self._reread_tools = reread_tools
        self._argument_bytes = 0
        self._pending = PendingCalls(rules.order)
        self._batches: Counter[int] = Counter()
        """How often each simultaneous expression has been evaluated, by its site."""
        self._new: list[Call] = []
        self._call_sites: list[tuple[int, str]] = []
        self._failures = UnhandledFailures(rewritten.handling)
        self._direct = DirectCalls(is_plain=rules.is_plain)
        self.can_continue = False
        """The run has stopped at a call of ``held_tools``, and only this call has no result."""

    @property
    def names(self) -> frozenset[str]:
        """The functions at which an engine must pause the rewritten program."""
        rewritten = self._rewritten
        own = {*rewritten.deferred, *rewritten.awaitable, WAIT, BATCH, HANDLED}
        return self._rules.toolset.names | own

    @property
    def new_calls(self) -> list[Call]:
        """The calls of this run that are not recorded."""
        return self._new

    def drive(self, session: Session) -> Outcome:
        return self._drive(session, session.start(self._rewritten.source))

    def continue_with(self, session: Session, recorded: Sequence[CallRecord]) -> Outcome:
        """Continue at the call that waits; its result is the last one that is ``recorded``."""
        line, name = self._call_sites[-1]
        tool = self._rules.toolset.find(name)
        assert tool is not None, "the call was bound"
        self._recorded, self._new = recorded, []
        self._direct.note_result((line, tool.python_name))
        self._pending = PendingCalls(self._rules.order)
        self.can_continue = False
        return self._drive(session, session.resume(self._value(recorded[-1], tool, line)))

    def _drive(self, session: Session, step: Step) -> Outcome:
        while isinstance(step, Paused):
            if step.name == WAIT:
                if self._pending.total:
                    return self.stopped()
                step = session.resume(None)
            elif step.name == BATCH:
                self._batches.update(site for site in step.args if isinstance(site, int))
                step = session.resume(None)
            elif step.name == HANDLED:
                self._failures.handle(step.args)
                step = session.resume(None)
            elif step.name in self._rewritten.awaitable:
                results = self._calls_together(step)
                if results is None:
                    return self.stopped()
                step = session.resume(*results)
            else:
                try:
                    known, result = self._call(step)
                except _MustStop:
                    return self.stopped()
                must_wait = step.name not in self._rewritten.deferred or self._rules.one_at_a_time
                site, _ = self._rewritten.deferred.get(step.name, (0, ""))
                holds = not site and self._call_sites[-1][1] in self._rules.held_tools
                if not known and (must_wait or holds):
                    self.can_continue = holds and self._pending.total == 1
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
        tool, arguments = self._bind(step, name)
        batch: Batch | None = (site, self._batches[site]) if self._batches[site] else None
        return self._answer(step, tool, arguments, batch)

    def _calls_together(self, step: Paused) -> list[Any] | None:
        """The results of the calls that all coroutines wait for: as many as may share a message. None if the
        program must stop until they are known.

        Which calls share a message does not depend on the results that are known: each run does the same.
        """
        message = PendingCalls(self._rules.order)
        answers: list[tuple[bool, Any]] = []
        for each in (step, *step.pending):
            site, name = self._rewritten.awaitable[each.name]
            try:
                tool, arguments = self._bind(each, name)
            except ProgramTypeError:
                if not answers:
                    raise
                break  # refused when it is the first
            batch = (site, 0) if site else None
            if answers and (self._rules.one_at_a_time or self._direct.is_first(tool)):
                break
            if not message.accepts(tool, arguments, batch):
                break
            message.add(tool, arguments, batch)
            answers.append(self._answer(each, tool, arguments, batch))
        return [result for _, result in answers] if all(known for known, _ in answers) else None

    def _bind(self, step: Paused, name: str) -> tuple[Tool, dict[str, Any]]:
        tool = self._rules.toolset.find(name)
        try:
            args, kwargs = self._scalars.unmarked([step.args, step.kwargs])
            arguments = self._rules.toolset.bind(name, args, kwargs)
        except BindError as error:
            line = self._line(step.line)
            diagnostics = [
                self._program.diagnostic(f"{error.call}: {problem}", line)
                for problem in error.problems
            ]
            raise ProgramTypeError(diagnostics, tuple(self._new)) from error
        assert tool is not None, "bind refuses unknown tools"
        return tool, arguments

    def _answer(
        self, step: Paused, tool: Tool, arguments: dict[str, Any], batch: Batch | None
    ) -> tuple[bool, Any]:
        """Count one call, and look up its result. As `_call`."""
        line = self._line(step.line)
        call = Call(tool.name, arguments, tool.kind)
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
            self._direct.note(tool, (line, tool.python_name), known=record.known)
            if not record.known:
                self._pending.add(tool, arguments, batch)
            may_raise = step.name in self._rewritten.deferred
            if record.failure is not None and self._failures.note(
                (line, tool.python_name), record.failure, may_raise=may_raise
            ):
                return True, raising(record.result_text or "")
            return record.known, self._value(record, tool, line)
        self._check_new_call(tool, line)
        if not self._pending.accepts(tool, arguments, batch):
            raise _MustStop
        self._pending.add(tool, arguments, batch)
        self._direct.note(tool, (line, tool.python_name), known=False)
        self._new.append(call)
        return False, None

    def _check_new_call(self, tool: Tool, line: int) -> None:
        """Raises `ProgramRejected` if the program ends before a new call, `_MustStop` if pending calls need
        their results first."""
        ends = self._failures or self._direct.ends_before(tool)
        if self._pending.total and (ends or self._direct.is_first(tool)):
            raise _MustStop
        if self._failures:
            raise self._ended(self._failures.reason, line)
        if ends:
            at, name = self._direct.first_result or (line, tool.python_name)
            reason = f"{name}(...) in line {at} has returned: you decide what to do with its result"
            raise self._ended(reason, line)

    def _ended(self, reason: str, line: int) -> ProgramRejected:
        diagnostic = self._program.diagnostic(f"{reason}. The program was ended here", line)
        return ProgramRejected([diagnostic], tuple(self._new))

    def _value(self, record: CallRecord, tool: Tool, line: int) -> Any:
        """Return the result as text or as JSON: by the tool's schema, else by how the program uses it."""
        if record.text is None:
            return record.result
        use = (line, tool.python_name)
        is_reread = tool.name in self._reread_tools
        if tool.return_type.kind == "text":
            return record.text
        if self._rewritten.holds_texts and is_respelled(record):
            return record.result if is_reread else record.text
        if tool.return_type.kind is not None:
            return record.result
        as_text = (use in self._rewritten.texts) != is_reread
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
        """The program's exception."""
        message = f"{error.kind}: {error.message}" if error.message else error.kind
        diagnostic = self._program.diagnostic(message, self._line(error.line))
        # Output from a printed placeholder on is dropped.
        stdout = error.stdout
        if self._pending.total and CLASS_NAME in stdout:
            stdout = stdout[: stdout.rfind("\n", 0, stdout.index(CLASS_NAME)) + 1]
        is_type_error = (
            error.kind in ("TypeError", "AttributeError")
            or (error.kind == "KeyError" and "slice(" in error.message)
            or (error.kind == "ValueError" and _NO_NUMBER.search(error.message) is not None)
        )
        kind = ProgramTypeError if is_type_error else ProgramRaised
        return kind([diagnostic], tuple(self._new), stdout)

    def stopped(self) -> Outcome:
        self._end_if_failed()
        return Outcome(
            tuple(self._new), stopped=True, pending=True, call_sites=tuple(self._call_sites)
        )

    def _end_if_failed(self) -> None:
        """End a program that waits for results after a failure: its calls are not sent again."""
        if self._failures and self._pending.acting:
            raise self._ended(self._failures.reason, self._failures.line)

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
            self._end_if_failed()
            return Outcome(calls, pending=True, call_sites=sites)
        return Outcome(calls, stdout=step.stdout, value=step.text, call_sites=sites)

    def _line(self, line: int | None) -> int:
        return self._rewritten.line(line or 0)
