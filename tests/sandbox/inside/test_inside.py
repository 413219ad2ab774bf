"""The modules that run inside a kernel."""

import sys

import pytest

from sandbox import inside
from sandbox.engine import Finished, Limits, Paused
from sandbox.errors import ProgramFailed, SandboxTimeout
from sandbox.outputs import Printed
from tests.support.imports import imports
from tests.support.places import kernels

ALLOWED = {*sys.stdlib_module_names, "IPython"}


def test_kernel_modules_import_only_the_standard_library_ipython_and_each_other() -> None:
    """A kernel may run in an image or on a gateway where nothing else is installed."""
    foreign = [
        (file, module)
        for file, module in imports(inside)
        if module.partition(".")[0] not in ALLOWED and not module.startswith("sandbox.inside")
    ]
    assert foreign == []


DEFINITIONS = """
import asyncio, threading
x = 5
event = asyncio.Event()
async def ask_once():
    return await ask(1)
async def spin():
    while True: pass
async def wait_and_ask():
    await event.wait()
    return await ask(3)
async def ask_and_spin():
    await asyncio.gather(ask(1), spin())
"""

ENDLESS_CELLS = {
    "a task": "t = asyncio.create_task(ask(1))\nwhile True: pass",
    "a coroutine's task": "t = asyncio.create_task(ask_once())\nwhile True: pass",
    "gather": "t = asyncio.gather(ask(1), ask_once())\nwhile True: pass",
    "a thread": "t = threading.Thread(target=ask, args=(1,)); t.start()\nwhile True: pass",
    "a cell that awaits": "t = asyncio.Event()\nawait t.wait()",
    "a cell that awaited": "await asyncio.sleep(0)\nt = asyncio.create_task(ask(1))\nwhile True: pass",
    "a busy task of a group": "async with asyncio.TaskGroup() as group:\n"
    "    t = group.create_task(ask(1))\n    group.create_task(spin())",
    "asyncio.run": "t = ask_and_spin()\nasyncio.run(t)",
}


@pytest.mark.parametrize("cell", ENDLESS_CELLS)
def test_an_interrupted_cell_drops_its_calls_and_keeps_its_variables(cell: str) -> None:
    """A dropped call's task ran after the cell, asked a host that no longer read, and blocked the kernel; and
    ipykernel interrupts no cell whose event loop is idle or busy."""
    with kernels(Limits(seconds=1.0), warm=0) as engine, engine.notebook() as notebook:
        notebook.offer(frozenset({"ask"}))
        list(notebook.run(DEFINITIONS))
        with pytest.raises(SandboxTimeout):
            list(notebook.run(ENDLESS_CELLS[cell]))
        assert list(notebook.run("print(x)")) == [Printed("5\n"), Finished("5\n")]
        assert list(notebook.run("t = t and ask(2)")) == [Paused("ask", (2,), {}, line=1)]


def test_the_task_of_an_earlier_cell_calls_only_while_a_cell_runs() -> None:
    with kernels(Limits(seconds=20.0), warm=0) as engine, engine.notebook() as notebook:
        notebook.offer(frozenset({"ask"}))
        list(notebook.run(DEFINITIONS))
        list(notebook.run("waiting = asyncio.create_task(wait_and_ask())"))
        assert list(notebook.run("event.set(); await waiting")) == [Paused("ask", (3,), {})]
        assert list(notebook.resume_with(["three"]))[-1] == Finished("", "three", "'three'")
        list(notebook.run("early = asyncio.create_task(ask_once())"))
        while list(notebook.run("early.done()"))[-1] == Finished("", value=False, text="False"):
            pass  # a cell that awaits nothing does not run the event loop
        with pytest.raises(ProgramFailed, match="while no cell was running"):
            list(notebook.run("await early"))
        assert list(notebook.run("ask(4)")) == [Paused("ask", (4,), {}, line=1)]
