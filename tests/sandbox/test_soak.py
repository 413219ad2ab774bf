"""Many sessions, in sequence and at the same time, release their resources.

`make soak` runs 500 on each engine; the ordinary suite fewer kernels, as each takes a start.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.core.errors import NotFound
from emulator.database import Leases, open_database
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.engines import InterpreterEngines
from emulator.interpreter.interpreter import Interpreter
from emulator.settings.settings import Settings
from emulator.storage.blob_store import open_blob_store
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.tools.toolset import Toolset
from sandbox.engine import Limits
from sandbox.errors import SandboxError
from sandbox.fences import cgroups, leftovers
from sandbox.kernel.engine import KernelEngine
from sandbox.programs.server import ProgramServer
from tests.support.cells import cells
from tests.support.children import run
from tests.support.places import containers as docker_containers
from tests.support.places import kernels, needs_bubblewrap

SESSIONS = int(os.environ.get("SOAK_SESSIONS", "40"))
FIRST = 20
"""Sessions before the first look: caches fill, allocators grow."""
GROWTH = 16 * 2**20
"""Bytes of resident memory that any number of sessions may add: allocators never give all back."""
LIMITS = Limits(seconds=5.0, output=10_000)

SANDBOXES: dict[str, Callable[[], KernelEngine | ProgramServer]] = {
    "programs": lambda: ProgramServer(LIMITS),
    "kernel": lambda: kernels(LIMITS, warm=0),
}

ASK = {"type": "function", "function": {"name": "ask", "parameters": {"type": "object"}}}

# A session each: one that ends well, is left paused, fails, runs away, or kills its kernel.
PROGRAMS = (
    "ask(1)",
    "x = [str(n) for n in range(10_000)]\nlen(x)",
    "1 / 0",
    "print('x' * 5_000)",
    "import os\nos._exit(1)",
    "open('/mnt/data/big', 'wb').write(b'x' * 10_000_000)",
    "print('x' * 100_000)",
)


@dataclass(frozen=True)
class Held:
    """What this process holds that could pile up."""

    descriptors: int
    threads: int
    children: int
    groups: int
    folders: int
    containers: int


def _held() -> Held:
    tasks = list(Path("/proc/self/task").iterdir())
    mark = leftovers.mark()
    return Held(
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        children=sum(map(_children, tasks)),
        groups=sum(len(list(folder.glob(f"{mark}-*"))) for folder in cgroups.folders()),
        folders=len(list(Path(tempfile.gettempdir()).glob(f"{mark}-*"))),
        containers=len(docker_containers(mark)),
    )


def _children(task: Path) -> int:
    try:
        return len((task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
        return 0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _run(sandbox: KernelEngine | ProgramServer, number: int) -> None:
    source = PROGRAMS[number % len(PROGRAMS)]
    with contextlib.suppress(SandboxError):
        if isinstance(sandbox, ProgramServer):
            run(sandbox, source, tool="ask")
        else:
            with cells(sandbox, frozenset({"ask"})) as session:
                session.start(source)


def _settled(expected: Held) -> Held:
    """What is held once kernels have been disposed of in the background."""
    until = time.monotonic() + 15
    while (held := _held()) != expected and time.monotonic() < until:
        time.sleep(0.05)
    return held


@pytest.mark.nightly
@needs_bubblewrap
def test_removed_containers_leave_no_kernel_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, expired, or alive when the proxy ends; idle, waiting for a client, or dead already."""
    monkeypatch.setattr("emulator.interpreter.engines._WARM", 0)
    clock = [time.time()]
    settings = Settings()
    kernels = InterpreterEngines(settings)
    database = open_database(str(tmp_path / "database.sqlite"), lambda: clock[0])
    folder = open_blob_store(database, str(tmp_path))
    containers = Containers(folder, Files(folder, settings), settings)
    interpreter = Interpreter(
        containers, kernels, Approvals(database), database, Leases(database), settings
    )
    toolset = Toolset.parse([ASK])

    def use(cell: str) -> Container:
        container = containers.create("", expires_minutes=1)
        list(interpreter.run(container, cell, toolset))
        return container

    try:
        for _ in range(3):  # so that the launcher's threads are all there
            interpreter.delete("", use("1").id)
        time.sleep(0.5)
        held = _held()
        made = [use(cell) for cell in ("ask()", "import os\nos._exit(1)", "open('a', 'w')")]
        assert _held().children > held.children
        interpreter.delete("", made[0].id)
        clock[0] += 61
        interpreter.sweep()
        assert _settled(held) == held
        use("1")
        interpreter.close()
        assert _settled(held) == held
    finally:
        interpreter.close()
        kernels.close()
        folder.close()


@pytest.mark.nightly
@needs_bubblewrap
def test_a_container_in_use_does_not_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.interpreter.engines._WARM", 0)
    clock = [time.time()]
    settings = Settings()
    kernels = InterpreterEngines(settings)
    database = open_database(str(tmp_path / "database.sqlite"), lambda: clock[0])
    folder = open_blob_store(database, str(tmp_path))
    containers = Containers(folder, Files(folder, settings), settings)
    interpreter = Interpreter(
        containers, kernels, Approvals(database), database, Leases(database), settings
    )
    container = containers.create("", expires_minutes=1)
    try:
        running = interpreter.run(container, "print(1)")
        next(running)
        for _ in range(3):
            clock[0] += 50
            interpreter.touch_busy()
            interpreter.sweep()
        list(running)
        assert containers.get("", container.id).status == "running"
        clock[0] += 61
        interpreter.touch_busy()
        with pytest.raises(NotFound):
            containers.get("", container.id)
    finally:
        interpreter.close()
        kernels.close()
        folder.close()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SANDBOXES)
def test_many_sessions_leave_no_resources(name: str) -> None:
    sandbox = SANDBOXES[name]()
    try:
        with ThreadPoolExecutor(2) as users:
            list(users.map(lambda number: _run(sandbox, number), range(FIRST)))
            time.sleep(1.0)
            held, resident = _held(), _resident()
            sessions = 500 if name == "programs" else SESSIONS
            list(users.map(lambda number: _run(sandbox, number), range(sessions)))
            assert _settled(held) == held
            assert _resident() - resident < GROWTH
            grown = (_resident() - resident) / 2**20
            sys.stdout.write(f"{name}: {sessions} sessions, {held}, {grown:+.1f} MiB\n")
    finally:
        sandbox.close()
