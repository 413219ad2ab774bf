"""Test kernels and each fence on this machine, and report what works. Knows nothing of settings or HTTP.

Stops: nothing by itself; it tells an operator which fence does not work.
Does not stop: a cell that gets past a working fence; tests/sandbox/test_escape.py tests that.
"""

import time
from collections.abc import Callable

from sandbox.engine import Finished, Paused
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.kernel.engine import KernelEngine
from sandbox.kernel.places import PLACES, Options
from sandbox.report import Check

_CELL = "answer = ask(6, by=7)\nprint(answer)\nanswer"
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
        return row.checks(options)
    name = f"kernel ({place})"
    return [
        check(name, lambda: KernelEngine(place=place, warm=0, **options)),
        *row.checks(options),
    ]


def check(name: str, make: Callable[[], KernelEngine]) -> Check:
    """Run one cell with a pause on a new engine."""
    start = time.perf_counter()
    engine = make()
    try:
        with engine.notebook() as notebook:
            notebook.offer(frozenset({"ask"}))
            events = [*notebook.run(_CELL), *notebook.resume_with([42])]
            steps = [each for each in events if isinstance(each, Paused | Finished)]
    except SandboxUnavailable as error:
        return Check(name, ok=False, detail=error.reason, fix=error.fix)
    except SandboxError as error:
        return Check(name, ok=False, detail=str(error), fix="report this as a bug")
    finally:
        engine.close()
    if steps != _EXPECTED:
        return Check(
            name, ok=False, detail=f"the probe cell returned {steps}", fix="report this as a bug"
        )
    seconds = time.perf_counter() - start
    return Check(
        name, ok=True, detail=f"a cell with one call took {seconds:.2f} s, including the start"
    )
