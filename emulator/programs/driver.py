"""Run a program as far as the known results allow.

`Driver.run` is a function of the program and of the recorded calls: it replays the recorded calls, then
makes new ones. So streaming (a program that grows by a statement), resuming (a program with more results)
and repairing are the same operation.

* A program of literal calls (`plain_calls`) is read, and nothing runs.
* Any other runs in a child of the program server; `OpenRun` may keep that child for the next run.

Knows nothing of HTTP or of the syntax in which the model wrote the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from emulator import traces
from emulator.core import metrics
from emulator.core.client_disconnect import has_disconnected, stop_on_disconnect
from emulator.programs.open_run import OpenRun
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import CallRecord, Outcome, Program
from emulator.programs.run import ProgramRun
from emulator.programs.run_calls import CallRequest, RunCalls, RunRules
from emulator.settings.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxDied
from sandbox.programs.server import FenceBroken, ProgramServer

log = structlog.get_logger()


@dataclass(frozen=True)
class Driver:
    """Runs programs that call the tools of one toolset."""

    server: ProgramServer
    toolset: Toolset
    one_at_a_time: bool = False
    order: Order = "auto"
    client: str = ""
    open_run: OpenRun | None = None

    def run(self, program: Program, recorded: Sequence[CallRecord] = (), seed: int = 0) -> Outcome:
        """Run ``program`` to its end, or to where it needs a result that is not ``recorded``.

        Raises `ProgramRejected`, `ReplayDiverged`, and sandbox errors that are not the program's fault;
        SandboxDied only after a second child has died.
        """
        rules = RunRules(self.toolset, self.one_at_a_time, self.order)
        has_results = any(one.known for one in recorded)
        plain = plain_calls(program, self.toolset.names, with_output=has_results)
        if plain is not None:
            metrics.PROGRAM_RUNS.labels("read").inc()
            return _read(rules, program, plain, recorded)
        run = self.open_run.take(program, recorded, seed) if self.open_run else None
        try:
            return self._advance(
                run or self._new_run(rules, program, recorded, seed), program, recorded
            )
        except SandboxDied as error:
            # The kernel may have killed the child, or the server with all children, to free memory.
            if has_disconnected():
                raise
            log.warning("a program's process ended", reason=error.message)
        return self._advance(self._new_run(rules, program, recorded, seed), program, recorded)

    def _advance(
        self, run: ProgramRun, program: Program, recorded: Sequence[CallRecord]
    ) -> Outcome:
        outcome = Outcome()
        status = "failed"
        try:
            with traces.record_time("sandbox program"), stop_on_disconnect(run.kill):
                held_tools = self.open_run.held_tools if self.open_run else ()
                outcome = run.advance(program, recorded, held_tools)
            status = "ran"
            return outcome
        finally:
            metrics.PROGRAM_RUNS.labels(status).inc()
            if self.open_run is not None:
                self.open_run.keep_open(run, outcome)
            else:
                run.close()

    def _new_run(
        self, rules: RunRules, program: Program, recorded: Sequence[CallRecord], seed: int
    ) -> ProgramRun:
        try:
            return ProgramRun(rules, self.server.open(self.client), recorded, seed)
        except FenceBroken as error:
            log.warning("programs off", reason=error.reason, fix=error.fix)
            raise RunCalls(rules, program).rejected(
                "programs cannot run here",
                hint="write plain calls with literal arguments, one statement each",
            ) from error


def _read(
    rules: RunRules,
    program: Program,
    requests: Sequence[CallRequest],
    recorded: Sequence[CallRecord],
) -> Outcome:
    """The outcome of a program of literal calls, which looks at no result."""
    calls = RunCalls(rules, program, recorded, is_plain=True)
    unlooked = [place for place, one in enumerate(recorded) if one.failure]
    for request in requests:
        if calls.answer(replace(request, unlooked=unlooked)) is None:
            calls.end_if_failed(unlooked)
            return calls.outcome(stopped=True)
    calls.end_if_failed(unlooked)
    return calls.outcome()
