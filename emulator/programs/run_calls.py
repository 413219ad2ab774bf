"""The calls of one run, in their order: bind each, and answer it from the record or decide about it.

A call of the program takes one of these transitions:

* **recorded**: the same call was made by an earlier run, which returns its result, or nothing while it is
  pending. Another call in its place is `ReplayDiverged`;
* **sent**: it may join the pending calls (`PendingCalls.accepts`), and the program continues without its
  result;
* **stopped**: it may not join them, so the run stops before it, and a later run makes it. So does a call that
  would end the program while others are pending;
* **ended**: a call was refused, or nobody knows whether it was made, or the program has not looked at an
  earlier failure (law 3) and the call acts or passes that failure on, or a tool that the model calls itself
  has returned (`direct_calls`), or a limit is reached.

What may never happen: a call that the toolset does not accept is sent; a new call is sent after a refusal; an
acting call is sent after a failure that was not looked at. A program is not trusted: its claims about its
own calls (`batch`, `unlooked`, `skips_output`) can make a valid call, never an invalid one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.core import json_codec
from emulator.programs.direct_calls import DirectCalls
from emulator.programs.failures import FINAL, Failure
from emulator.programs.order import PendingCalls
from emulator.programs.program import (
    Call,
    CallRecord,
    Outcome,
    Program,
    ProgramRejected,
    ReplayDiverged,
)
from emulator.settings.settings import Order
from emulator.tools.effects import Effect
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset

MAX_CALLS = 128
"""The calls of one program."""
MAX_ARGUMENT_BYTES = 8 * 2**20
"""The arguments of all calls of one program together."""
_MAX_QUOTED = 300
"""Characters of a failure's text, and of a call's arguments, in a message for the model."""


@dataclass(frozen=True)
class RunRules:
    """The settings that all runs of a driver share."""

    toolset: Toolset
    one_at_a_time: bool = False
    order: Order = "auto"


@dataclass(frozen=True)
class CallRequest:
    """A call as the program makes it."""

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    line: int = 1
    key: str = ""
    """A digest of what the program passed."""
    batch: int = 0
    """Calls with the same number, except 0, are simultaneous."""
    unlooked: Sequence[int] = ()
    """Positions of the failed calls that the program has not looked at."""
    passed: Sequence[int] = ()
    """Those of them whose results, or what was made of them, are in the arguments."""
    skips_output: bool = False
    """The program looked at an unknown result where only output is lost."""


class RunCalls:
    """Raises `ProgramRejected` for a call that ends the program, `ReplayDiverged`."""

    def __init__(
        self,
        rules: RunRules,
        program: Program,
        recorded: Sequence[CallRecord] = (),
        *,
        is_plain: bool = False,
    ) -> None:
        """``is_plain``: the program consists only of calls."""
        self._rules = rules
        self.program = program
        self.recorded = [*recorded]
        """All calls, also those that this run makes."""
        self.new: list[Call] = []
        """The calls that no earlier run made."""
        self.sites: list[tuple[int, str]] = []
        """Line and tool name of each call of this run."""
        self._pending = PendingCalls(rules.order)
        self._direct = DirectCalls(is_plain=is_plain)
        self._bytes = sum(len(json_codec.dumps(one.call.arguments)) for one in recorded)

    @property
    def has_pending(self) -> bool:
        return self._pending.total > 0

    @property
    def waits_for_one(self) -> bool:
        """The last call is the only one without a result."""
        return self._pending.total == 1 and not self.recorded[-1].known

    def settle(self, record: CallRecord) -> None:
        """The result of the last call has arrived, for which the run has waited."""
        self.recorded[-1] = record
        self._pending = PendingCalls(self._rules.order)
        self._direct.note_result(self.sites[-1])

    def replay(self, line: int, batch: int) -> None:
        """The program has made the next recorded call, as before."""
        record = self.recorded[len(self.sites)]
        tool = self._rules.toolset.find(record.call.name)
        if tool is None:
            raise self.rejected(f"{record.call.name} is no longer offered", line)
        self._note(tool, record, line, batch)

    def answer(self, request: CallRequest) -> CallRecord | None:
        """The record of the program's next call; None if the run stops there."""
        self.end_if_unknown()
        tool, arguments = self._bind(request)
        call = Call(tool.name, arguments, tool.kind, request.key)
        position = len(self.sites)
        if position < len(self.recorded):
            record = self.recorded[position]
            if record.call != call:
                raise ReplayDiverged(f"call {position} was {record.call}, now it is {call}")
            self.recorded[position] = replace(record, call=call)
        else:
            if not self._may_send(tool, call, request):
                return None
            self.new.append(call)
            self.recorded.append(CallRecord(call))
        self._note(tool, self.recorded[position], request.line, request.batch)
        if self._rules.one_at_a_time and not self.recorded[position].known:
            return None
        return self.recorded[position]

    def outcome(
        self, *, stopped: bool = False, stdout: str = "", value: str | None = None
    ) -> Outcome:
        calls, sites = tuple(self.new), tuple(self.sites)
        if self.has_pending:
            return Outcome(calls, stopped=stopped, pending=True, call_sites=sites)
        self.end_if_unknown()
        return Outcome(calls, stopped=stopped, stdout=stdout, value=value, call_sites=sites)

    def end_if_unknown(self) -> None:
        """End a program with an act whose outcome is unknown, once no other result is missing."""
        if not self.has_pending:
            for place, (line, _) in enumerate(self.sites):
                if self.recorded[place].failure is Failure.UNKNOWN:
                    raise self._ended_after_failure(place, line)

    def end_if_failed(self, unlooked: Sequence[int]) -> None:
        """End a program that waits for results after a failure: its acting calls are not sent again."""
        if self._pending.acting and not self.new and (at := self._failed_at(unlooked)) is not None:
            raise self._ended_after_failure(at, self.sites[at][0])

    def rejected(
        self,
        message: str,
        line: int = 1,
        hint: str | None = None,
        *,
        stdout: str = "",
        kind: type[ProgramRejected] = ProgramRejected,
    ) -> ProgramRejected:
        diagnostic = self.program.diagnostic(message, line, hint=hint)
        return kind([diagnostic], tuple(self.new), stdout)

    def _bind(self, request: CallRequest) -> tuple[Tool, dict[str, Any]]:
        toolset = self._rules.toolset
        try:
            arguments = toolset.bind(request.name, request.args, request.kwargs)
        except BindError as error:
            diagnostics = [
                self.program.diagnostic(f"{error.call}: {problem}", request.line)
                for problem in error.problems
            ]
            raise ProgramRejected(diagnostics, tuple(self.new)) from error
        tool = toolset.find(request.name)
        assert tool is not None, "bind refuses unknown tools"
        return tool, arguments

    def _may_send(self, tool: Tool, call: Call, request: CallRequest) -> bool:
        """Return True if a new call may be sent with the pending ones."""
        line, waits = request.line, self.has_pending
        if len(self.recorded) >= MAX_CALLS:
            raise self.rejected(f"the program makes more than {MAX_CALLS} tool calls", line)
        self._bytes += len(json_codec.dumps(call.arguments))
        if self._bytes > MAX_ARGUMENT_BYTES:
            what = (
                f"the calls of the program have more than {MAX_ARGUMENT_BYTES} bytes of arguments"
            )
            raise self.rejected(what, line)
        acts = tool.effect is not Effect.READS
        if (at := self._failed_at(request.unlooked if acts else request.passed)) is not None:
            if waits:
                return False
            raise self._ended_after_failure(at, line, f"{tool.python_name}({_written(call)})")
        if self._direct.ends_before(tool):
            if waits:
                return False
            first, name = self._direct.first_result or (line, tool.python_name)
            what = (
                f"{name}(...) in line {first} has returned: you decide what to do with its result"
            )
            raise self._ended(what, line)
        if waits and (self._direct.is_first(tool) or (acts and request.skips_output)):
            return False
        return self._pending.accepts(tool, call.arguments, request.batch)

    def _note(self, tool: Tool, record: CallRecord, line: int, batch: int) -> None:
        self.sites.append((line, tool.name))
        self._direct.note(tool, (line, tool.python_name), known=record.known)
        if not record.known:
            self._pending.add(tool, record.call.arguments, batch)

    def _failed_at(self, unlooked: Sequence[int]) -> int | None:
        """The position of the failure after which no further call is made: the first refusal or unknown
        outcome, or the first failure among ``unlooked``."""
        failures = {
            place: record.failure
            for place, record in enumerate(self.recorded[: len(self.sites)])
            if record.failure in FINAL or (record.failure and place in unlooked)
        }
        final = (place for place, one in failures.items() if one in FINAL)
        return next(final, next(iter(failures), None))

    def _ended_after_failure(self, at: int, line: int, unmade: str = "") -> ProgramRejected:
        """``unmade`` is the call that the program would have made next."""
        (first, name), record = self.sites[at], self.recorded[at]
        tool = self._rules.toolset.find(name)
        what = f"{tool.python_name if tool else name}(...) in line {first}"
        if record.failure in FINAL:
            return self._ended(FINAL[record.failure].format(what), line)
        text = _cut(" ".join((record.result_text or "").split()))
        message = f"{what} failed, and the program had not checked its result: {text}"
        if not unmade:
            return self.rejected(message, line)
        hint = f"{unmade} was not made, nor any later call; make them now if they are meant for this failure"
        return self.rejected(message, line, hint)

    def _ended(self, reason: str, line: int) -> ProgramRejected:
        return self.rejected(f"{reason}. The program was ended here", line)


def _written(call: Call) -> str:
    return _cut(", ".join(f"{name}={value!r}" for name, value in call.arguments.items()))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
