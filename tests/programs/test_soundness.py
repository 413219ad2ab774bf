"""The law of programs over turns: no call may depend on a value that no tool returned.

Random programs are run turn by turn; over the turns exactly the calls of a reference that knows all
results at once must come out, in its order, with its arguments, and the same output at the end.
"""

from __future__ import annotations

import random
from typing import Any, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.programs.driver import Driver
from emulator.programs.program import CallRecord, Program, ProgramRejected
from emulator.programs.saved import with_result
from emulator.reading.readers import Statement
from emulator.settings.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.programs.server import ProgramServer
from tests.support.examples import example_count
from tests.support.random_programs import TOOLS, on_the_wire, random_program, reference, result

TOOLSET = Toolset.parse(TOOLS)
MAX_CALLS = 60


def over_turns(driver: Driver, source: str) -> tuple[list[tuple[str, Any]], str, bool, int]:
    """The calls, the output and whether it failed, when results come only between turns."""
    program = Program((Statement(source, 1),))
    recorded: list[CallRecord] = []
    turns = 0
    while True:
        turns += 1
        failed, stdout, pending = False, "", False
        try:
            outcome = driver.run(program, recorded)
            new, stdout, pending = outcome.calls, outcome.stdout, outcome.pending
        except ProgramRejected as error:
            new, failed = error.calls, True
        # Between turns the client answers every call that is out.
        recorded += [CallRecord(call) for call in new]
        recorded = [
            with_result(one, on_the_wire(result(one.call.name, one.call.arguments["x"])))
            for one in recorded
        ]
        if failed or not pending:
            calls = [(one.call.name, one.call.arguments["x"]) for one in recorded]
            return calls, stdout, failed, turns


@settings(
    max_examples=example_count(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**64), order=st.sampled_from(get_args(Order)))
def test_a_program_over_turns_makes_exactly_the_references_calls(
    programs: ProgramServer, seed: int, order: Order
) -> None:
    source = random_program(random.Random(seed))
    expected, printed, fails = reference(source)
    if len(expected) > MAX_CALLS:
        return
    driver = Driver(programs, TOOLSET, order=order)
    made, stdout, failed, turns = over_turns(driver, source)
    assert made == expected, source
    assert failed == fails, source
    if not fails:
        assert stdout == printed, source
    assert turns <= len(expected) + 1


def test_independent_calls_share_a_turn(programs: ProgramServer) -> None:
    """The law alone could be kept by waiting at each call."""
    driver = Driver(programs, TOOLSET, order="dataflow")
    source = "xs = [num(q) for q in range(5)]\nys = {q: lst(q) for q in range(5)}\nprint(xs, ys)"
    made, _, _, turns = over_turns(driver, source)
    assert (len(made), turns) == (10, 2)
