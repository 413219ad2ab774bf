"""Test each engine and each fence on this machine, and report what works. Knows nothing of settings or HTTP.

Stops: nothing by itself; it tells an operator which engine or fence does not work.
Does not stop: a program that gets past a working fence; tests/sandbox/test_escape.py tests that.
"""

import time
from collections.abc import Callable

from sandbox.engine import Engine, Finished, Paused
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.kernel.engine import KernelEngine
from sandbox.kernel.places import PLACES, Options
from sandbox.report import Check

_PROGRAM = "answer = ask(6, by=7)\nprint(answer)\nanswer"
_EXPECTED = [
    Paused("ask", (6,), {"by": 7}, 1),
    Finished("42\n", 42, "42"),
]


def check_place(place: str, options: Options) -> list[Check]:
    """Test a kernel in this place, and each of its fences."""
    if place == "none":
        place = "bubblewrap"  # show the fences that the operator has switched off
    row = PLACES[place]
    if row.shared:
        return row.fences(options)
    name = f"kernel ({place})"
    return [
        check(name, lambda: KernelEngine(place=place, warm=0, **options)),
        *row.fences(options),
    ]


def check(name: str, make: Callable[[], Engine]) -> Check:
    """Run one program with a pause on a new engine."""
    start = time.perf_counter()
    engine = make()
    try:
        with engine.session(frozenset({"ask"})) as session:
            steps = [session.start(_PROGRAM), session.resume(42)]
    except SandboxUnavailable as error:
        return Check(name, ok=False, detail=error.reason, fix=error.fix)
    except SandboxError as error:
        return Check(name, ok=False, detail=str(error), fix="report this as a bug")
    finally:
        engine.close()
    if steps != _EXPECTED:
        return Check(
            name, ok=False, detail=f"the probe program returned {steps}", fix="report this as a bug"
        )
    seconds = time.perf_counter() - start
    return Check(
        name, ok=True, detail=f"a program with one call took {seconds:.2f} s, including the start"
    )
