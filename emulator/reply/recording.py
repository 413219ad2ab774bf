"""Record replies in the trace of a request. Does nothing without a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator import traces
from emulator.programs.program import Program
from emulator.programs.validate import UnknownCall
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reading.readers import Statement, Unreadable
from emulator.reply.question import Question
from emulator.reply.verdicts import Fault, FinalReply, UnusableReply, Verdict
from emulator.traces import RecordedBlock

ANY_ACTS = 'a profile with acts = "any" runs every valid call of a model that never labels it'
FIT = "`tool-emulator fit` finds the way of calling that suits this model"
SAID_RUN = "said RUN"
_REASONS: Mapping[Fault, str] = {
    "invalid": "its code could not be used",
    "required": "it had no call, which tool_choice requires",
    "empty": "it was empty",
    "output": "its code called no function",
    "cut": "it was cut off in a call",
    "format": "it had another form than response_format",
}
_WAYS: Mapping[Fault, str] = {
    "cut": "raise max_tokens, or the context length of the model server",
    "format": 'the setting response_format = "pass" leaves the format to the model server',
}
_MAX_QUOTED = 200


def record_reply(pieces: list[str], reasoning: list[str]) -> None:
    """Start a reply. Later pieces are appended to the same lists, so the trace sees them too."""
    if (turn := traces.current_turn()) is not None:
        turn.reply, turn.reasoning = pieces, reasoning


def record_block(
    dialect: str,
    pieces: Sequence[str],
    statements: Sequence[Statement],
    error: Unreadable | None = None,
    *,
    quoted: bool = False,
) -> None:
    if (turn := traces.current_turn()) is not None:
        read = tuple((one.line, one.source) for one in statements)
        problem = "" if error is None else render(error.diagnostics)
        turn.add_block(RecordedBlock(dialect, "".join(pieces), read, problem, quoted))


def record_run(
    program: Program, call_sites: Sequence[tuple[int, str]] = (), ids: Sequence[str] = ()
) -> None:
    """Record a program and the lines of its calls; ``ids`` belong to all its calls so far."""
    if (turn := traces.current_turn()) is not None:
        turn.program = program.source
        for key, (line, _) in zip(ids, call_sites, strict=False):
            turn.lines[key] = line


def note_shown(row: str) -> None:
    """Note that a block which calls tools is shown to the user instead of run."""
    traces.note("shown", f"Code was shown to the user, not run: {row}.", ANY_ACTS)


def note_question(question: Question, answer: str) -> None:
    """``answer`` is what the model did then."""
    [first, *_] = question.blocks[0].strip().splitlines() or [""]
    code = f"{first[:_MAX_QUOTED]}{' ...' if question.blocks[0].strip() != first else ''}"
    words = (
        f"The model was asked whether `{code}` should run, because {question.reason}. It {answer}."
    )
    traces.note("asked", words, "" if answer == SAID_RUN else ANY_ACTS)


def note_repair(verdict: UnusableReply) -> None:
    """Note that the model is asked for a better reply."""
    found = verdict.facts.get("diagnostics") or ()
    first = found if isinstance(found, str) else next(map(_text, found), "")
    fault = first.partition("\n")[0].removeprefix("error: ")[:_MAX_QUOTED]
    reason = _REASONS[verdict.kind] + (f": {fault}" if fault else "")
    words = f"The model was asked for another reply, because {reason}"
    unknown = next((one for one in found if isinstance(one, UnknownCall)), None)
    if unknown is None:
        traces.note("repaired", f"{words}.", _WAYS.get(verdict.kind, FIT))
    else:
        way = "offer it, or say in the descriptions when to use the tools that are offered"
        traces.note("unknown-name", f"{words} ({unknown.hint}).", way)


def record_cell(code: str) -> None:
    if (turn := traces.current_turn()) is not None:
        turn.cell = code


def record_verdict(verdict: Verdict, finish_reason: str | None) -> None:
    turn = traces.current_turn()
    if turn is None:
        return
    turn.finish_reason = finish_reason
    if isinstance(verdict, UnusableReply):
        turn.verdict = verdict.kind
        found = verdict.facts.get("diagnostics") or ""
        turn.diagnostics = found if isinstance(found, str) else "\n\n".join(map(_text, found))
    else:
        turn.verdict = "answered" if isinstance(verdict, FinalReply) else "ran"


def _text(diagnostic: object) -> str:
    return diagnostic.render() if isinstance(diagnostic, Diagnostic) else str(diagnostic)
