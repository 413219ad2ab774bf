"""A run that stays open: its child gets the next statement of a reply that is still written, or the result
of a hosted call that arrives in the same answer.

A replay costs a few milliseconds, the next statement in an open child a few tenths of one. At a hosted call
a run waits only after a chain of single calls: elsewhere, replays let independent calls run at the same
time. If anything differs from what the run has done, it is closed, and the program is replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from emulator.programs.program import CallRecord, Outcome, Program
from emulator.programs.run import ProgramRun

_CHAIN = 2
"""Consecutive runs with one new call each, after which nothing is expected to run at the same time."""


class OpenRun:
    """At most one run. Used by one answer; `close` must follow."""

    def __init__(self, tools: frozenset[str] = frozenset()) -> None:
        """``tools`` are those whose results arrive in the same answer."""
        self._tools = tools
        self._single_calls = 0
        self._run: ProgramRun | None = None

    @property
    def held_tools(self) -> Collection[str]:
        """The tools at whose calls a run waits now."""
        return self._tools if self._single_calls >= _CHAIN else ()

    def take(
        self, program: Program, recorded: Sequence[CallRecord], seed: int
    ) -> ProgramRun | None:
        """The open run, if it continues with this. The caller closes it, or keeps it again."""
        run, self._run = self._run, None
        if run is not None and not run.continues(program, recorded, seed):
            run.close()
            return None
        return run

    def keep_open(self, run: ProgramRun, outcome: Outcome) -> None:
        """Keep the run open if it can continue; close it otherwise."""
        self._single_calls = self._single_calls + 1 if len(outcome.calls) == 1 else 0
        if run.is_open and run.rest():
            self._run = run
        else:
            run.close()

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()
