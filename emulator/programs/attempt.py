"""One run of a program on one engine: each call is bound in the host, then answered or let out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emulator import json_codec
from emulator.programs.missing_keys import keys_there_are
from emulator.programs.order import Batch, Outgoing
from emulator.programs.placeholders import Prepared
from emulator.programs.program import (
    Call,
    Diverged,
    Outcome,
    Program,
    ProgramRaised,
    ProgramRejected,
    Recorded,
)
from emulator.programs.unknown import PLACEHOLDER, PRINTED, TOGETHER, WAIT, holds_placeholder
from emulator.reading.diagnostics import Diagnostic
from emulator.settings import Order
from emulator.tools.tool import Tool
from emulator.tools.toolset import BindError, Toolset
from sandbox.engine import Finished, Paused, Session
from sandbox.errors import ProgramFailed


class _KeptBack(Exception):
    """A call that may not leave yet: it would have a placeholder, or may not be beside those that are out."""


MAX_ARGUMENT_BYTES = 8 * 2**20
"""Of all calls of one program."""


@dataclass(frozen=True)
class Rules:
    """What holds for all runs of a driver."""

    toolset: Toolset
    max_calls: int
    one_at_a_time: bool
    order: Order


class Attempt:
    """One run on one engine."""

    def __init__(
        self,
        rules: Rules,
        program: Program,
        prepared: Prepared,
        recorded: Sequence[Recorded],
        other_way: frozenset[str] = frozenset(),
    ) -> None:
        """``other_way`` are the tools whose results are read otherwise than their use suggests."""
        self._other_way = other_way
        self._rules = rules
        self._program = program
        self._prepared = prepared
        self._recorded = recorded
        self._made = 0
        self._argument_bytes = 0
        self._unknown = 0
        """How many calls are out whose results are not known."""
        self._outgoing = Outgoing(rules.order)
        self._batches: Counter[int] = Counter()
        """How often each site has begun calls that leave together."""
        self._new: list[Call] = []
        self._lines: list[tuple[int, str]] = []

    @property
    def names(self) -> frozenset[str]:
        """What pauses an engine that runs the prepared program."""
        return self._rules.toolset.names | frozenset(self._prepared.later) | {WAIT, TOGETHER}

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
                must_stop = step.name not in self._prepared.later or self._rules.one_at_a_time
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
        tool = self._rules.toolset.find(name)
        try:
            arguments = self._rules.toolset.bind(name, step.args, step.kwargs)
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
        if self._made > self._rules.max_calls:
            raise self.rejected(f"the program makes more than {self._rules.max_calls} tool calls")
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
        if tool.return_type.kind is not None:
            return recorded.text if tool.return_type.kind == "text" else recorded.result
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
        # Nobody is told of a placeholder that was printed, nor of what came after it.
        printed = error.stdout
        if self._unknown and PRINTED in printed:
            printed = printed[: printed.rfind("\n", 0, printed.index(PRINTED)) + 1]
        raised = ProgramRaised([diagnostic], tuple(self._new), printed)
        raised.of_types = error.kind in ("TypeError", "AttributeError") or (
            error.kind == "KeyError" and "slice(" in error.message
        )
        return raised

    def _line(self, line: int | None) -> int:
        return self._prepared.line(line or 0)

    def stopped(self) -> Outcome:
        return Outcome(tuple(self._new), stopped=True, pending=True, made=tuple(self._lines))

    def may_lack_results(self, error: ProgramFailed) -> bool:
        """Whether a failure may come of an unknown result: it shows again, or not, when that is known."""
        return self._unknown > 0 and PRINTED in error.message

    def left(self, error: ProgramFailed) -> Outcome:
        """``exit()`` ends a program as its last line does; a text that it is given is printed."""
        said = error.message if error.message not in ("", "None", "0") else ""
        printed = error.stdout + (f"{said}\n" if said else "")
        return self._finished(Finished(printed))

    def _finished(self, step: Finished) -> Outcome:
        if self._unknown:
            return Outcome(tuple(self._new), pending=True, made=tuple(self._lines))
        return Outcome(
            tuple(self._new), stdout=step.stdout, value=step.text, made=tuple(self._lines)
        )
