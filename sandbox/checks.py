"""Try each engine with a real program and say what works. Knows nothing of settings or HTTP.

Stops: nothing by itself; it is how an operator learns that something else would not.
Does not stop: a fence that a program can still get over; tests/test_escape.py asks that.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox.engine import Engine, Finished, Paused
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.kernel import KernelEngine
from sandbox.monty import MontyEngine

_PROGRAM = "answer = ask(6, by=7)\nprint(answer)\nanswer"
_EXPECTED = [
    Paused("ask", (6,), {"by": 7}, 1),
    Finished("42\n", 42, "42"),
]


@dataclass(frozen=True)
class Check:
    """One line of the report; `fix` is empty when `ok`."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


ENGINES: dict[str, Callable[[], Engine]] = {
    "monty": lambda: MontyEngine(warm=1),
    "kernel (bubblewrap)": lambda: KernelEngine(warm=0),
}


def check() -> list[Check]:
    """Run one program with a pause on each engine. Takes about a second."""
    return [_try(name, make) for name, make in ENGINES.items()]


def render(checks: Sequence[Check]) -> str:
    width = max(len(each.name) for each in checks)
    lines = []
    for each in checks:
        lines.append(f"{each.name:{width}}  {'works' if each.ok else 'OFF'}    {each.detail}")
        if each.fix:
            lines.append(f"{'':{width}}         fix: {each.fix}")
    return "\n".join(lines)


def _try(name: str, make: Callable[[], Engine]) -> Check:
    began = time.perf_counter()
    engine = make()
    try:
        with engine.session(frozenset({"ask"})) as session:
            steps = [session.start(_PROGRAM), session.resume(42)]
    except SandboxUnavailable as error:
        return Check(name, False, error.reason, error.fix)
    except SandboxError as error:
        return Check(name, False, str(error), "report this: it should have worked")
    finally:
        engine.close()
    if steps != _EXPECTED:
        return Check(name, False, f"the probe program gave {steps}", "report this")
    seconds = time.perf_counter() - began
    return Check(name, True, f"a program with one call took {seconds:.2f} s from cold")
