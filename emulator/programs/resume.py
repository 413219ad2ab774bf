"""Programs over turns: take one up that is kept (`saved`) at its pending calls, when their results arrive.

What is kept is never changed. So a request may be repeated, and a conversation may branch off at any
earlier point.
Whatever does not fit (a lost store, edited arguments, a message in between, another outcome in the
replay) means an ordinary turn over the same history, never an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from emulator import traces
from emulator.events import ToolCall, call_id
from emulator.programs.answered import (
    MOST_ROUNDS,
    answered_program,
    fruitless_rounds,
    results_of,
)
from emulator.programs.driver import Driver
from emulator.programs.ended import ProgramEnded, ended_well
from emulator.programs.program import (
    Call,
    Diverged,
    Outcome,
    ProgramRaised,
    ProgramRejected,
    ProgramTooSlow,
    Recorded,
)
from emulator.programs.saved import Saved, dropped, find, with_result
from emulator.protocol import Message
from emulator.reading.diagnostics import render
from emulator.storage.key_value import KeyValueStore
from emulator.traces import RecordedCall, Resumed
from sandbox.errors import SandboxBusy, SandboxError

# Why a program was dropped, by what its run raised.
_REASONS: Mapping[type[Exception], str] = {
    ProgramTooSlow: "slow",
    Diverged: "diverged",
    SandboxBusy: "busy",
}


@dataclass(frozen=True)
class ProgramContinued:
    """The program sent further calls, or asks again for results, without a model turn.

    ``saved`` is what to keep, None where nothing has changed.
    """

    saved: Saved | None
    calls: Sequence[ToolCall]


def resume(
    store: KeyValueStore, driver: Driver, messages: Sequence[Message], client: str = ""
) -> ProgramContinued | ProgramEnded | None:
    """Run on the program whose results end ``messages``; None when ``client`` has none to run on.

    A sandbox that is busy, slow or broken is not the program's fault: that is None too.
    """
    saved = answered_program(messages, partial(find, store))
    if saved is None:
        return None
    start = beginning(messages, set(saved.ids))
    if not saved.origin.fits(client, messages, start):
        return None
    answered = _with_results(saved, messages)
    _record(answered)
    if answered.failure:
        return (
            _asked_again(answered, messages) if answered.pending() else _given_up(driver, answered)
        )
    try:
        outcome = driver.run(answered.program, answered.recorded, answered.seed)
    except (ProgramTooSlow, Diverged, SandboxError) as error:
        dropped(_REASONS.get(type(error), "sandbox"), error)
        return None
    except ProgramRejected as error:
        _record(replace(answered, failure=render(error.diagnostics)))
        if isinstance(error, ProgramRaised) and error.calls:
            return _going_on(answered, error.calls)  # and it fails again behind their results
        return _failed(driver, replace(answered, failure=render(error.diagnostics)), error)
    _record(answered, outcome)
    if not outcome.pending:
        return ended_well(saved.program, outcome, saved.ids, driver.toolset, written=saved.written)
    if not outcome.calls:
        return _asked_again(answered, messages)
    return _going_on(answered, outcome.calls)


def _record(answered: Saved, outcome: Outcome | None = None) -> None:
    """What the trace of the request is told of the program; of one without an outcome, that it was there."""
    if (trace := traces.current.get()) is None:
        return
    calls = tuple(
        RecordedCall(key, one.call.name, one.call.arguments, one.result, one.known)
        for key, one in zip(answered.ids, answered.recorded, strict=True)
    )
    source = answered.program.source
    if outcome is None:
        trace.resumed = Resumed(source, calls, outcome="failed", output=answered.failure)
    else:
        lines = tuple(line for line, _ in outcome.made)
        came_to = "waits" if outcome.pending else "ended"
        trace.resumed = Resumed(source, calls, lines, came_to, outcome.output)


def _going_on(answered: Saved, calls: Sequence[Call]) -> ProgramContinued:
    """The program behind further calls."""
    fresh = tuple(_new_id(answered, n) for n in range(len(calls)))
    after = replace(
        answered,
        recorded=(*answered.recorded, *(Recorded(call) for call in calls)),
        ids=(*answered.ids, *fresh),
    )
    return ProgramContinued(after, after.pending()[-len(fresh) :])


def _with_results(saved: Saved, messages: Sequence[Message]) -> Saved:
    """The program with what the history has of its results; one that is known stays as it was."""
    results = results_of(messages, set(saved.ids))
    return replace(
        saved,
        recorded=tuple(
            with_result(one, results[key]) if not one.known and key in results else one
            for key, one in zip(saved.ids, saved.recorded, strict=True)
        ),
    )


def _asked_again(answered: Saved, messages: Sequence[Message]) -> ProgramContinued | None:
    """The calls whose results are nowhere, as long as asking brings any.

    What is kept stays as it is: the next request brings all results again.
    """
    if fruitless_rounds(messages, set(answered.ids)) >= MOST_ROUNDS:
        dropped("unanswered", LookupError("the client does not answer all calls"))
        return None
    return ProgramContinued(None, answered.pending())


def beginning(messages: Sequence[Message], ids: Collection[str]) -> int:
    """The place of the first message that made one of the calls ``ids``."""
    return next(
        place
        for place, message in enumerate(messages)
        if any(call.id in ids for call in message.tool_calls or ())
    )


def _given_up(driver: Driver, saved: Saved) -> ProgramEnded:
    """What was made of a program whose rest could not be used when the model wrote it."""
    try:
        outcome = driver.run(saved.program, saved.recorded, saved.seed)
    except ProgramRejected as error:
        return _failed(driver, saved, error)
    except (Diverged, SandboxError):
        return ProgramEnded(saved.program.source, saved.ids, failure=saved.failure)
    printed = "" if outcome.pending else outcome.stdout.rstrip("\n")
    return ProgramEnded(saved.program.source, saved.ids, output=printed, failure=saved.failure)


def _failed(driver: Driver, saved: Saved, error: ProgramRejected) -> ProgramEnded:
    """What a program made before ``error``: what its run says that it printed, or else what the statements
    before the faulty one print."""
    printed = error.stdout
    before = saved.program.before(error.diagnostics[0].line)
    if not printed and before.statements:
        try:
            outcome = driver.run(before, saved.recorded, saved.seed)
        except (ProgramRejected, Diverged, SandboxError):
            pass
        else:
            printed = "" if outcome.pending else outcome.stdout
    return ProgramEnded(
        saved.program.source, saved.ids, output=printed.rstrip("\n"), failure=saved.failure
    )


def _new_id(before: Saved, place: int) -> str:
    """The same for the same program with the same results, so that a repeated request is idempotent."""
    return call_id(hashlib.sha256(before.dump()).hexdigest(), place)
