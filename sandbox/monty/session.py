"""One session of Monty: a REPL in a worker process, which pauses where the program calls one of the given
names."""

import ast
import os
import re
import signal
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pydantic_monty as pm

from sandbox.engine import AWAITABLE, CHECK_PREFIX, Finished, Limits, Paused, Step
from sandbox.errors import (
    ProgramFailed,
    SandboxLimit,
    Unsupported,
    compile_failure,
)
from sandbox.inside.values import JSON, RECORDS, NotPlain, plain
from sandbox.monty.errors import MontyErrors, MontyPieces
from sandbox.monty.gaps import BUILTINS, OPAQUE, holds_opaque
from sandbox.monty.language import check
from sandbox.monty.rewrites import expand_lazy_calls, rename_shadowing_variables
from sandbox.parsing import line_map, misplaced, parse

RECORDS[pm.MontyClassProxy] = lambda proxy: proxy.attributes

_GUARDS = re.compile(r"\b(?:try|suppress)\b")


@lru_cache(maxsize=64)  # a program runs again in each of its turns
def _translate(source: str, names: frozenset[str]) -> tuple[str, dict[int, int]]:
    """Rewrite `source` so that Monty runs it as CPython does. Returns the new source, and new line -> old
    line.

    Raises Unsupported, and SyntaxError for errors that only CPython's compiler finds.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source, {}  # Monty reports it too
    for line, words in misplaced(tree):
        raise SyntaxError(words, ("<program>", line, 1, source.splitlines()[line - 1]))
    lines: dict[int, int] = {}
    if expand_lazy_calls(tree) | rename_shadowing_variables(tree):
        source = ast.unparse(ast.fix_missing_locations(tree))
        tree, before = parse(source), tree
        lines = line_map(before, tree)
    check(_WithoutChecks().visit(tree), names)
    return source, lines


class _WithoutChecks(ast.NodeTransformer):
    """Removes the calls of check functions (`CHECK_PREFIX`), which the rules for the language ignore."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name(id=name), [only], []) if name.startswith(CHECK_PREFIX):
                return only
        return node


class MontySession:
    """A REPL in one worker. `_suspended` is the call that waits for `resume`, if any."""

    def __init__(self, checkout: pm.MontySession, names: frozenset[str], limits: Limits) -> None:
        self._checkout = checkout
        self._worker = checkout.worker_pid  # unavailable while it runs
        self._names = names
        self._limits = limits
        self._pieces = MontyPieces()
        self._printed = pm.CollectString()
        self._suspended: pm.FunctionSnapshot | pm.FutureSnapshot | None = None
        self._awaited: dict[int, Paused] = {}
        """Calls of `AWAITABLE` names without a result, by monty's id of the call."""
        self._pauses = 0
        self._guarded = False
        self._errors = MontyErrors(self._pieces, limits, lambda: self._printed.output)

    def run_preamble(self, source: str) -> None:
        step = self._feed(source)
        if not isinstance(step, Finished):
            raise Unsupported("the preamble calls a pausing name")
        self._pieces.end_preamble()

    def start(self, source: str) -> Step:
        if self._suspended is not None:
            raise RuntimeError("the program is paused: resume it before starting another piece")
        return self._feed(self._translated(source))

    def _translated(self, source: str) -> str:
        try:
            source, self._pieces.lines = _translate(source, self._names)
        except SyntaxError as error:
            # CPython compiles the whole piece before it runs any of it.
            raise compile_failure(error.lineno or 1, error.text or "", error.msg) from error
        return source

    def _feed(self, source: str) -> Step:
        self._pieces.add(source)
        self._guarded = self._guarded or bool(_GUARDS.search(source))
        self._printed = pm.CollectString(max_bytes=self._limits.output)
        with self._errors.translate():
            return self._advance(self._checkout.feed_start(source, print_callback=self._printed))

    def resume(self, *results: JSON) -> Step:
        if self._suspended is None:
            raise RuntimeError("the program is not paused")
        call, self._suspended = self._suspended, None
        with self._errors.translate():
            if isinstance(call, pm.FunctionSnapshot):
                return self._advance(call.resume({"return_value": results[0]}))
            settled: dict[int, Any] = {}
            for key, result in zip(list(self._awaited), results, strict=False):
                settled[key] = {"return_value": result}
                del self._awaited[key]
            return self._advance(call.resume(settled))

    def kill(self) -> None:
        if self._worker is not None:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)

    def _advance(self, snapshot: pm.SyncSnapshot) -> Step:
        """Answer requests that do not concern the host, until the program pauses or finishes."""
        while True:
            match snapshot:
                case pm.MontyComplete() if self._awaited:
                    raise Unsupported("monty drops calls that nothing awaits")
                case pm.MontyComplete():
                    return self._finished(snapshot.output)
                case pm.NameLookupSnapshot():
                    snapshot = self._look_up(snapshot)
                case pm.FunctionSnapshot() if snapshot.is_os_function:
                    snapshot = self._refuse(snapshot)
                case pm.FunctionSnapshot() if snapshot.function_name in self._names:
                    try:
                        paused = self._pause(snapshot)
                    except NotPlain as error:
                        snapshot = snapshot.resume({"exception": TypeError(str(error))})
                        continue
                    if snapshot.function_name.startswith(AWAITABLE):
                        self._awaited[snapshot.call_id] = paused
                        snapshot = snapshot.resume({"future": ...})
                        continue
                    if self._awaited:
                        raise Unsupported("monty makes no other call while some are awaited")
                    self._suspended = snapshot
                    return paused
                case pm.FutureSnapshot():
                    self._suspended = snapshot
                    first, *others = self._awaited.values()
                    return replace(first, pending=tuple(others))
                case pm.FunctionSnapshot():
                    snapshot = self._unknown_call(snapshot)
                case _:
                    raise Unsupported("monty waits for a future of the host")

    def _look_up(self, snapshot: pm.NameLookupSnapshot) -> pm.SyncSnapshot:
        name = snapshot.variable_name
        if name in self._names and snapshot.object_id is None:
            if self._guarded:
                # Monty raises if a builtin calls a pausing function back (`map`, `key=`);
                # a program with a try statement would take that for a failure of the tool.
                raise Unsupported(
                    f"{name} is used as a value in a program that catches errors",
                    self._pieces.line(snapshot.position),
                )
            return snapshot.resume(value=_callable_named(name))
        if name in BUILTINS:
            raise Unsupported(f"monty has no {name}", self._pieces.line(snapshot.position))
        return snapshot.resume()

    def _unknown_call(self, snapshot: pm.FunctionSnapshot) -> pm.SyncSnapshot:
        # Monty reports a call of an undefined name as a host call.
        name = snapshot.function_name
        if name in BUILTINS:
            raise Unsupported(f"monty has no {name}", self._pieces.line(snapshot.position))
        return snapshot.resume({"exception": NameError(f"name '{name}' is not defined")})

    def _refuse(self, snapshot: pm.FunctionSnapshot) -> pm.SyncSnapshot:
        # Monty reports open, os.environ and import as host calls too.
        name = snapshot.function_name
        if name == "import":
            raise Unsupported(
                f"monty has no module {snapshot.args[0]}", self._pieces.line(snapshot.position)
            )
        refusal = f"{name} is not permitted in this sandbox; use the given functions instead"
        return snapshot.resume({"exception": PermissionError(refusal)})

    def _pause(self, snapshot: pm.FunctionSnapshot) -> Paused:
        name, line = snapshot.function_name, self._pieces.line(snapshot.position)
        self._pauses += 1
        if self._pauses > self._limits.pauses:
            raise SandboxLimit("calls")
        values = [*snapshot.args, *snapshot.kwargs.values()]
        if any(holds_opaque(value) for value in values):
            raise Unsupported(f"monty loses the type of an argument of {name}", line)
        return Paused(
            name,
            tuple(
                plain(value, f"{name}() argument {i}")
                for i, value in enumerate(snapshot.args, start=1)
            ),
            {
                key: plain(value, f"{name}() argument {key}")
                for key, value in snapshot.kwargs.items()
            },
            line,
        )

    def _finished(self, output: Any) -> Finished:
        stdout = self._printed.output
        if output is None:
            return Finished(stdout)
        if isinstance(output, str) and OPAQUE.match(output):
            return Finished(stdout, None, output)
        try:
            text = _repr(output)
        except ValueError as error:  # CPython does not print a number with so many digits
            raise ProgramFailed(
                "ValueError", str(error), None, f"ValueError: {error}", stdout
            ) from error
        if len(text) > self._limits.output:
            raise SandboxLimit("output")
        try:
            return Finished(stdout, plain(output), text)
        except NotPlain:
            return Finished(stdout, None, text)


def _callable_named(name: str) -> Any:
    """The value of a pausing name that is not called directly. Monty only reads its name."""

    def pausing() -> None: ...

    pausing.__name__ = name
    return pausing


def _repr(value: Any) -> str:
    """repr(value), with objects of the program's classes written as constructor calls."""
    if isinstance(value, pm.MontyClassProxy):
        fields = ", ".join(f"{name}={_repr(item)}" for name, item in value.attributes.items())
        return f"{value.name}({fields})"
    if type(value) is list:
        return f"[{', '.join(map(_repr, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{_repr(k)}: {_repr(v)}' for k, v in value.items())}}}"
    return repr(value)
