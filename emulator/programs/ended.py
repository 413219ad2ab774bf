"""Programs and cells that are over, kept so that later turns can show them as the model wrote them.

What is kept stands under the id of a program's last call and that call's result, and holds a digest of all
its results: a history in which any of them is another finds nothing. Where a record is lost, the history
shows the program's calls and their results. Knows nothing of prompts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import structlog

from emulator import json_codec
from emulator.programs.displays import leaves
from emulator.programs.program import Outcome, Program
from emulator.protocol import Message
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed
from emulator.tools.toolset import Toolset

log = structlog.get_logger()


@dataclass(frozen=True)
class ProgramEnded:
    """A program that came to its end, or failed."""

    source: str
    ids: tuple[str, ...]
    """Of its calls, in the order in which they were made."""
    alone: tuple[str, ...] = ()
    """Of the calls that stood as statements of their own: their results are for the model to see."""
    output: str = ""
    failure: str = ""
    """What went wrong, in words for the model."""


@dataclass(frozen=True)
class Placed:
    """An ended program and its place in a history: from its first call to behind its last result."""

    start: int
    stop: int
    ended: ProgramEnded


def ended_well(
    program: Program, outcome: Outcome, ids: Sequence[str], toolset: Toolset, *, written: str = ""
) -> ProgramEnded:
    """What a program made that came to its end; ``ids`` are those of all its calls."""
    standing = set(_standing_calls(program.read.body, toolset))
    alone = tuple(key for key, made in zip(ids, outcome.made, strict=False) if made in standing)
    last = program.read.body[-1]
    stands = any(line == last.lineno for line, _ in standing)
    shown = outcome.stdout.rstrip("\n") if stands else outcome.output
    return ProgramEnded(written.strip("\n") or program.source, tuple(ids), alone, shown)


def only_calls(ended: ProgramEnded) -> bool:
    """Whether the program made nothing of its results: its calls and these tell all that it was."""
    return not (ended.output or ended.failure) and set(ended.alone) == set(ended.ids)


def remember(
    store: KeyValueStore, client: str, ended: ProgramEnded, messages: Sequence[Message]
) -> None:
    """Keep ``ended`` for later turns of ``client``. A failing store is logged, not raised."""
    results = _results(messages)
    last = ended.ids[-1]
    if last not in results:
        return  # the client has forgotten it
    value = json_codec.dumps({**asdict(ended), "results": _digest(ended.ids, results)})
    if len(value) > MAX_VALUE_BYTES:
        log.warning("ended program not kept: it is too large", bytes=len(value))
        return
    try:
        store.put({_key(client, last, results[last]): value})
    except StoreFailed as error:
        log.warning("ended program not kept", reason=str(error))


def keys(client: str, messages: Sequence[Message]) -> list[str]:
    """Where the ended programs of a client's history may be kept."""
    return [_key(client, call, text) for call, text in _results(messages).items()]


def remembered(values: Iterable[bytes], messages: Sequence[Message]) -> list[Placed]:
    """The ended programs of a history, given what is kept under its `keys`."""
    results = _results(messages)
    loaded = (_load(value, results) for value in values)
    return [at for ended in loaded if ended and (at := placed(ended, messages))]


def apart(programs: Iterable[Placed]) -> list[Placed]:
    """Those that do not overlap, in order."""
    chosen: list[Placed] = []
    for one in sorted(programs, key=lambda one: one.start):
        if not chosen or one.start >= chosen[-1].stop:
            chosen.append(one)
    return chosen


def placed(ended: ProgramEnded, messages: Sequence[Message]) -> Placed | None:
    """Where ``ended`` stands in ``messages``; None if it does not."""
    ids = set(ended.ids)
    made = [
        at for at, m in enumerate(messages) if any(call.id in ids for call in m.tool_calls or ())
    ]
    answered = [at for at, m in enumerate(messages) if m.tool_call_id in ids]
    if not made or not answered:
        return None
    return Placed(made[0], max(made[-1], answered[-1]) + 1, ended)


def _standing_calls(statements: Sequence[ast.stmt], toolset: Toolset) -> Iterator[tuple[int, str]]:
    """Lines on which a call of a tool, or a list of calls, stands as a statement, outside functions, and the
    tool's wire name."""
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.Expr):
            found = [_called(leaf, toolset) for leaf in leaves(statement.value)]
            if all(found):
                yield from ((statement.lineno, name) for name in found if name)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _standing_calls(getattr(statement, field, ()), toolset)
        for handler in getattr(statement, "handlers", ()):
            yield from _standing_calls(handler.body, toolset)
        for case in getattr(statement, "cases", ()):
            yield from _standing_calls(case.body, toolset)


def _called(value: ast.expr, toolset: Toolset) -> str | None:
    """The wire name of the tool that ``value`` calls."""
    call = value.value if isinstance(value, ast.Await) else value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        return None
    tool = toolset.find(call.func.id)
    return tool.name if tool else None


def _results(messages: Sequence[Message]) -> dict[str, str]:
    return {m.tool_call_id: m.text for m in messages if m.role == "tool" and m.tool_call_id}


def _key(client: str, last: str, result: str) -> str:
    # The ids of calls are no secret: what one client's program said is not for another.
    return f"ended:{_hash(_hash(client) + _hash(last) + _hash(result))}"


def _digest(ids: Sequence[str], results: Mapping[str, str]) -> str:
    return _hash("".join(_hash(results.get(key, "")) for key in ids))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _load(value: bytes, results: Mapping[str, str]) -> ProgramEnded | None:
    """What `remember` kept, if ``results`` hold all results that it had; None for anything else."""
    try:
        kept = json_codec.loads(value)
        ended = ProgramEnded(
            str(kept["source"]),
            tuple(map(str, kept["ids"])),
            tuple(map(str, kept["alone"])),
            str(kept["output"]),
            str(kept["failure"]),
        )
        fits = _digest(ended.ids, results) == kept["results"]
    except (ValueError, TypeError, KeyError):
        return None
    return ended if fits else None
