"""Cells in a kernel: their steps, values and errors."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.checks import check_place
from sandbox.engine import Finished, Limits, Paused
from sandbox.errors import (
    Frame,
    ProgramFailed,
    SandboxBusy,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
    render_traceback,
)
from sandbox.inside.values import JSON, plain
from sandbox.kernel.engine import KernelEngine
from sandbox.report import Check, render
from tests.support.cells import cells
from tests.support.places import IN_DOCKER, kernels, needs_bubblewrap

ROOT = Path(__file__).parents[2]
LIMITS = Limits(seconds=2.0, output=10_000, pauses=5)
ROOMY = Limits(seconds=20.0, memory=512 * 2**20)


@pytest.fixture(scope="module")
def engine() -> Iterator[KernelEngine]:
    with kernels(LIMITS, warm=2) as engine:
        yield engine


@dataclass(frozen=True)
class Failed:
    """How a ProgramFailed looks in the tables below."""

    kind: str
    message: str
    line: int | None
    stdout: str = ""


Seen = Paused | Finished | Failed | type[SandboxError]


def run(
    engine: KernelEngine,
    *pieces: str,
    answers: Sequence[JSON] = (),
    preamble: str = "",
) -> list[Seen]:
    """All steps of cells in which `ask` and `tell` pause; the last is left paused without answers."""
    left, seen = list(answers), list[Seen]()
    try:
        with cells(engine, frozenset({"ask", "tell"}), preamble) as session:
            for piece in pieces:
                seen.append(step := session.start(piece))
                while isinstance(step, Paused):
                    if not left:
                        return seen
                    seen.append(step := session.resume(left.pop(0)))
    except ProgramFailed as error:
        seen.append(Failed(error.kind, error.message, error.line, error.stdout))
    except SandboxError as error:
        seen.append(type(error))
    return seen


PROGRAMS: dict[str, tuple[str, list[JSON], list[Seen]]] = {
    "an expression": ("6 * 7", [], [Finished("", 42, "42")]),
    "a statement has no value": ("x = 1", [], [Finished()]),
    "printed text": ("print('a')\nprint('b')", [], [Finished("a\nb\n")]),
    "stderr is text too": ("import sys\nprint('e', file=sys.stderr)", [], [Finished("e\n")]),
    "a value that JSON lacks keeps its text": ("float('nan')", [], [Finished("", None, "nan")]),
    "a call pauses and resumes with its result": (
        "x = ask('Oslo', days=[1, 2])\nprint(x['t'])\nx",
        [{"t": 21.5}],
        [Paused("ask", ("Oslo",), {"days": [1, 2]}, 1), Finished("21.5\n", {"t": 21.5}, "{'t': 21.5}")],
    ),
    "calls in a loop": (
        "[ask(i) for i in range(2)]",
        ["a", "b"],
        [Paused("ask", (0,), {}, 1, 1, (Paused("ask", (1,), {}, 1, 1),)), Paused("ask", (1,), {}, 1, 1),
         Finished("", ["a", "b"], "['a', 'b']")],
    ),
    "a call within a function tells its line": (
        "def f(x):\n    return ask(x) + 1\n\nf(2)",
        [3],
        [Paused("ask", (2,), {}, 2), Finished("", 4, "4")],
    ),
    "a name under another name": (
        "g = ask\ng(1)", [None], [Paused("ask", (1,), {}, 2), Finished()],
    ),
    "dates, sets and tuples become JSON": (
        "import datetime\nask(datetime.date(2024, 2, 29), (1, {2}))",
        [],
        [Paused("ask", ("2024-02-29", [1, [2]]), {}, 2)],
    ),
    "a dataclass becomes an object": (
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: str = 'b'\n\n"
        "ask(p=P(1))\n[P(2)]"),
        [0],
        [Paused("ask", (), {"p": {"x": 1, "y": "b"}}, 7),
         Finished("", [{"x": 2, "y": "b"}], "[P(x=2, y='b')]")],
    ),
    "a plain class becomes an object": (
        "class P:\n    def __init__(self):\n        self.x = 1\n        self._y = 2\nask(P())",
        [],
        [Paused("ask", ({"x": 1},), {}, 5)],
    ),
    "a big whole number": ("ask(10**30)", [], [Paused("ask", (10**30,), {}, 1)]),
    "nan cannot cross": (
        "ask(x=[float('nan')])",
        [],
        [Failed("TypeError", "ask() argument x[0] is nan, which JSON cannot hold", 1)],
    ),
    "a program may catch that": (
        "try:\n    ask(float('inf'))\nexcept TypeError:\n    print('no')", [], [Finished("no\n")],
    ),
    "an unknown name is the program's fault": (
        "get_weather('Oslo')", [], [Failed("NameError", "name 'get_weather' is not defined", 1)],
    ),
    "an error in a function keeps what was printed": (
        "print('before')\ndef f(x):\n    return 1 / x\n\nf(0)",
        [],
        [Failed("ZeroDivisionError", "division by zero", 3, "before\n")],
    ),
    "an error after a call": (
        "x = ask()\nx['b']", [{"a": 1}], [Paused("ask", (), {}, 1), Failed("KeyError", "'b'", 2)],
    ),
    "broken syntax": ("x = = 1", [], [Failed("SyntaxError", "invalid syntax", 1)]),
    "the program's own NotImplementedError": (
        "raise NotImplementedError('later')", [], [Failed("NotImplementedError", "later", 1)],
    ),
    "the program's own TimeoutError": (
        "raise TimeoutError('feed time')", [], [Failed("TimeoutError", "feed time", 1)],
    ),
    "an attribute that Python lacks too": (
        "'a'.shout()", [], [Failed("AttributeError", "'str' object has no attribute 'shout'", 1)],
    ),
    "endless recursion": (
        "def f():\n    return f()\nf()",
        [],
        [Failed("RecursionError", "maximum recursion depth exceeded", 2)],
    ),
    "an endless loop": ("while True: pass", [], [SandboxTimeout]),
    "an endless loop that catches all": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        [],
        [SandboxTimeout],
    ),
    "endless printing": ("while True: print('x' * 100)", [], [SandboxTimeout]),
    "memory without end": (
        "x = []\nwhile True: x.append('y' * 10_000_000)", [], [Failed("MemoryError", "", 2)],
    ),
    "one allocation too big": ("'x' * 10**10\n1", [], [Failed("MemoryError", "", 1)]),
    "calls without end": (
        "while True: ask()", [1] * 9, [Paused("ask", (), {}, 1)] * 5 + [SandboxLimit],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PROGRAMS)
def test_a_cell_takes_these_steps(engine: KernelEngine, case: str) -> None:
    source, answers, expected = PROGRAMS[case]
    assert run(engine, source, answers=answers) == expected


def test_variables_persist_between_pieces_and_lines_count_from_each_piece(
    engine: KernelEngine,
) -> None:
    steps = run(engine, "x = 2", "def f():\n    return 1 / 0", "x + 1", "\n\nf()")
    assert steps == [
        Finished(),
        Finished(),
        Finished("", 3, "3"),
        Failed("ZeroDivisionError", "division by zero", 3),
    ]


def test_a_session_continues_after_a_failed_piece(engine: KernelEngine) -> None:
    with cells(engine, frozenset({"ask"})) as session:
        session.start("x = 1")
        with pytest.raises(ProgramFailed):
            session.start("1 / 0")
        assert session.start("x") == Finished("", 1, "1")


def test_the_next_session_finds_nothing_of_the_last(engine: KernelEngine) -> None:
    run(engine, "import math\nmath.leftover = x = 1")
    assert run(engine, "x") == [Failed("NameError", "name 'x' is not defined", 1)]


def test_the_preamble_runs_first_and_hides_its_lines(engine: KernelEngine) -> None:
    preamble = "class Place:\n    def __init__(self, name):\n        self.name = name.strip()"
    assert run(engine, "ask(Place(name=' Oslo '))", preamble=preamble) == [
        Paused("ask", ({"name": "Oslo"},), {}, 1)
    ]
    with (
        pytest.raises(ProgramFailed) as caught,
        cells(engine, preamble=preamble) as s,
    ):
        s.start("\nPlace(1)")
    assert (caught.value.kind, caught.value.line) == ("AttributeError", 2)
    assert caught.value.traceback == (
        "Traceback (most recent call last):\n  line 2, in <module>\n    Place(1)\n"
        "AttributeError: 'int' object has no attribute 'strip'"
    )


def test_a_traceback_shows_only_the_programs_own_lines(engine: KernelEngine) -> None:
    with pytest.raises(ProgramFailed) as caught, cells(engine) as session:
        session.start("import json\ndef f(x):\n    return json.loads(x)\n\nf('{')[0]")
    assert caught.value.kind == "JSONDecodeError"
    assert caught.value.traceback.splitlines()[:5] == [
        "Traceback (most recent call last):",
        "  line 5, in <module>",
        "    f('{')[0]",
        "  line 3, in f",
        "    return json.loads(x)",
    ]


def test_time_in_the_host_does_not_count_against_the_program(engine: KernelEngine) -> None:
    with cells(engine, frozenset({"ask"})) as session:
        session.start("x = ask()")
        time.sleep(LIMITS.seconds + 0.2)
        assert session.resume(1) == Finished()


def test_start_and_resume_raise_in_the_wrong_state(engine: KernelEngine) -> None:
    with cells(engine, frozenset({"ask"})) as session:
        with pytest.raises(RuntimeError, match="not paused"):
            session.resume(1)
        session.start("ask()")
        with pytest.raises(RuntimeError, match="is paused"):
            session.start("1")


def test_threads_share_an_engine(engine: KernelEngine) -> None:
    seen: dict[int, list[Seen]] = {}

    def work(number: int) -> None:
        seen[number] = run(engine, f"ask({number}) * 2", answers=[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {
        n: [Paused("ask", (n,), {}, 1), Finished("", n * 2, str(n * 2))] for n in range(6)
    }


def test_closing_a_paused_session_frees_its_slot() -> None:
    for make in (_one_kernel,):
        with make() as engine:
            for _ in range(3):
                assert run(engine, "ask(1)") == [Paused("ask", (1,), {}, 1)]


def test_an_engine_without_a_free_slot_raises_busy() -> None:
    for make in (_one_kernel,):
        with make() as engine:
            with cells(engine), pytest.raises(SandboxBusy):
                cells(engine).__enter__()
            assert run(engine, "1") == [Finished("", 1, "1")]


def test_a_closed_engine_opens_no_session() -> None:
    for make in (_one_kernel,):
        engine = make()
        engine.close()
        with pytest.raises(SandboxUnavailable, match="closed"):
            cells(engine).__enter__()


def _one_kernel() -> KernelEngine:
    return kernels(LIMITS, warm=0, most=1)


KERNEL_ONLY: dict[str, tuple[str, list[Seen]]] = {
    "bytes cannot cross": (
        "ask(b'a')",
        [Failed("TypeError", "ask() argument 1 is of type bytes, which JSON cannot hold", 1)],
    ),
    "inheritance": (
        "class E(ValueError): pass\nraise E('x')", [Failed("E", "x", 2)],
    ),
    "a callback": ("ask(list(map(str, range(2))))", [Paused("ask", (["0", "1"],), {}, 1)]),
    "an enum": (
        "import enum\nclass C(enum.Enum):\n    A = 'a'\nask(C.A)", [Paused("ask", ("a",), {}, 4)],
    ),
    "input() has nobody to ask": ("input('name? ')", [Failed("EOFError", "", 1)]),
    "exit() ends only the program": ("import sys\nsys.exit(3)", [Failed("SystemExit", "3", 2)]),
    "the kernel's death": ("import os\nos._exit(3)", [SandboxDied]),
    "a crash": ("import ctypes\nctypes.string_at(0)", [SandboxDied]),
    "sets have the same order each time": (
        "list({'Oslo', 'Rome', 'Paris', 'Bern'})",
        [Finished("", ["Oslo", "Paris", "Bern", "Rome"], "['Oslo', 'Paris', 'Bern', 'Rome']")],
    ),
    "threads run in the order in which they started": (
        ("import threading\nseen = []\ndef work(n): seen.append(n)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\nask(seen)"),
        [Paused("ask", ([0, 1, 2, 3, 4],), {}, 7)],
    ),
    "a thread may call": (
        "import threading\nt = threading.Thread(target=ask, args=(1,)); t.start(); t.join()",
        [Paused("ask", (1,), {}, 2)],
    ),
    "a queue between threads": (
        ("import queue, threading\nq, out = queue.Queue(), []\ndef work():\n"
        "    while (n := q.get()) is not None: out.append(n)\n"
        "t = threading.Thread(target=work); t.start()\nfor n in (1, 2, None): q.put(n)\nt.join(); out"),
        [Finished("", [1, 2], "[1, 2]")],
    ),
    "a pool's threads call": (
        ("from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as ex: ex.submit(ask, 1)"),
        [Paused("ask", (1,), {}, 2)],
    ),
    "tasks finish in the order in which they were made": (
        ("import asyncio\nasync def one(n): return n\nasync def main():\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        tasks = [group.create_task(one(n)) for n in range(3)]\n"
        "    done, _ = await asyncio.wait([asyncio.ensure_future(one(n)) for n in (7, 8)])\n"
        "    late = [await each for each in asyncio.as_completed([one(5), one(6)])]\n"
        "    made = [t.result() for t in tasks]\n"
        "    return made + sorted(t.result() for t in done) + late\nasyncio.run(main())"),
        [Finished("", [0, 1, 2, 7, 8, 5, 6], "[0, 1, 2, 7, 8, 5, 6]")],
    ),
    "what is no awaitable is its own result": (
        ("import asyncio\nx = [1, 2]\nt = asyncio.create_task({'a': 1})\n"
        "[await x, await t, await asyncio.gather(*x)]"),
        [Finished("", [[1, 2], {"a": 1}, [1, 2]], "[[1, 2], {'a': 1}, [1, 2]]")],
    ),
    "async for and async with": (
        ("async def each():\n    yield 1\n    yield 2\nout = [x async for x in each()]\n"
        "async for x in each(): out.append(x)\nout"),
        [Finished("", [1, 2, 1, 2], "[1, 2, 1, 2]")],
    ),
    "exit is Python's": ("print(1)\nexit()\nprint(2)", [Failed("SystemExit", "None", 2, "1\n")]),
    "no debugger is loaded, and one can be": (
        "import importlib.util, sys\nfound = importlib.util.find_spec\n"
        "[sorted(m for m in sys.modules if 'debugpy' in m or 'pydevd' in m), found('debugpy') is not None]",
        [Finished("", [[], True], "[[], True]")],
    ),
    "no IPython syntax": ("!ls", [Failed("SyntaxError", "invalid syntax", 1)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def roomy_kernel() -> Iterator[KernelEngine]:
    with kernels(ROOMY, warm=2) as engine:
        yield engine


@pytest.mark.parametrize("case", KERNEL_ONLY)
def test_the_kernel_runs_all_of_python(roomy_kernel: KernelEngine, case: str) -> None:
    source, expected = KERNEL_ONLY[case]
    if IN_DOCKER and "pandas" in source:
        pytest.skip("the image that the tests make has no pandas")
    assert run(roomy_kernel, source) == expected


def test_a_kernel_awaits_the_results_of_calls(roomy_kernel: KernelEngine) -> None:
    source = (
        "import asyncio\nasync def main():\n    x = await ask(0)\n"
        "    return x, await asyncio.gather(ask(1), *[tell(2)])\nprint(asyncio.run(main()))"
    )
    assert run(roomy_kernel, source, answers=["z", "a", "b"]) == [
        Paused("ask", (0,), {}, 3),
        Paused("ask", (1,), {}, 4, 1, (Paused("tell", (2,), {}, 4, 1),)),
        Paused("tell", (2,), {}, 4, 1),
        Finished("('z', ['a', 'b'])\n"),
    ]


@needs_bubblewrap
def test_an_interrupted_kernel_keeps_its_state(engine: KernelEngine) -> None:
    with cells(engine) as session:
        session.start("x = 1")
        with pytest.raises(SandboxTimeout):
            session.start("while True: pass")
        assert session.start("x") == Finished("", 1, "1")


_SERVER = """
import sys
from pathlib import Path
from sandbox.kernel.engine import KernelEngine

def descriptors():  # without libffi's, which maps itself
    return sum(".so" not in str(each.resolve()) for each in Path("/proc/self/fd").iterdir())

before = descriptors()
engine = KernelEngine(place=sys.argv[1], warm=0)
with engine.notebook() as notebook:
    notebook.offer(frozenset({"ask"}))
    [*notebook.run("import subprocess, sys; subprocess.Popen([sys.executable]); ask()")]
    print("ready", flush=True)
    input()
    engine.close()
print(descriptors() - before)
"""


@needs_bubblewrap
@pytest.mark.parametrize(("place", "end"), [("bubblewrap", "close"), ("bubblewrap", "SIGKILL"),
                                            ("none", "close")])  # fmt: skip
def test_kernels_end_with_their_server(place: str, end: str) -> None:
    """A kernel under another uid once outlived bubblewrap, which may not kill it."""
    command = [sys.executable, "-c", _SERVER, place]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        started = _descendants(server.pid)
        assert len(started) > 1
        if end == "close":
            assert server.communicate("\n")[0] == "0\n"
        else:
            server.kill()
    until = time.monotonic() + 10
    while any(Path("/proc", pid, "exe").exists() for pid in started) and time.monotonic() < until:
        time.sleep(0.01)
    assert {pid for pid in started if Path("/proc", pid, "exe").exists()} == set()
    assert not [*Path(tempfile.gettempdir()).glob(f"emulator-kernel-*-{server.pid}-*")]


def _descendants(pid: int | str) -> set[str]:
    children = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    found = set(" ".join(children).split())
    return found.union(*map(_descendants, found))


def test_a_kernel_without_a_sandbox_must_be_requested_by_name() -> None:
    with pytest.raises(ValueError, match="known: bubblewrap, docker, gateway, none"):
        KernelEngine(place="docker?")
    with KernelEngine(LIMITS, place="none", warm=0) as engine:
        assert run(engine, "ask(1) + 1", answers=[1]) == [
            Paused("ask", (1,), {}, 1),
            Finished("", 2, "2"),
        ]


def test_no_bubblewrap_turns_the_kernel_engine_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with KernelEngine() as engine, pytest.raises(SandboxUnavailable) as caught:
        engine.warm_up()
    assert (caught.value.reason, caught.value.fix) == (
        "bubblewrap (bwrap) is not installed",
        "install it (`apt-get install bubblewrap`) or run with --sandbox none",
    )
    checks = check_place("bubblewrap", {})
    assert checks[0].ok is False
    assert "fix: install it (`apt-get install bubblewrap`)" in render(checks)


@needs_bubblewrap
def test_the_self_check_runs_a_cell() -> None:
    found = check_place("bubblewrap", {})[0]
    assert (found.name, found.ok, found.fix) == ("kernel (bubblewrap)", True, "")
    assert render([Check("a", ok=True, detail="b")]) == "a  works  b"


def test_a_deep_traceback_is_cut_in_the_middle() -> None:
    frames = [Frame(n, "f", f"f({n})") for n in range(1, 21)]
    lines = render_traceback(frames, "E", "m").splitlines()
    assert lines[:1] + lines[5:8] + lines[-3:] == [
        "Traceback (most recent call last):",
        "  line 3, in f",
        "    f(3)",
        "  ... 12 more calls ...",
        "  line 20, in f",
        "    f(20)",
        "E: m",
    ]


def test_a_value_too_deep_for_json_is_refused() -> None:
    value: Any = []
    for _ in range(200):
        value = [value]
    with pytest.raises(TypeError, match="nested deeper than 100"):
        plain(value)


def test_a_key_is_written_as_json_writes_it() -> None:
    value = {2: "a", True: "b", None: "c", 1.5: "d", "e": "f"}
    assert plain(value) == json.loads(json.dumps(value))
