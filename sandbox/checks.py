"""Try each engine and each fence, and say what works. Knows nothing of settings or HTTP.

Stops: nothing by itself; it is how an operator learns that something else would not.
Does not stop: a fence that a program can still get over; tests/sandbox/test_escape.py asks that.
"""

import time
from collections.abc import Callable, Sequence

from sandbox import fences
from sandbox.engine import Engine, Finished, Paused
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.fences import Check
from sandbox.kernel import KernelEngine
from sandbox.monty import MontyEngine

_PROGRAM = "answer = ask(6, by=7)\nprint(answer)\nanswer"
_EXPECTED = [
    Paused("ask", (6,), {"by": 7}, 1),
    Finished("42\n", 42, "42"),
]

ENGINES: dict[str, Callable[[], Engine]] = {
    "monty": lambda: MontyEngine(warm=1),
    "kernel (bubblewrap)": lambda: KernelEngine(warm=0),
}


def check_all() -> list[Check]:
    """The engines, and each fence of the bubblewrap sandbox. Takes about a second."""
    return [*map(check, ENGINES), *fences.checks()]


def render(checks: Sequence[Check]) -> str:
    width = max(len(each.name) for each in checks)
    lines = []
    for each in checks:
        word = "works" if each.ok else "OFF" if each.needed else "weak"
        lines.append(f"{each.name:{width}}  {word:5}  {each.detail}")
        if each.fix:
            lines.append(f"{'':{width}}         fix: {each.fix}")
    return "\n".join(lines)


def check(name: str, make: Callable[[], Engine] | None = None) -> Check:
    """Run one program with a pause on the engine that `make` makes, or of this name in ENGINES."""
    began = time.perf_counter()
    engine = (make or ENGINES[name])()
    try:
        with engine.session(frozenset({"ask"})) as session:
            steps = [session.start(_PROGRAM), session.resume(42)]
    except SandboxUnavailable as error:
        return Check(name, ok=False, detail=error.reason, fix=error.fix)
    except SandboxError as error:
        return Check(name, ok=False, detail=str(error), fix="report this: it should have worked")
    finally:
        engine.close()
    if steps != _EXPECTED:
        return Check(name, ok=False, detail=f"the probe program gave {steps}", fix="report this")
    seconds = time.perf_counter() - began
    return Check(name, ok=True, detail=f"a program with one call took {seconds:.2f} s from cold")
