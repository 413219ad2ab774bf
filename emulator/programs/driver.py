"""Run a program as far as the known results allow, on the first engine that supports it.

`Driver.run` is a function of the program and of the recorded calls: it replays the recorded calls, then
makes new ones. So streaming (a program that grows by a statement), resuming (a program with more results)
and changing the engine are the same operation. The engines are tried in order:

* a program of plain calls (`plain_calls`) needs no engine;
* ``Unsupported``: the next engine runs the program from its first line. Calls of the failed run are dropped;
* an exception of the program, a limit or a forbidden operation is final: no other engine is tried. Only
  after a type error does the program run again, with results read the other way (text or JSON);
* other sandbox errors are not the program's fault and are raised unchanged: an engine that never works here
  is not among the engines.

Knows nothing of HTTP or of the syntax in which the model wrote the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from emulator import metrics, traces
from emulator.client_disconnect import stop_on_disconnect
from emulator.programs.attempt import Attempt, RunRules
from emulator.programs.held_run import HeldRun, WaitingRun
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import (
    CallRecord,
    Outcome,
    Program,
    ProgramRejected,
    ProgramTooSlow,
    ProgramTypeError,
    ReplayDiverged,
)
from emulator.programs.rewrite import RewrittenProgram, rewrite
from emulator.programs.scalar_results import ScalarResults, scalar_results
from emulator.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.engine import Engine
from sandbox.errors import (
    ProgramFailed,
    SandboxLimit,
    SandboxTimeout,
    Unsupported,
)

_MAX_REREAD_TOOLS = 3
"""After a type error, the results of at most this many tools are read the other way, one tool at a time."""
_SLOW = "kernel"
"""The engine whose replays take a new process: there a run waits for results of hosted calls (`held_run`)."""
_PLAIN_RUNS = metrics.PROGRAM_RUNS.labels("none", "ran")


@dataclass(frozen=True)
class Driver:
    """Runs programs that call the tools of one toolset."""

    engines: Sequence[Engine]
    toolset: Toolset
    max_calls: int = 128
    one_at_a_time: bool = False
    order: Order = "auto"
    waiting_run: HeldRun | None = None
    """Where a run waits for results that arrive in the same answer."""

    def run(self, program: Program, recorded: Sequence[CallRecord] = (), seed: int = 0) -> Outcome:
        """Run ``program`` to its end, or to where it needs a result that is not ``recorded``.

        Raises `ProgramRejected`, `ReplayDiverged`, and sandbox errors that are not the program's fault.
        """
        has_results = any(one.known for one in recorded)
        calls = plain_calls(program, self.toolset.names, with_output=has_results)
        if calls is not None:
            _PLAIN_RUNS.inc()
            rules = replace(self._rules, is_plain=True)
            return Attempt(rules, program, calls.rewritten, recorded).drive(calls)
        has_failures = any(one.failure for one in recorded)
        rewritten = rewrite(program.source, self.toolset.names, has_failures=has_failures)
        scalars = scalar_results(recorded, self._tools_read_as_text(rewritten))
        if scalars:
            rewritten = rewrite(
                program.source, self.toolset.names, holds_texts=True, has_failures=has_failures
            )
        try:
            return self._run(program, rewritten, recorded, scalars, seed, frozenset())
        except ProgramTypeError:
            for tools in _tools_to_reread(recorded):
                with suppress(ProgramRejected, ReplayDiverged):
                    return self._run(program, rewritten, recorded, scalars, seed, tools)
            raise

    @property
    def _rules(self) -> RunRules:
        return RunRules(self.toolset, self.max_calls, self.one_at_a_time, self.order)

    def _tools_read_as_text(self, rewritten: RewrittenProgram) -> frozenset[str]:
        tools = (self.toolset.find(name) for _, name in rewritten.texts)
        return frozenset(tool.name for tool in tools if tool is not None)

    def _run(
        self,
        program: Program,
        rewritten: RewrittenProgram,
        recorded: Sequence[CallRecord],
        scalars: ScalarResults,
        seed: int,
        reread_tools: frozenset[str],
    ) -> Outcome:
        unsupported: Unsupported | None = None
        for engine in self.engines:
            rules, waiting = self._rules, None
            waits = self.waiting_run is not None and (
                engine.name == _SLOW or self.waiting_run.is_chain
            )
            if self.waiting_run is not None and waits and not reread_tools:
                rules = replace(rules, held_tools=self.waiting_run.tools)
                waiting = self.waiting_run.take(program, seed, recorded, scalars)
            attempt = Attempt(rules, program, rewritten, recorded, scalars, reread_tools)
            try:
                preamble = self.toolset.preamble + rewritten.preamble + scalars.preamble
                with traces.record_time(f"sandbox {engine.name}"), ExitStack() as opened:
                    if waiting is not None:
                        attempt, session = waiting.attempt, waiting.session
                        opened.enter_context(waiting.closing)
                    else:
                        session = opened.enter_context(
                            engine.session(attempt.names, preamble=preamble, seed=seed)
                        )
                    with stop_on_disconnect(session.kill):
                        outcome = (
                            attempt.drive(session)
                            if waiting is None
                            else attempt.continue_with(session, recorded)
                        )
                    if self.waiting_run is not None:
                        self.waiting_run.count_calls(outcome.calls)
                    if self.waiting_run is not None and attempt.can_continue:
                        closing = opened.pop_all()
                        parts = (attempt, session, closing, program, seed, recorded, scalars)
                        self.waiting_run.hold(WaitingRun(*parts))
                metrics.PROGRAM_RUNS.labels(engine.name, "ran").inc()
                return outcome
            except Unsupported as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "unable").inc()
                unsupported = error
            except ProgramFailed as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "failed").inc()
                if error.kind == "SystemExit":
                    return attempt.exited(error)
                if attempt.is_caused_by_placeholder(error):
                    return attempt.stopped()
                raise attempt.failed(error) from error
            except SandboxTimeout as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "limit").inc()
                message = f"the program ran longer than {error.seconds:g} s"
                raise attempt.rejected(message, kind=ProgramTooSlow) from error
            except SandboxLimit as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "limit").inc()
                raise attempt.rejected(f"the program used too much: {error.what}") from error
        assert unsupported is not None, "there is at least one engine"
        raise attempt.rejected(
            f"this cannot be run here: {unsupported.message}",
            unsupported.line,
            hint="write it with plain calls, loops and conditions",
        ) from unsupported


def _tools_to_reread(recorded: Sequence[CallRecord]) -> Iterator[frozenset[str]]:
    """Yield sets of tools whose results to read the other way: each of the latest, then all together."""
    latest = [one.call.name for one in reversed(recorded) if one.known and one.text is not None]
    names = list(dict.fromkeys(latest))
    for name in names[:_MAX_REREAD_TOOLS]:
        yield frozenset({name})
    if len(names) > 1:
        yield frozenset(names)
