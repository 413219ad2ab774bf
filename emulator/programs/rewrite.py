"""Rewrite a program so that it can run before the results of its calls are known.

A call whose result is unknown returns a placeholder (`placeholder.py`), and the program continues with
it. Each operation that inspects a value which may be a placeholder (`inspections.py`) gets the value
through a check function, which pauses the program if it is one; then the run is over. So:

* a call ``f(x)`` becomes ``_check_result(_deferred_3_f(x))``: the host may return a placeholder. 3 is the
  *site* of the display or comprehension that makes the call simultaneous with others (`order.py`), 0
  means none;
* ``a + b`` becomes ``_check(a) + _check(b)``, ``sorted(a)`` becomes ``sorted(_check_deep(a))``. If a
  later operand may call or assign something, all operands are evaluated first: ``((_value_1 := a),
  (_value_2 := f())) and _check(_value_1) + _check(_value_2)``;
* ``[f(1), g(2)]`` becomes ``_batch(3) or [...]``;
* ``print`` inspects nothing, because the output of a stopped run is thrown away, unless the program can
  read its own output;
* code that is called by other code (lambdas, generators, callbacks) waits at each tool call, and inspects
  deep what it returns.

A program that could bypass the checks (``exec``, ``locals``, classes) runs unchanged: it waits at each
tool call. So does a program with an event loop (`event_loops`): it waits when no coroutine can continue.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from emulator.cached_property import cached_property
from emulator.programs.async_code import make_plain
from emulator.programs.event_loops import wait_together
from emulator.programs.handling import Handling, mark_handling
from emulator.programs.number_uses import convert_numbers
from emulator.programs.operands import NotAnalyzable
from emulator.programs.placeholder import PREAMBLE
from emulator.programs.scopes import restore, separate
from emulator.programs.sites import expand_generators
from emulator.programs.statements import StatementRewriter
from emulator.programs.text_results import calls_read_as_text
from emulator.programs.top_level_return import rewrite_returns
from sandbox.engine import CHECK_PREFIX
from sandbox.parsing import line_map, parse


@dataclass(frozen=True)
class RewrittenProgram:
    """A program in the form that engines run."""

    source: str
    lines: dict[int, int]
    """Line of ``source`` -> line of the original program."""
    deferred: Mapping[str, tuple[int, str]]
    """Name of a call that may return a placeholder -> its site and its tool's name."""
    texts: Mapping[tuple[int, str], bool]
    """The calls whose results the program uses as text (`text_results`), by original line and tool name."""
    holds_texts: bool = False
    """The program gets scalar results as texts, and converts them where it uses a number."""
    handling: Handling = field(default_factory=Handling)
    """How the program handles failed results, if some of its calls have failed."""
    awaitable: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The same as `deferred` for calls whose results a program with an event loop awaits (`event_loops`)."""

    def line(self, line: int) -> int:
        """The original line of a line of ``source``; inside a statement that of its first line."""
        before = bisect_right(self._statement_lines, line)
        return self.lines[self._statement_lines[before - 1]] if before else 0

    @cached_property
    def _statement_lines(self) -> list[int]:
        return sorted(self.lines)

    @property
    def preamble(self) -> str:
        """What must run before ``source``."""
        return (PREAMBLE if self.deferred else "") + self.handling.preamble


@lru_cache(maxsize=64)  # a program runs again in each of its turns
def rewrite(
    program: str, tools: frozenset[str], *, holds_texts: bool = False, has_failures: bool = False
) -> RewrittenProgram:
    """Rewrite ``program`` for an engine that pauses at the calls of ``tools``.

    With ``holds_texts`` it holds numbers, booleans and null of results as their texts (`number_uses`).
    With ``has_failures`` some results are failures: the places that handle them are marked (`handling`).
    """
    holds_texts = holds_texts and CHECK_PREFIX not in program
    tree, is_plain = _parse(program, tools)
    texts = calls_read_as_text(tree, tools)
    deferred: Mapping[str, tuple[int, str]] = {}
    handling = Handling()
    if is_plain:
        handling = mark_handling(tree, tools) if has_failures else handling
        try:
            rewriter = StatementRewriter(tree, tools)
            tree.body = rewriter.block(tree.body)
            deferred = rewriter.deferred
        except (NotAnalyzable, RecursionError):
            pass
        if not deferred:  # no value is ever unknown
            tree, _ = _parse(program, tools)
            handling = mark_handling(tree, tools) if has_failures else handling
    if holds_texts:
        convert_numbers(tree, tools)
    restore(tree)
    # A failed result ends a program with an event loop before its next call: no place handles it.
    awaitable = {} if is_plain else wait_together(tree, tools)
    source = ast.unparse(tree)
    lines = line_map(tree, parse(source))
    return RewrittenProgram(source, lines, deferred, texts, holds_texts, handling, awaitable)


def _parse(program: str, tools: frozenset[str]) -> tuple[ast.Module, bool]:
    """Returns the tree, and whether it needs no event loop."""
    tree = parse(program)
    rewrite_returns(tree, tools)
    if is_plain := make_plain(tree, tools):
        expand_generators(tree)
    separate(tree)
    return tree, is_plain
