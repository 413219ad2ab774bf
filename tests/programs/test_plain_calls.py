"""Programs that consist only of calls: they need no engine, and the results equal those of an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.programs.driver import Driver
from emulator.programs.plain_calls import plain_calls
from emulator.programs.program import Call, CallRecord, Outcome, Program, ProgramRejected
from emulator.programs.saved import SavedProgram
from emulator.reading.calls import call_statement
from emulator.reading.readers import Statement, Unreadable
from emulator.reading.tool_names import ToolNames
from emulator.settings.settings import Order
from emulator.tools.toolset import Toolset
from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.programs.server import ChildProcess, FenceBroken, ProgramServer
from tests.support.examples import example_count
from tests.support.random_programs import NAMES, TOOLS, on_the_wire, result

TOOLSET = Toolset.parse(TOOLS)
NAMED = ToolNames(NAMES)


class Failing(ProgramServer):
    """A server that can run nothing."""

    def __init__(self, failure: SandboxUnavailable) -> None:
        super().__init__(Limits())
        self._failure = failure

    def open(self, client: str = "") -> ChildProcess:
        raise self._failure


OFF = Failing(FenceBroken("no seccomp", ""))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
CALLS = st.tuples(
    st.sampled_from(["", "a = ", "b = "]),
    st.sampled_from(NAMES),
    st.sampled_from(["{}", "x={}", "**{{'x': {}}}"]),
    JSON,
)


@settings(
    max_examples=example_count(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    calls=st.lists(CALLS | st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=4),
    order=st.sampled_from(get_args(Order)),
    alone=st.booleans(),
)
def test_plain_calls_give_the_same_results_over_turns_as_an_engine(
    programs: ProgramServer, calls: list[Any], order: Order, alone: bool
) -> None:
    """But the result of a call that ends the program is not its value too."""
    written = [
        f"[{', '.join(text for _, text in map(call_text, one))}]"
        if isinstance(one, list)
        else "".join(call_text(one))
        for one in calls
    ]
    read, ran = (
        Driver(server, TOOLSET, order=order, one_at_a_time=alone) for server in (OFF, programs)
    )
    assert over_turns(read, written) == engine_outcomes(ran, written)


PRINTED = [
    *(
        "{}",
        "f'{{{}}} and {{{}!r}}'",
        "'a', {}",
        "num(1), num(2)",
        "f'{{num(x=1)}}'",
        "[num(1), num(2)]",
    ),
    *("{}['n']", "{}.get('n', 0)", "{}['xs'][0], {}", "f'{{{}[\"n\"]:3}}'"),
]
"""What a print may print; ``{}`` is a variable."""


@settings(
    max_examples=example_count(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    lines=st.lists(st.tuples(st.booleans(), CALLS, st.sampled_from(PRINTED)), max_size=5),
    order=st.sampled_from(get_args(Order)),
    alone=st.booleans(),
)
def test_calls_before_a_print_are_the_same_as_from_an_engine(
    programs: ProgramServer, lines: list[Any], order: Order, alone: bool
) -> None:
    """Once results are known, an engine runs the program for what it prints."""
    written = ["r = rec(1)"]
    for is_call, call, value in lines:
        printed = value.format("r", "r")
        written.append("".join(call_text(call)) if is_call else f"print({printed})")
    driver = Driver(programs, TOOLSET, order=order, one_at_a_time=alone)
    read = [replace(one, value=None) for one in over_turns(driver, written)]
    assert read == engine_outcomes(driver, written)


def engine_outcomes(driver: Driver, statements: list[str]) -> list[Outcome]:
    """What an engine makes of a program. It runs programs with ``pass``, which changes nothing."""
    return [
        replace(
            one, call_sites=tuple((line - 1, name) for line, name in one.call_sites), value=None
        )
        for one in over_turns(driver, ["pass", *statements])
    ]


def call_text(call: tuple[str, str, str, Any]) -> tuple[str, str]:
    """The start of an assignment, or nothing, and the call."""
    target, name, form, value = call
    return target, f"{name}({form.format(repr(value))})"


def over_turns(driver: Driver, statements: list[str]) -> list[Outcome]:
    program = Program(tuple(Statement(one, line) for line, one in enumerate(statements, 1)))
    recorded: list[CallRecord] = []
    outcomes: list[Outcome] = []
    while not outcomes or outcomes[-1].pending:
        outcomes.append(driver.run(program, recorded))
        recorded = [
            answered(one) for one in [*recorded, *(CallRecord(call) for call in outcomes[-1].calls)]
        ]
    return outcomes


def answered(recorded: CallRecord) -> CallRecord:
    value = result(recorded.call.name, recorded.call.arguments["x"])
    text = on_the_wire(value)
    return replace(recorded, result=value, known=True, text=None if value == text else text)


PLAIN = [
    "a = await num(1)\nawait num(2)",
    "num(1)",
    "a = num(x=-1.5)\nlst(x=[None, True, (1, 'two')])",
    "num(\n    x={'a': {'b': []}},\n)",
    "num(**{'x': 1})",
    "num(**{'x': 1}, **{})",
    "[num(1), num(2)]",
    "xs = num(1), await num(2)",
    "a = num(1)\na",
    "print(num(1))",
    "print('-')\na = num(1)\nprint(a, f'{a!r}: {a}')\nnum(2)",
    "a = num(1)\nprint(a['n'][0].x, a.get('n', default=0))",
    "a = num(1)\nprint(f\"{a['n']:>{'x'}}\")\na",
    "a = num(1)\nprint(a['n'])\nnum(2)",
    "a = num(1)\nprint(a['n'], num(2))",
]
MORE = [
    "a = num(1)\nnum(a)",
    "num(1)['n']",
    "print('a')",
    "a\na = num(1)",
    "a = num(1)\nprint(b)",
    "a = num(1)\nprint(a, sep='')",
    "a = num(1)\nprint(*a)",
    "a = num(1)\nprint(a + 1)",
    "a = num(1)\nprint(len(a))",
    "a = num(1)\nprint(a[b])",
    "a = num(1)\nprint(a.get(b))",
    "a = num(1)\nprint(f'{a:d}')",
    "a = [num(1)]\nprint(a[0])",
    "a = num(1)\na.b",
    "print = num(1)\nprint('a')",
    "[num(1), [num(2)]]",
    "[num(1), 2]",
    "[*num(1)]",
    "{num(1), num(2)}",
    "[num(x) for x in (1, 2)]",
    "[]",
    "a = b = num(1)",
    "a, b = num(1)",
    "num = num(1)",
    "if True:\n    num(1)",
    "num(*[1])",
    "num(**dict(x=1))",
    "num(**{'x': 1}, **{'x': 2})",
    "num(x=1, **{'x': 2})",
    "num(**{1: 2})",
    "num(1 + 1)",
    "num(f'{1}')",
    "num({1, 2})",
    "num({1: 2})",
    "num({**{}})",
    "num(b'a')",
    "num(1j)",
    "num(-True)",
    "num(1e999)",
    "num(...)",
    "num('\\ud800')",
    "pass",
]


@settings(max_examples=example_count(100))
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.none() | st.dictionaries(st.text(max_size=5), JSON) | st.lists(JSON) | st.integers(),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_json_call_equals_the_call_of_its_python_form(calls: list[Any]) -> None:
    """Stored programs are Python: what a reader hands over must not differ from it. That the calls leave
    together is not stored, because they have left by then."""
    try:
        statements = [call_statement(name, arguments, NAMED, 1) for name, arguments in calls]
    except Unreadable:
        return  # half of a surrogate pair
    program = Program(tuple(statements))
    saved = SavedProgram(program, (), (), 0)
    read, parsed = (
        plain_calls(one, NAMES) for one in (program, SavedProgram.load(saved.dump()).program)
    )
    assert program.calls is not None
    assert read is not None
    assert parsed is not None
    read, parsed = ([replace(call, batch=0) for call in one] for one in (read, parsed))
    assert json.dumps(read, default=vars) == json.dumps(parsed, default=vars)


@pytest.mark.parametrize("source", PLAIN)
def test_calls_with_written_out_arguments_need_no_engine(source: str) -> None:
    assert Driver(OFF, TOOLSET).run(Program((Statement(source, 1),))).calls


@pytest.mark.parametrize("source", MORE)
def test_a_program_of_more_than_calls_needs_an_engine(source: str) -> None:
    with pytest.raises(ProgramRejected, match="programs cannot run here"):
        Driver(OFF, TOOLSET).run(Program((Statement(source, 1),)))


def test_a_plain_call_is_validated_and_a_fault_names_its_line() -> None:
    program = Program((Statement("num(1)", 1), Statement("a = num(\n    y=2)", 2)))
    with pytest.raises(ProgramRejected, match="x") as raised:
        Driver(OFF, TOOLSET, order="dataflow").run(program)
    assert raised.value.calls == (Call("num", {"x": 1}),)
    assert {one.line for one in raised.value.diagnostics} == {2}


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (FenceBroken("no seccomp", ""), ProgramRejected),
        (SandboxUnavailable("", ""), SandboxUnavailable),
    ],
    ids=["a machine without a fence", "a server that does not start"],
)
def test_only_failures_that_the_model_can_repair_reject_the_program(
    failure: SandboxUnavailable, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        Driver(Failing(failure), TOOLSET).run(Program((Statement("x = num(1)\nx + 1", 1),)))
