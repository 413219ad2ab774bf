"""Resume a suspended program when the results of its calls arrive, by running it again from its first line.

States of a program, over the requests of one conversation:

* **running**: only within one request, in a fresh child (`driver`);
* **suspended**: its new calls are sent to the client, and a `SavedProgram` is stored with them;
* **ended**: completed, or failed with a reason. The model is asked next and sees the program with its
  output; the `EndedProgram` is stored with the answer (`emulator.history`);
* **dropped**: the model is asked as if there had been no program.

Transitions:

* running -> suspended: a call is pending, whether the run stopped there or reached its last line. A
  program that raises *after* new calls is suspended as well: it raises again once their results are
  known;
* running -> ended: it completed or raised, and no call is pending;
* suspended -> running: a request ends with a result of one of its calls. Recorded calls are replayed with
  their results; the first call that is not recorded is new;
* suspended -> suspended: results are missing, and the run makes no new call. The pending calls are sent
  again with their ids, at most `MAX_UNANSWERED_ROUNDS` times without a new result;
* suspended -> dropped: the history has changed where its results depend on it (`what_changed`), or the run
  fails (a replay that diverges, a broken sandbox). This is never an error;
* suspended -> suspended: the sandbox is busy. That is an error, and a repeated request resumes the program;
  but in the middle of an answer, which has no status any more, the program is dropped.

What may never happen:

* A stored record changes. Each turn stores a new one, so a request may be repeated (it gets the same
  ids), and a conversation may branch at any earlier turn.
* A call is sent twice with different ids.
* A known result is replaced or forgotten, even if the client cuts it out of its history later.
* Output that may depend on a pending call is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emulator import traces
from emulator.core.events import ToolCall, call_id, program_id
from emulator.core.protocol import Message
from emulator.programs.basis import Basis, result_digest, what_changed
from emulator.programs.call_history import (
    MAX_UNANSWERED_ROUNDS,
    failures_of,
    results_of,
    unanswered_rounds,
)
from emulator.programs.direct_calls import direct_call_ids
from emulator.programs.driver import Driver
from emulator.programs.ended import EndedProgram, completed_program
from emulator.programs.program import (
    Call,
    CallRecord,
    Outcome,
    ProgramRaised,
    ProgramRejected,
    ProgramTooSlow,
    ReplayDiverged,
)
from emulator.programs.saved import SavedProgram, report_dropped, with_result
from emulator.reading.diagnostics import render
from emulator.tools.toolset import BindError, Toolset
from emulator.traces import RecordedCall, ResumedProgram
from sandbox.errors import SandboxBusy, SandboxError

#: The metric's label for a dropped program, by the exception of its run.
_REASONS: Mapping[type[Exception], str] = {
    ProgramTooSlow: "slow",
    ReplayDiverged: "diverged",
}


@dataclass(frozen=True)
class ContinuedProgram:
    """The program sends ``calls``, new or sent again, without a model turn.

    ``saved`` is the record to store; None if nothing has changed.
    """

    saved: SavedProgram | None
    calls: Sequence[ToolCall]


def resume(
    driver: Driver,
    saved: SavedProgram,
    messages: Sequence[Message],
    client: str = "",
    *,
    drops_if_busy: bool = False,
) -> ContinuedProgram | EndedProgram | None:
    """Resume ``saved`` with the results in ``messages``. Returns None if it is dropped.

    Raises `SandboxBusy`, unless it is dropped then.
    """
    try:
        return _resume(driver, saved, messages, client)
    except SandboxBusy as error:
        if not drops_if_busy:
            raise
        _drop(saved, "busy", error)
        return None


def _resume(
    driver: Driver, saved: SavedProgram, messages: Sequence[Message], client: str
) -> ContinuedProgram | EndedProgram | None:
    calls = {key: one.call for key, one in zip(saved.ids, saved.recorded, strict=True)}
    if change := what_changed(messages, calls, _basis(saved), client, driver.toolset):
        reason, why = change
        _drop(saved, reason, LookupError(why))
        return None
    results = results_of(messages, calls)
    unknown = {key for key, one in zip(saved.ids, saved.recorded, strict=True) if not one.known}
    failures = failures_of(messages, unknown)
    updated = replace(
        saved,
        recorded=tuple(
            with_result(one, results[key], failures[key])
            if not one.known and key in results
            else one
            for key, one in zip(saved.ids, saved.recorded, strict=True)
        ),
    )
    _trace(updated)
    if updated.failure:
        waits = updated.pending() and not any(one.failure for one in updated.recorded)
        return _resend(updated, messages, driver.toolset) if waits else _abandon(driver, updated)
    try:
        outcome = driver.run(updated.program, updated.recorded, updated.seed)
    except SandboxBusy:
        raise
    except (ProgramTooSlow, ReplayDiverged, SandboxError) as error:
        _drop(updated, _REASONS.get(type(error), "sandbox"), error)
        return None
    except ProgramRejected as error:
        if not all(_is_offered(one.call, driver.toolset) for one in updated.recorded):
            _drop(updated, "tools", error)
            return None
        failed = replace(updated, failure=render(error.diagnostics))
        _trace(failed)
        if isinstance(error, ProgramRaised) and error.calls:
            return _suspend(updated, error.calls, driver.toolset)
        return _failed_program(driver, failed, error)
    _trace(updated, outcome)
    if not outcome.pending:
        return completed_program(
            saved.program, outcome, saved.ids, driver.toolset, original_source=saved.original_source
        )
    if not outcome.calls:
        return _resend(updated, messages, driver.toolset)
    return _suspend(updated, outcome.calls, driver.toolset)


def _basis(saved: SavedProgram) -> Basis:
    known = zip(saved.ids, saved.recorded, strict=True)
    results = {key: result_digest(one.result_text or "") for key, one in known if one.known}
    return Basis(saved.question, results)


def _drop(saved: SavedProgram, reason: str, error: Exception) -> None:
    report_dropped(reason, error)
    _trace(saved, state="dropped")


def _is_offered(call: Call, toolset: Toolset) -> bool:
    """Return True unless the request has changed the call's tool so that the call would be refused."""
    tool = toolset.find(call.name)
    if tool is None or call.kind != "function":
        return tool is not None
    names = {argument.name: argument.python_name for argument in tool.arguments}
    arguments = {names.get(name, name): value for name, value in call.arguments.items()}
    try:
        toolset.bind(tool.python_name, (), arguments)
    except BindError:
        return False
    return True


def _trace(updated: SavedProgram, outcome: Outcome | None = None, state: str = "failed") -> None:
    """Record the program in the request's trace, in this ``state`` unless there is an ``outcome``."""
    if (trace := traces.current.get()) is None:
        return
    calls = tuple(
        RecordedCall(key, one.call.name, one.call.arguments, one.result, one.known)
        for key, one in zip(updated.ids, updated.recorded, strict=True)
    )
    source = updated.program.source
    if outcome is None:
        trace.resumed = ResumedProgram(source, calls, outcome=state, output=updated.failure)
    else:
        lines = tuple(line for line, _ in outcome.call_sites)
        state = "waits" if outcome.pending else "ended"
        trace.resumed = ResumedProgram(source, calls, lines, state, outcome.output)


def _suspend(updated: SavedProgram, calls: Sequence[Call], toolset: Toolset) -> ContinuedProgram:
    """Send new calls, and store the program under their ids.

    The ids are a hash of the program and its results, so a repeated request gets the same ids.
    """
    digest = hashlib.sha256(updated.dump()).hexdigest()
    ids = tuple(call_id(digest, position) for position in range(len(calls)))
    after = replace(
        updated,
        recorded=(*updated.recorded, *(CallRecord(call) for call in calls)),
        ids=(*updated.ids, *ids),
    )
    return ContinuedProgram(after, _pending(after, toolset)[-len(ids) :])


def _pending(saved: SavedProgram, toolset: Toolset) -> list[ToolCall]:
    """The pending calls; those that the program itself makes name it, if the client sees it."""
    own = direct_call_ids(saved.ids, [one.call.name for one in saved.recorded], toolset)
    caller = program_id(saved.ids[0]) if saved.is_shown else ""
    return [replace(one, caller="" if one.id in own else caller) for one in saved.pending()]


def _resend(
    updated: SavedProgram, messages: Sequence[Message], toolset: Toolset
) -> ContinuedProgram | None:
    """Send the pending calls again, up to `MAX_UNANSWERED_ROUNDS` times. The stored record is not changed."""
    if unanswered_rounds(messages, set(updated.ids)) >= MAX_UNANSWERED_ROUNDS:
        problem = LookupError("the client does not answer all calls")
        _drop(updated, "unanswered", problem)
        return None
    return ContinuedProgram(None, _pending(updated, toolset))


def _abandon(driver: Driver, saved: SavedProgram) -> EndedProgram:
    """End a program whose rest was unusable when the model wrote it, with what its usable part prints."""
    try:
        outcome = driver.run(saved.program, saved.recorded, saved.seed)
    except ProgramRejected as error:
        return _failed_program(driver, saved, error)
    except SandboxBusy:
        raise
    except (ReplayDiverged, SandboxError):
        return EndedProgram(saved.program.source, saved.ids, failure=saved.failure)
    output = "" if outcome.pending else outcome.stdout.rstrip("\n")
    return EndedProgram(saved.program.source, saved.ids, output=output, failure=saved.failure)


def _failed_program(driver: Driver, saved: SavedProgram, error: ProgramRejected) -> EndedProgram:
    """The program with what it printed before ``error``.

    If the error does not carry the output, the statements before the faulty one run again for it.
    """
    stdout = error.stdout
    before = saved.program.before(error.diagnostics[0].line)
    if not stdout and before.statements:
        try:
            outcome = driver.run(before, saved.recorded, saved.seed)
        except SandboxBusy:
            raise
        except (ProgramRejected, ReplayDiverged, SandboxError):
            pass
        else:
            stdout = "" if outcome.pending else outcome.stdout
    own = direct_call_ids(saved.ids, [one.call.name for one in saved.recorded], driver.toolset)
    output = stdout.rstrip("\n")
    return EndedProgram(saved.program.source, saved.ids, own, output, saved.failure)
