"""The modules that run inside a kernel."""

import ast
import sys
from pathlib import Path

import pytest

from sandbox import inside
from sandbox.engine import Finished, Limits
from sandbox.errors import SandboxTimeout
from sandbox.outputs import Printed
from tests.support.places import kernels

ALLOWED = {*sys.stdlib_module_names, "IPython"}


def test_they_import_the_standard_library_ipython_and_one_another() -> None:
    """A kernel may run in an image or on a gateway where nothing else is installed."""
    (folder,) = inside.__path__
    foreign = [
        (file.name, module)
        for file in Path(folder).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if module.partition(".")[0] not in ALLOWED and not module.startswith("sandbox.inside")
    ]
    assert foreign == []


CALLS_THAT_WAIT = {
    "a task": "import asyncio\nt = asyncio.create_task(ask(1))",
    "a thread": "import threading\nthreading.Thread(target=ask, args=(1,)).start()",
}


@pytest.mark.parametrize("calls", CALLS_THAT_WAIT)
def test_an_interrupted_cell_drops_its_calls_and_keeps_its_variables(calls: str) -> None:
    with kernels(Limits(seconds=1.0), warm=0) as engine, engine.notebook() as notebook:
        notebook.offer(frozenset({"ask"}))
        with pytest.raises(SandboxTimeout):
            list(notebook.run(f"x = 5\n{CALLS_THAT_WAIT[calls]}\nwhile True: pass"))
        assert list(notebook.run("print(x)")) == [Printed("5\n"), Finished("5\n")]
