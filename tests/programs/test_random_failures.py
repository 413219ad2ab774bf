"""Random programs with random failures: no acting call is sent after an unhandled failure.

A program is a list of steps, so the reference knows which failures each call may follow. Results come in any
order, some of them later than others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.programs.driver import Driver
from emulator.programs.failures import Failure, failure_of
from emulator.programs.program import CallRecord, Program, ProgramRejected, ReplayDiverged
from emulator.programs.saved import with_result
from emulator.reading.readers import Statement
from emulator.tools.toolset import Toolset
from sandbox.programs.server import ProgramServer
from tests.support.examples import example_count
from tests.support.tools import function, strings

TOOLS = ("run", "deploy", "read_file")
TOOLSET = Toolset.parse([function(name, strings("x"), f"Do {name}.") for name in TOOLS])
RESULTS = {
    "ok": None,
    "Error: no such thing": Failure.FAILED,
    "User denied permission": Failure.REFUSED,
}


@dataclass
class Plan:
    """A program; of each call, by its argument, the earlier calls whose failures it may follow."""

    lines: list[str] = field(default_factory=list)
    handled_before: dict[str, frozenset[str]] = field(default_factory=dict)
    needs_failure: set[str] = field(default_factory=set)
    """Calls in an ``except``."""
    handled: set[str] = field(default_factory=set)

    def call(self, tool: str) -> str:
        key = f"c{len(self.handled_before)}"
        self.handled_before[key] = frozenset(self.handled)
        return f'{tool}("{key}")'


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    plan = Plan()
    variables: dict[str, str] = {}

    def call() -> tuple[str, str]:
        text = plan.call(draw(st.sampled_from(TOOLS)))
        return text, text.split('"')[1]

    for n in range(draw(st.integers(1, 7))):
        kind = draw(
            st.sampled_from(
                ("call", "print", "format", "check", "check_later", "try", "pair", "store")
            )
        )
        if kind == "check_later" and variables:
            name = draw(st.sampled_from(sorted(variables)))
            plan.lines += [f'if "Error" in {name}:', f"    print({name})"]
            plan.handled.add(variables[name])
            continue
        if kind == "try":
            first, first_key = call()
            second, second_key = call()
            plan.handled |= {first_key, second_key}
            fallback, fallback_key = call()
            plan.needs_failure.add(fallback_key)
            plan.lines += [
                "try:",
                f"    {first}",
                f"    {second}",
                "except Exception as e:",
                f"    {fallback}",
            ]
            # Only failures that arrive raise. A failure of the fallback itself is not handled.
            continue
        if kind == "pair":
            plan.lines.append(f"print([{call()[0]}, {call()[0]}])")
            continue
        text, key = call()
        plan.lines.append(f"r{n} = {text}")
        variables[f"r{n}"] = key
        if kind == "print":
            plan.lines.append(f"print(r{n}.strip())")
        elif kind == "format":
            plan.lines.append(f'y{n} = f"{{r{n}}}" + r{n}')
        elif kind == "store":
            plan.lines += [f"xs{n} = [r{n}]", f"if xs{n}:", "    print(1)"]
        elif kind == "check":
            plan.lines += [f'if r{n}.lower().startswith("error"):', f"    print({n})"]
            plan.handled.add(key)
    return plan


def record(call: Any, text: str) -> CallRecord:
    return with_result(CallRecord(call), text, failure_of(text, text))


def play(driver: Driver, plan: Plan, results: dict[str, str], data: st.DataObject) -> set[str]:
    """The calls that were sent. Fails if one acts after a failure that was not handled."""
    program = Program((Statement("\n".join(plan.lines), 1),))
    recorded: list[CallRecord] = []
    for _ in range(60):
        ended = False
        try:
            outcome = driver.run(program, recorded)
            new, ended = outcome.calls, not outcome.pending
        except ProgramRejected as error:
            new, ended = error.calls, True
        except ReplayDiverged:
            new, ended = (), True
        failures = {one.call.arguments["x"]: one.failure for one in recorded if one.failure}
        for call in new:
            key = call.arguments["x"]
            assert Failure.REFUSED not in failures.values(), (plan.lines, key, failures)
            if call.name == "read_file":
                continue
            earlier = {one for one in failures if int(one[1:]) < int(key[1:])}
            assert earlier <= plan.handled_before[key], (plan.lines, key, failures)
        recorded += [CallRecord(call) for call in new]
        pending = [n for n, one in enumerate(recorded) if not one.known]
        if ended or not pending:
            break
        for n in data.draw(st.lists(st.sampled_from(pending), min_size=1, unique=True)):
            recorded[n] = record(recorded[n].call, results[recorded[n].call.arguments["x"]])
    return {one.call.arguments["x"] for one in recorded}


@settings(
    max_examples=example_count(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(plan=plans(), data=st.data())
def test_no_acting_call_is_sent_after_an_unhandled_failure(
    programs: ProgramServer, plan: Plan, data: st.DataObject
) -> None:
    texts = st.sampled_from(["ok", "ok", *RESULTS])
    results = {key: data.draw(texts) for key in plan.handled_before}
    sent = play(Driver(programs, TOOLSET), plan, results, data)  # asserts it for each call
    assert sent <= plan.handled_before.keys()


@settings(
    max_examples=example_count(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(plan=plans(), data=st.data())
def test_without_failures_every_call_is_sent(
    programs: ProgramServer, plan: Plan, data: st.DataObject
) -> None:
    results = dict.fromkeys(plan.handled_before, "ok")
    sent = play(Driver(programs, TOOLSET), plan, results, data)
    assert sent == plan.handled_before.keys() - plan.needs_failure


@settings(
    max_examples=example_count(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(plan=plans(), data=st.data())
def test_failures_that_are_handled_end_no_program(
    programs: ProgramServer, plan: Plan, data: st.DataObject
) -> None:
    """All calls leave that are neither in a ``try`` nor followed by a call before their condition."""
    tried = {f"c{int(key[1:]) - n}" for key in plan.needs_failure for n in range(3)}
    following = {key: f"c{int(key[1:]) + 1}" for key in plan.handled}
    failing = {
        key
        for key, after in following.items()
        if key not in tried and key in plan.handled_before.get(after, plan.handled)
    }
    results = {key: "Error: no" if key in failing else "ok" for key in plan.handled_before}
    sent = play(Driver(programs, TOOLSET), plan, results, data)
    assert sent == plan.handled_before.keys() - plan.needs_failure, plan.lines
