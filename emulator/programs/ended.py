"""Ended programs and cells, which later turns show as the model wrote them.

A history in which a result differs shows the program's calls and results instead. Knows nothing of prompts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from emulator.core.events import ProgramFinished, program_id
from emulator.core.protocol import ChatCompletionRequest, Message
from emulator.programs.basis import result_digest
from emulator.programs.call_history import call_positions, results_of
from emulator.programs.direct_calls import direct_call_ids
from emulator.programs.program import Outcome, Program
from emulator.tools.toolset import Toolset


@dataclass(frozen=True)
class EndedProgram:
    """A program that completed or failed."""

    source: str
    ids: tuple[str, ...]
    """The ids of its calls, in the order in which they were made."""
    statement_calls: tuple[str, ...] = ()
    """The ids of calls that are whole statements, or the model's own. The model sees their results."""
    output: str = ""
    failure: str = ""
    """The error message for the model; "" if the program completed."""
    results: str = ""
    """The digest of its calls' results (`results_digest`), once it is stored."""


@dataclass(frozen=True)
class PlacedProgram:
    """An ended program and the messages that it covers: from its first call up to, not including,
    ``stop``."""

    start: int
    stop: int
    program: EndedProgram


def completed_program(
    program: Program,
    outcome: Outcome,
    ids: Sequence[str],
    toolset: Toolset,
    *,
    original_source: str = "",
) -> EndedProgram:
    """The record of a program that reached its end; ``ids`` are those of all its calls.

    The value of the last expression is output, unless the expression is a call: then its result is shown.
    """
    calls = set(_statement_calls(program.tree.body, toolset))
    own = direct_call_ids(ids, [name for _, name in outcome.call_sites], toolset)
    statement_call_ids = tuple(
        key
        for key, site in zip(ids, outcome.call_sites, strict=False)
        if site in calls or key in own
    )
    last = program.tree.body[-1]
    ends_with_call = any(line == last.lineno for line, _ in calls)
    output = outcome.stdout.rstrip("\n") if ends_with_call else outcome.output
    return EndedProgram(
        original_source.strip("\n") or program.source, tuple(ids), statement_call_ids, output
    )


def shows_only_calls(ended: EndedProgram) -> bool:
    """Return True if the program's calls and their results show all that it did."""
    return not (ended.output or ended.failure) and set(ended.statement_calls) == set(ended.ids)


def finished_program(
    chat: ChatCompletionRequest, ended: EndedProgram | None = None
) -> ProgramFinished | None:
    """How the last program ends that the history shows without an end, if the client sees programs.

    A program that did not become ``ended`` cannot continue.
    """
    programs = [message.program for message in chat.messages if message.program is not None]
    if not (chat.shows_programs and programs and programs[-1].result is None):
        return None
    key = programs[-1].id
    if ended is None or program_id(ended.ids[0]) != key:
        return ProgramFinished(key, "", failed=True)
    output = "\n\n".join(part for part in (ended.output, ended.failure) if part)
    return ProgramFinished(key, output, failed=bool(ended.failure))


def is_shown(ended: EndedProgram, messages: Sequence[Message]) -> bool:
    """Return True if the history shows the program itself, besides its calls."""
    programs = (message.program for message in messages)
    return any(one is not None and one.id == program_id(ended.ids[0]) for one in programs)


def with_finished_program(messages: Sequence[Message], end: ProgramFinished) -> list[Message]:
    """The messages, which show the end of a program."""
    update = {"result": end.output, "failed": end.failed}
    return [
        message.model_copy(update={"program": message.program.model_copy(update=update)})
        if message.program is not None and message.program.id == end.id
        else message
        for message in messages
    ]


def shown_programs(messages: Sequence[Message]) -> Iterator[PlacedProgram]:
    """The ended programs that the client's history shows."""
    for message in messages:
        shown = message.program
        if shown is None or shown.result is None:
            continue
        calls = (call for m in messages for call in m.tool_calls or ())
        ids = tuple(call.id for call in calls if call.caller == shown.id)
        output, failure = ("", shown.result) if shown.failed else (shown.result, "")
        ended = EndedProgram(shown.code.strip("\n"), ids, output=output, failure=failure)
        if (place := locate_program(ended, messages)) is not None:
            yield place


def drop_overlaps(programs: Iterable[PlacedProgram]) -> list[PlacedProgram]:
    """The programs in the order of the history, without those that overlap an earlier one."""
    chosen: list[PlacedProgram] = []
    for one in sorted(programs, key=lambda one: one.start):
        if not chosen or one.start >= chosen[-1].stop:
            chosen.append(one)
    return chosen


def locate_program(ended: EndedProgram, messages: Sequence[Message]) -> PlacedProgram | None:
    """Find the messages that ``ended`` covers. Returns None unless they have calls and results of it, and
    the results that it had."""
    if ended.results and ended.results != results_digest(ended.ids, messages):
        return None
    ids = set(ended.ids)
    calls = call_positions(messages, ids)
    results = [at for at, m in enumerate(messages) if m.tool_call_id in ids]
    if not calls or not results:
        return None
    return PlacedProgram(calls[0], max(calls[-1], results[-1]) + 1, ended)


def _statement_calls(statements: Sequence[ast.stmt], toolset: Toolset) -> Iterator[tuple[int, str]]:
    """Line and wire name of each tool call that is a statement, or an item of a display that is a statement.

    Calls inside functions and classes do not count.
    """
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.Expr):
            names = [_tool_name(leaf, toolset) for leaf in _leaves(statement.value)]
            if all(names):
                yield from ((statement.lineno, name) for name in names if name)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statement_calls(getattr(statement, field, ()), toolset)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _statement_calls(part.body, toolset)


def _leaves(value: ast.expr) -> Iterator[ast.expr]:
    """The items of a display, through nested displays; another expression itself."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _leaves(part)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            yield from _leaves(part)
        case _:
            yield value


def _tool_name(value: ast.expr, toolset: Toolset) -> str | None:
    """The wire name of the tool that ``value`` calls, awaited or not."""
    call = value.value if isinstance(value, ast.Await) else value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return None
    tool = toolset.find(call.func.id)
    return tool.name if tool else None


def results_digest(ids: Sequence[str], messages: Sequence[Message]) -> str:
    """A digest of the results of the calls ``ids`` in a history."""
    results = results_of(messages, ids)
    digests = [result_digest(results[key]) if key in results else "" for key in ids]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
