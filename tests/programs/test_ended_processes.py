"""A program whose process was killed runs again once; the model is not told that its program was wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from emulator.programs.driver import Driver
from emulator.programs.open_run import OpenRun
from emulator.programs.program import Program, ProgramRejected
from emulator.reading.readers import Statement
from emulator.tools.toolset import Toolset
from sandbox.engine import Limits
from sandbox.errors import SandboxDied
from sandbox.programs.server import ProgramServer
from sandbox.programs.server_process import ServerProcess, serve_source
from tests.support.processes import wait_until
from tests.support.tools import function, strings

TOOLSET = Toolset.parse([function("get", strings("key"))])


def then(program: Program, source: str) -> Program:
    line = program.source.count("\n") + 2
    return Program((*program.statements, Statement(source, line)))


class Servers:
    """Counts the servers that were started, and the children that were asked for."""

    def __init__(self) -> None:
        self.started: list[ServerProcess] = []
        self.forks = 0

    def launch(self) -> ServerProcess:
        process = ServerProcess(serve_source(Limits()))
        fork = process.fork

        def counted(*, probe: bool = False) -> object:
            self.forks += not probe
            return fork(probe=probe)

        process.fork = counted  # type: ignore[method-assign,assignment]
        self.started.append(process)
        return process


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def driver(servers: Servers, programs: ProgramServer) -> Iterator[Driver]:
    """``programs`` skips where no program runs."""
    with (
        closing(ProgramServer(Limits(), launch=servers.launch)) as server,
        closing(OpenRun()) as run,
    ):
        yield Driver(server, TOOLSET, open_run=run)


def test_a_program_continues_after_its_process_and_the_server_were_killed(
    driver: Driver, servers: Servers
) -> None:
    """The model was told that its block could not be used, and wrote it again."""
    program = Program((Statement("import random\nx = random.random()", 1),))
    assert not driver.run(program, seed=7).stopped
    server = servers.started[0].pid
    children = Path(f"/proc/{server}/task/{server}/children")
    os.kill(int(children.read_text()), signal.SIGKILL)
    wait_until(lambda: not children.read_text())
    os.kill(server, signal.SIGKILL)
    ended = driver.run(then(program, "print(x, get.__name__)"), seed=7)
    assert ended.output == driver.run(then(program, "print(x, 'get')"), seed=7).output
    assert len(servers.started) == 2


def test_a_program_whose_process_ends_twice_is_no_fault_of_the_model(
    driver: Driver, servers: Servers
) -> None:
    with pytest.raises(SandboxDied):
        driver.run(Program((Statement("import os\nos._exit(1)", 1),)))
    assert servers.forks == 2


FAULTS: list[tuple[str, str, int]] = [
    ("get(object())", "TypeError: get() argument 1 is of type object, which JSON cannot hold", 1),
    ("x = 1\nget({1.5: b'x'})", "TypeError: get() argument 1[1.5] is of type bytes", 2),
    ("class E(Exception):\n    lineno = True\ndef f():\n    raise E('no')\nf()", "E: no", 4),
    ("exec(compile('raise ValueError(1)', 'x', 'exec'))", "ValueError: 1", 1),
    ("exec('x = = 1')", "SyntaxError: invalid syntax", 1),
    ("compile('x', 'y', 'exec') + 1", "TypeError: unsupported operand", 1),
]


@pytest.mark.parametrize(("source", "message", "line"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_fault_of_the_program_has_pythons_name_and_a_line(
    driver: Driver, source: str, message: str, line: int
) -> None:
    with pytest.raises(ProgramRejected) as caught:
        driver.run(Program((Statement(source, 1),)))
    [found] = caught.value.diagnostics
    assert (found.message[: len(message)], found.line) == (message, line)
    assert type(found.line) is int


OUTPUTS: list[tuple[str, str]] = [
    ("print('a' * 100_000, end='')", "a" * 100_000),
    ("print('a' * 50_000 + 'b' * 7 + 'c' * 50_000, end='')",
     "a" * 50_000 + "\n... [7 characters omitted] ...\n" + "c" * 50_000),
    ("for n in range(40_000):\n    print(f'{n:05}')",
     "".join(f"{n:05}\n" for n in range(8_333)) + "08\n... [140,000 characters omitted] ...\n"
     + "6\n" + "".join(f"{n:05}\n" for n in range(31_667, 40_000))),
    ("import sys\nsys.stdout.write('x' * 10_000_000)\nsys.stderr.write('end')",
     "x" * 50_000 + "\n... [9,900,003 characters omitted] ...\n" + "x" * 49_997 + "end\n3"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "output"), OUTPUTS, ids=[row[0] for row in OUTPUTS])
def test_output_is_cut_and_the_program_makes_its_later_calls(
    driver: Driver, source: str, output: str
) -> None:
    """100,000 printed characters ended the program, and its later calls were lost."""
    program = Program((Statement(source, 1),))
    assert driver.run(program).output == output.rstrip("\n")
    called = driver.run(then(program, "get('k')"))
    assert [call.arguments for call in called.calls] == [{"key": "k"}]


def test_a_program_that_prints_without_end_ends(driver: Driver) -> None:
    with pytest.raises(ProgramRejected, match="the program used too much: output"):
        driver.run(Program((Statement("while True:\n    print('x' * 1_000_000)", 1),)))
