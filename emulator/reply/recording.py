"""Record replies in the trace of a request. Does nothing without a trace."""

from __future__ import annotations

from collections.abc import Sequence

from emulator import traces
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reading.readers import Statement, Unreadable
from emulator.reply.verdicts import FinalReply, UnusableReply, Verdict
from emulator.traces import RecordedBlock


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


def record_shown(rule: str) -> None:
    """Record why a block that calls tools is shown to the user instead of run."""
    if (turn := traces.current_turn()) is not None:
        turn.shown_rule = rule


def record_note(note: str) -> None:
    """Record why words are the answer, although the model was asked for another reply."""
    if (turn := traces.current_turn()) is not None:
        turn.note = note


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
