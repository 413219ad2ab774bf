"""A run that waits at a call whose result arrives in the same answer: it continues instead of being replayed.

A replay takes a millisecond or two with monty, but a new kernel takes a second. So a kernel's run waits at
each call of a hosted tool, except the simultaneous ones of a display, and `HeldRun` has it until the next
round of the answer. So does any run after a chain of single calls: there, nothing could run at the same time,
and replays would cost 3 ms a call (`make bench-hosted`).
If anything differs from what the run has seen, the run is closed and the program is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from emulator.programs.attempt import Attempt
from emulator.programs.program import Call, CallRecord, Program
from emulator.programs.scalar_results import ScalarResults
from sandbox.engine import Session

_CHAIN = 4
"""Consecutive runs with one new call each."""


@dataclass(frozen=True)
class WaitingRun:
    attempt: Attempt
    session: Session
    closing: ExitStack
    program: Program
    seed: int
    recorded: Sequence[CallRecord]
    """The records before the call that waits."""
    scalars: ScalarResults
    """Those among their results. The engine cannot learn of another one while the run waits."""


class HeldRun:
    """At most one run. Used by one answer; `close` must follow."""

    def __init__(self, tools: frozenset[str]) -> None:
        """``tools`` are those whose results arrive in the answer."""
        self.tools = tools
        self._single_calls = 0
        self._run: WaitingRun | None = None

    @property
    def is_chain(self) -> bool:
        """Whether each of the last runs has made one call."""
        return self._single_calls >= _CHAIN

    def count_calls(self, calls: Sequence[Call]) -> None:
        """Note the new calls of a run."""
        self._single_calls = self._single_calls + 1 if len(calls) == 1 else 0

    def hold(self, run: WaitingRun) -> None:
        self.close()
        self._run = run

    def take(
        self,
        program: Program,
        seed: int,
        recorded: Sequence[CallRecord],
        scalars: ScalarResults,
    ) -> WaitingRun | None:
        """The run, if one more result is all that is new. The caller closes it."""
        run = self._run
        if run is None:
            return None
        fits = (
            (run.program, run.seed, run.scalars) == (program, seed, scalars)
            and len(recorded) == len(run.recorded) + 1  # a call that was not sent has no record
            and [*run.recorded] == [*recorded[:-1]]
            and recorded[-1].known
            and recorded[-1].failure is None
            and [recorded[-1].call] == run.attempt.new_calls
        )
        if not fits:
            self.close()
            return None
        self._run = None
        return run

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.closing.close()
