"""The runs of one reply's program while it grows: each starts at the first line, and makes the calls that no
earlier run made. Knows nothing of blocks or syntaxes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from emulator.programs import validate
from emulator.programs.driver import Driver
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import Call, CallRecord, Program, ProgramRejected, ReplayDiverged
from emulator.reading.diagnostics import Diagnostic
from emulator.tools.toolset import BindError


@dataclass(frozen=True)
class RunResult:
    """What one run brought."""

    calls: Sequence[Call] = ()
    """The new calls."""
    diagnostics: Sequence[Diagnostic] = ()
    """Why the program was rejected. The calls that it made before are sent anyway."""
    call_sites: Sequence[tuple[int, str]] = ()
    """Line and tool name of all calls so far."""
    is_quoted: bool = False
    """Another author wrote a call: neither that one nor a later one is made."""
    repeats: bool = False
    """The program was rejected for its first calls, which are valid but repeat earlier ones."""


class ProgramRuns:
    """``repeated_calls`` are valid, but returned the same result before: the model is asked first."""

    def __init__(
        self,
        driver: Driver,
        *,
        seed: int = 0,
        repeated_calls: Collection[Call] = (),
        quotes: Callable[[Call], bool] = lambda _: False,
    ) -> None:
        """``quotes`` says whether another author wrote a call."""
        self.toolset = driver.toolset
        self.seed = seed
        self.recorded: list[CallRecord] = []
        """All calls of the runs."""
        self.waits = False
        """The program needs a result: nothing more runs."""
        self.output = ""
        self._driver = driver
        self._repeated_calls = repeated_calls
        self._quotes = quotes
        self._last: Program | None = None
        """The program of the last run."""

    def faults(self, program: Program) -> list[Diagnostic]:
        """What can be said against a program that does not run: its syntax, and its literal calls."""
        found = validate.check(program, self.toolset)
        for request in () if found else plain_calls(program, self.toolset.names) or ():
            try:
                self.toolset.bind(request.name, request.args, request.kwargs)
            except BindError as error:
                found += [
                    program.diagnostic(f"{error.call}: {problem}", request.line)
                    for problem in error.problems
                ]
        return found

    def changes_nothing(self, program: Program) -> bool:
        """Return True if a run would bring nothing new."""
        return self.waits or program == self._last

    def run(self, program: Program) -> RunResult:
        result = self._run(program)
        again = [call for call in result.calls if call in self._repeated_calls]
        if again and not self.recorded:
            self._last, self.waits = None, False
            repeats = [_repeated(program, call) for call in again]
            return RunResult((), [*result.diagnostics, *repeats], repeats=True)
        own = [*takewhile(lambda call: not self._quotes(call), result.calls)]
        self.recorded += map(CallRecord, own)
        return replace(result, calls=own, is_quoted=len(own) < len(result.calls))

    def allow_all_calls(self) -> None:
        """The model was asked: repeated and quoted calls are its own now."""
        self._repeated_calls, self._quotes = (), lambda _: False
        self._last, self.waits = None, False

    def _run(self, program: Program) -> RunResult:
        if diagnostics := validate.check(program, self.toolset):
            return RunResult(diagnostics=diagnostics)
        try:
            outcome = self._driver.run(program, self.recorded, self.seed)
        except ProgramRejected as error:
            self.output = error.stdout.rstrip("\n")
            # Unless calls were sent already, none is: the model writes the whole program again.
            return RunResult(error.calls if self.recorded else (), error.diagnostics)
        except ReplayDiverged:
            # The calls that were sent remain; the rest would belong to a different program.
            message = "run once more, the program makes other calls than it has made"
            hint = "write calls that depend on nothing but the results of other calls"
            return RunResult(diagnostics=[program.diagnostic(message, 1, hint=hint)])
        self._last, self.waits, self.output = program, outcome.stopped, outcome.output
        return RunResult(outcome.calls, call_sites=outcome.call_sites)


def _repeated(program: Program, call: Call) -> Diagnostic:
    return program.diagnostic(
        f"{call.name} was called like this before, with the same result each time",
        1,
        hint="use that result, or do something else",
    )
