"""Control groups without root: a part of the hierarchy that root has delegated to an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SandboxUnavailable
from sandbox.fences import cgroups
from sandbox.fences.cgroups import ControlGroup
from tests.support.ordinary_user import NOBODY, ROOT, ordinary_user
from tests.support.places import needs_bubblewrap

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can delegate a control group"),
]

TRIED = """
import json
from sandbox.fences import cgroups
from sandbox.fences import probes
from sandbox.engine import Limits
from sandbox.errors import SandboxError
from sandbox.kernel.engine import KernelEngine

program = '''
import os, select, signal
pipe, children = os.pipe(), []
for _ in range(12):
    pid = os.fork()
    if pid == 0:
        held = b"x" * (60 * 2**20)
        os.write(pipe[1], b"x")
        signal.pause()
    children.append(pid)
held = 0
while held < 12 and not any(os.waitpid(pid, os.WNOHANG)[0] for pid in children):
    if select.select([pipe[0]], [], [], 0.1)[0]:
        held += len(os.read(pipe[0], 12))
held
'''
with KernelEngine(Limits(seconds=60.0, memory=2**27), place="bubblewrap", warm=0) as engine:
    try:
        with engine.notebook() as notebook:
            held = [*notebook.run(program)][-1].value
    except SandboxError as error:
        held = str(error)
left = [group.name for folder in cgroups.folders() for group in folder.glob("emulator-kernel-*")]
print(json.dumps({"told": [each.name for each in probes.missing()], "held": held, "left": left}))
"""
"""An ordinary user's server: a program of which each process keeps to its limit, and all do not."""


@pytest.fixture
def delegated() -> Iterator[ControlGroup]:
    """A group that an ordinary user may use as it likes."""
    roots = cgroups.find()
    if isinstance(roots, SandboxUnavailable):
        pytest.skip(str(roots))
    group = ControlGroup(roots, memory=2**32, processes=1000)
    for folder in group.folders:
        _give(folder)
    yield group
    for folder in group.folders:
        _take_back(folder)


def _give(folder: Path) -> None:
    for path in (folder, *folder.glob("cgroup.*")):
        os.chown(path, NOBODY, NOBODY)


def _take_back(folder: Path) -> None:
    for child in folder.glob("*/"):
        child.rmdir()
    folder.rmdir()


def as_ordinary_user(tmp_path: Path, group: ControlGroup | None) -> dict[str, Any]:
    command = [*ordinary_user(tmp_path), sys.executable, "-c", TRIED]
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, NOBODY, NOBODY)
        done = subprocess.run(
            group.join_command(command) if group else command,
            check=False, cwd=ROOT, capture_output=True, text=True,
            env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_delegation_only_single_processes_are_limited_and_this_is_reported(
    tmp_path: Path,
) -> None:
    found = as_ordinary_user(tmp_path, None)
    assert found == {"told": ["control group"], "held": 12, "left": []}


def test_a_delegated_group_bounds_an_ordinary_users_kernel_as_a_whole(
    delegated: ControlGroup, tmp_path: Path
) -> None:
    found = as_ordinary_user(tmp_path, delegated)
    assert found["told"] == found["left"] == []
    assert isinstance(found["held"], str) or found["held"] < 12


HANDED_DOWN = """
import sys
from pathlib import Path
from sandbox.fences import cgroups

folder = Path(sys.argv[1])
try:
    cgroups.delegate_controllers(folder, sys.argv[2:], move=False)
except OSError as error:
    print(error.errno)
for _ in range(2):  # a second server finds it done
    cgroups.delegate_controllers(folder, sys.argv[2:], move=True)
(folder / "a").mkdir()
print((folder / "a" / "cgroup.controllers").read_text().strip())
print(Path("/proc/self/cgroup").read_text().strip().splitlines()[-1].rpartition("/")[2])
(folder / "a").rmdir()
"""


@pytest.fixture
def version_2() -> Iterator[tuple[Path, str]]:
    """A version 2 group that is an ordinary user's, and a controller that it has, whichever."""
    for _, own in cgroups._mounted("cgroup2", ""):
        control = own / "cgroup.subtree_control"
        before = control.read_text().split()
        offered = [*before, *(own / "cgroup.controllers").read_text().split()]
        if offered:
            break
    else:
        pytest.skip("no controller of this machine is in a version 2 hierarchy")
    folder = own / f"emulator-test-{os.getpid()}"
    try:
        control.write_text(f"+{offered[0]}")
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no version 2 group can be made here: {error}")
    _give(folder)
    yield folder, offered[0]
    _take_back(folder)
    if offered[0] not in before:
        control.write_text(f"-{offered[0]}")


def test_a_server_in_a_delegated_group_makes_room_for_groups_below_it(
    version_2: tuple[Path, str], tmp_path: Path
) -> None:
    """A version 2 group with processes gives its children no controllers."""
    folder, controller = version_2
    arguments = ["-c", HANDED_DOWN, str(folder), controller]
    joins = f'echo $$ >{folder}/cgroup.procs && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", joins, "sh", *ordinary_user(tmp_path), sys.executable, *arguments],
        check=False, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["16", controller, "emulator-server"]
