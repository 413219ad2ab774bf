"""Run a program as far as the known results allow. One driver for every engine.

`run` is a function of the program so far and of the calls already recorded: it replays these, then goes
on. A program that grows while it is streamed, one that is resumed with results, and one that moves to
another engine are therefore the same thing. Knows nothing of HTTP or of how the program was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator import metrics, traces
from emulator.client_disconnect import stop_on_disconnect
from emulator.programs.attempt import Attempt, Rules
from emulator.programs.placeholders import Prepared, prepare
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import (
    Diverged,
    Outcome,
    Program,
    ProgramRaised,
    ProgramRejected,
    ProgramTooSlow,
    Recorded,
)
from emulator.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.engine import Engine
from sandbox.errors import (
    ProgramFailed,
    SandboxBusy,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
    Unsupported,
)

_MOST_TRIES = 3
"""Tools whose results are read otherwise, one after the other, where a program fails on a type."""
_READ = metrics.PROGRAM_RUNS.labels("none", "ran")


@dataclass(frozen=True)
class Driver:
    """Runs programs against one toolset on the first engine that is able to."""

    engines: Sequence[Engine]
    toolset: Toolset
    max_calls: int = 128
    one_at_a_time: bool = False
    order: Order = "auto"

    def run(self, program: Program, recorded: Sequence[Recorded] = (), seed: int = 0) -> Outcome:
        """Run ``program`` to its end, or to where it needs a result that is not ``recorded``.

        Only what an engine does not support moves on to the next; a failure, a limit or a refusal never
        does. Raises `ProgramRejected`, `Diverged`, and the sandbox errors that are not the program's
        fault.
        """
        if (calls := plain_calls(program, self.toolset.names)) is not None:
            _READ.inc()
            return Attempt(self._rules, program, calls.prepared, recorded).drive(calls)
        prepared = prepare(program.source, self.toolset.names)
        try:
            return self._run(program, prepared, recorded, seed, frozenset())
        except ProgramRaised as error:
            if not error.of_types:
                raise
            for other_way in _other_ways(recorded):
                with contextlib.suppress(ProgramRejected, Diverged):
                    return self._run(program, prepared, recorded, seed, other_way)
            raise

    @property
    def _rules(self) -> Rules:
        return Rules(self.toolset, self.max_calls, self.one_at_a_time, self.order)

    def _run(
        self,
        program: Program,
        prepared: Prepared,
        recorded: Sequence[Recorded],
        seed: int,
        other_way: frozenset[str],
    ) -> Outcome:
        """``other_way`` are the tools whose results are read otherwise than their use suggests."""
        unable: Unsupported | SandboxUnavailable | None = None
        for engine in self.engines:
            attempt = Attempt(self._rules, program, prepared, recorded, other_way)
            try:
                preamble = self.toolset.preamble + prepared.preamble
                with (
                    traces.timed(f"sandbox {engine.name}"),
                    engine.session(attempt.names, preamble=preamble, seed=seed) as session,
                    stop_on_disconnect(session.kill),
                ):
                    outcome = attempt.drive(session)
                metrics.PROGRAM_RUNS.labels(engine.name, "ran").inc()
                return outcome
            except Unsupported as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "unable").inc()
                unable = error
            except SandboxBusy:
                raise  # not the program's fault, and soon over
            except SandboxUnavailable as error:
                # Said together with what the earlier engine lacked: it is what the model can change.
                if not isinstance(unable, Unsupported):
                    raise
                unable = Unsupported(f"{unable.message} ({error.reason})", unable.line)
                break
            except ProgramFailed as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "failed").inc()
                if error.kind == "SystemExit":
                    return attempt.left(error)
                if attempt.may_lack_results(error):
                    return attempt.stopped()
                raise attempt.failed(error) from error
            except SandboxTimeout as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "limit").inc()
                message = f"the program ran longer than {error.seconds:g} s"
                raise attempt.rejected(message, kind=ProgramTooSlow) from error
            except SandboxLimit as error:
                metrics.PROGRAM_RUNS.labels(engine.name, "limit").inc()
                raise attempt.rejected(f"the program used too much: {error.what}") from error
        assert isinstance(unable, Unsupported), "there is at least one engine"
        raise attempt.rejected(
            f"this cannot be run here: {unable.message}",
            unable.line,
            hint="write it with plain calls, loops and conditions",
        ) from unable


def _other_ways(recorded: Sequence[Recorded]) -> Iterator[frozenset[str]]:
    """Which tools' results may be read otherwise, the latest first."""
    reported = [one.call.name for one in reversed(recorded) if one.known and one.text is not None]
    names = list(dict.fromkeys(reported))
    for name in names[:_MOST_TRIES]:
        yield frozenset({name})
    if len(names) > 1:
        yield frozenset(names)
