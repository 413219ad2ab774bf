"""One run of a program in a child of the program server (`sandbox.programs`).

The states of a run, and what `advance` sends in each:

| state | sends | until |
|---|---|---|
| ready | the statements that have not run | they have run: ready; one call waits: calling; it ends |
| calling | the result of the last call, then as above | as above |
| ended | nothing | forever |

While statements run, each call of the program is answered immediately with its record (`RunCalls`), unless
the run stops there. A run that is ready or calling may stay open (`OpenRun`). What a child sends is data of
a hostile program: every field is checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from emulator.programs.program import (
    CallRecord,
    Outcome,
    Program,
    ProgramRaised,
    ProgramRejected,
    ProgramTooSlow,
)
from emulator.programs.run_calls import CallRequest, RunCalls, RunRules
from emulator.tools.coercion import ResultText
from sandbox.errors import SandboxLimit, SandboxTimeout
from sandbox.programs.server import ChildProcess

_NO_SYSTEM_CALLS = (
    "a program only computes and calls the offered functions: call one of them instead"
)
_NO_PACKAGES = "a program has Python's standard library only: write it without this package"
_HINTS = {
    "PermissionError": _NO_SYSTEM_CALLS,
    "BlockingIOError": _NO_SYSTEM_CALLS,
    "ModuleNotFoundError": _NO_PACKAGES,
}
"""What to write instead, by the exception."""


class _Malformed(Exception):
    """The child sent what it never sends."""


class ProgramRun:
    """Used by one thread at a time."""

    def __init__(
        self, rules: RunRules, child: ChildProcess, recorded: Sequence[CallRecord], seed: int
    ) -> None:
        self._rules = rules
        self._child = child
        self._seed = seed
        self._sent = Program()
        """The statements that were sent."""
        self._calls = RunCalls(rules, self._sent, recorded)
        self._state = "new"

    @property
    def is_open(self) -> bool:
        return self._state in ("ready", "calling")

    def continues(self, program: Program, recorded: Sequence[CallRecord], seed: int) -> bool:
        """Return True if a run of ``program`` does what this run has done, and then continues it."""
        sent, own = self._sent.statements, self._calls.recorded
        if seed != self._seed or sent != program.statements[: len(sent)]:
            return False
        if self._state == "ready":
            return own == [*recorded]
        waited = len(own) == len(recorded) and own[:-1] == [*recorded[:-1]]
        return waited and recorded[-1].known and recorded[-1].call == own[-1].call

    def advance(
        self, program: Program, recorded: Sequence[CallRecord], held_tools: Collection[str]
    ) -> Outcome:
        """Run to the end of ``program``, or to where it needs a result. At a call of ``held_tools`` that is
        the only one without a result, the run waits in the state calling.

        Raises `ProgramRejected`, SandboxDied.
        """
        calls, state = self._calls, self._state
        calls.program = program
        calls.new.clear()
        self._state = "ended"
        messages: list[dict[str, Any]] = []
        if state == "calling":
            calls.settle(recorded[-1])
            messages.append(self._record(recorded[-1]))
        else:
            messages += [self._opening()] if state == "new" else []
            messages.append(self._statements(program))
        try:
            return self._drive(self._child.ask(*messages), program, held_tools)
        except SandboxTimeout as error:
            message = f"the program ran longer than {error.seconds:g} s"
            raise calls.rejected(message, kind=ProgramTooSlow) from error
        except SandboxLimit as error:
            raise calls.rejected(f"the program used too much: {error.what}") from error
        except _Malformed as error:
            raise calls.rejected("the program sent what no program sends") from error

    def rest(self) -> bool:
        """The run waits for its next statement or result. Returns False if too many runs wait."""
        return self._child.rest()

    def kill(self) -> None:
        """End the run. Callable from any thread."""
        self._child.kill()

    def close(self) -> None:
        self._state = "ended"
        self._child.close()

    # Messages to the child

    def _opening(self) -> dict[str, Any]:
        return {
            "recorded": [self._record(one) for one in self._calls.recorded],
            "tools": sorted(self._rules.toolset.names),
            "preamble": self._rules.toolset.preamble,
            "seed": self._seed,
        }

    def _record(self, record: CallRecord) -> dict[str, Any]:
        tool = self._rules.toolset.find(record.call.name)
        return {
            "key": record.call.key,
            "text": record.result_text,
            "failure": record.failure and record.failure.value,
            "as_text": tool is not None and tool.return_type.kind == "text",
        }

    def _statements(self, program: Program) -> dict[str, Any]:
        """The statements that were not sent yet, with their lines."""
        line = 1
        new: list[tuple[str, int]] = []
        for place, statement in enumerate(program.statements):
            if place >= len(self._sent.statements):
                new.append((statement.source, line))
            line += statement.source.count("\n") + 1
        self._sent = program
        return {"statements": new}

    # Messages from the child

    def _drive(
        self, message: Mapping[str, Any], program: Program, held_tools: Collection[str]
    ) -> Outcome:
        calls = self._calls
        while True:
            self._note_replayed(message)
            unlooked = _positions(message.get("unlooked"))
            if "call" in message:
                request = _call_request(message, unlooked)
                record = calls.answer(request)
                if record is None:
                    calls.end_if_failed(unlooked)
                    return calls.outcome(stopped=True)
                is_held = record.call.name in held_tools and not request.batch
                if is_held and calls.waits_for_one:
                    self._state = "calling"
                    return calls.outcome(stopped=True)
                message = self._child.ask(self._record(record))
            elif message.get("ready") is True:
                if self._sent != program:
                    message = self._child.ask(self._statements(program))
                    continue
                self._state = "ready"
                calls.end_if_failed(unlooked)
                return calls.outcome(stdout=_text(message, "output"), value=_value(message))
            else:
                return self._end(message, unlooked)

    def _note_replayed(self, message: Mapping[str, Any]) -> None:
        for one in _list(message, "replayed"):
            if not isinstance(one, list) or len(one) != 2:
                raise _Malformed
            if len(self._calls.sites) >= len(self._calls.recorded):
                raise _Malformed
            self._calls.replay(_line(one[0]), _number(one[1]))

    def _end(self, message: Mapping[str, Any], unlooked: Sequence[int]) -> Outcome:
        calls, status, stdout = self._calls, message.get("end"), _text(message, "output")
        if status == "raised":
            raise self._raised(message, stdout)
        if status == "limit":
            what = _text(message, "message")[:40]
            raise calls.rejected(f"the program used too much: {what}", stdout=stdout)
        if status not in ("waits", "finished"):
            raise _Malformed
        calls.end_if_failed(unlooked)
        return calls.outcome(stopped=status == "waits", stdout=stdout, value=_value(message))

    def _raised(self, message: Mapping[str, Any], stdout: str) -> ProgramRejected:
        self._calls.end_if_unknown()
        kind, text = _text(message, "error"), _text(message, "message")
        described = f"{kind}: {text}" if text else kind
        line, hint = _line(message.get("line")), _HINTS.get(kind)
        return self._calls.rejected(described, line, hint, stdout=stdout, kind=ProgramRaised)


def _call_request(message: Mapping[str, Any], unlooked: Sequence[int]) -> CallRequest:
    args, kwargs = _list(message, "args"), message.get("kwargs")
    if not isinstance(kwargs, dict):
        raise _Malformed
    passed = [args, kwargs]
    for one in _list(message, "texts"):
        _place_text(passed, one)
    return CallRequest(
        _text(message, "call"),
        args,
        kwargs,
        line=_line(message.get("line")),
        key=_text(message, "key")[:64],
        batch=_number(message.get("batch")),
        unlooked=unlooked,
        passed=_positions(message.get("passed")),
        skips_output=message.get("skipped") is True,
    )


def _place_text(passed: Any, item: Any) -> None:
    """Put a result's own text in the place of its value: the schema decides which of the two is sent."""
    try:
        path, text = item
        *outer, last = path
        for step in outer:
            passed = passed[step]
        passed[last] = ResultText(text, passed[last])
    except (TypeError, ValueError, LookupError) as error:
        raise _Malformed from error


def _list(message: Mapping[str, Any], name: str) -> list[Any]:
    value = message.get(name)
    if not isinstance(value, list):
        raise _Malformed
    return value


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise _Malformed
    return value


def _value(message: Mapping[str, Any]) -> str | None:
    return None if message.get("value") is None else _text(message, "value")


def _number(value: Any) -> int:
    if type(value) is not int:  # not a bool: a line is shown
        raise _Malformed
    return value


def _line(value: Any) -> int:
    return 1 if value is None else _number(value)


def _positions(value: Any) -> Sequence[int]:
    return [] if value is None else [_number(one) for one in _list({"": value}, "")]
