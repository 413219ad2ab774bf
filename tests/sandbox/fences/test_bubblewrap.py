"""The sandbox's command line: where its order matters, and each fence that a second one covers.

A program gets past neither of two fences when one of them is gone, so these tests look at the fence itself.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine import JSON, Finished, Limits
from sandbox.fences import bubblewrap
from sandbox.kernel.engine import KernelEngine
from tests.support.cells import Cells, cells
from tests.support.places import needs_bubblewrap

MiB = 2**20


def test_an_interpreter_below_tmp_is_not_covered_by_the_sandboxs_own_tmp() -> None:
    """A checkout under /tmp had no kernel: the tmpfs came after the bind, and hid it."""
    arguments = bubblewrap._file_options(1 << 20)
    tmp = next(n for n in range(len(arguments)) if arguments[n : n + 2] == ["--tmpfs", "/tmp"])
    assert tmp < arguments.index("--ro-bind")


@pytest.mark.parametrize("path", sorted({sys.prefix, sys.base_prefix} - {"/usr", "/usr/local"}))
def test_the_interpreters_own_prefix_is_bound_read_only(path: str) -> None:
    arguments = bubblewrap._file_options(1 << 20)
    bound = [arguments[n + 1] for n, word in enumerate(arguments) if word == "--ro-bind"]
    assert any(Path(path).resolve().is_relative_to(folder) for folder in bound)


def run_sandboxed(*command: str, env: dict[str, str]) -> bytes:
    """What a command printed."""
    with bubblewrap.prepare_launch(command, data_size=MiB, memory=64 * MiB, processes=8) as launch:
        try:
            done = subprocess.run(
                launch.command, pass_fds=launch.pass_fds, env=env, capture_output=True, check=True
            )
        finally:
            if launch.group is not None:
                launch.group.remove()
    return done.stdout


@needs_bubblewrap
def test_an_interpreter_is_found_over_several_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A venv of Debian's python had no kernel: .venv/bin/python -> /usr/bin/python3 -> python3.11."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "python3.x").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "python3").symlink_to("python3.x")
    (tmp_path / "venv" / "python").symlink_to("../python3")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    assert run_sandboxed(sys.executable, "-I", "-c", "print('found')", env={}) == b"found\n"


@needs_bubblewrap
def test_the_environment_of_bubblewrap_is_cleared() -> None:
    """The server starts it with an empty one, which would do as well."""
    source = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(
        run_sandboxed(
            sys.executable, "-c", source, env={"OPENAI_API_KEY": "secret", "LD_DEBUG": ""}
        )
    )
    # CPython coerces its locale and bwrap sets the working directory.
    assert seen.items() - {("LC_CTYPE", "C.UTF-8"), ("PWD", "/mnt/data")} == (
        bubblewrap.ENVIRONMENT.items()
    )


@pytest.fixture(scope="module")
def inside() -> Iterator[Cells]:
    limits = Limits(memory=256 * MiB)
    with (
        KernelEngine(limits, warm=0, data_size=32 * MiB, cpu_seconds=77, processes=48) as engine,
        cells(engine) as session,
    ):
        yield session


def found(session: Cells, source: str) -> JSON:
    step = session.start(source)
    assert isinstance(step, Finished)
    return step.value


MOUNTS = """
{fields[4]: fields[5].split(',') for fields in map(str.split, open('/proc/self/mountinfo'))}
"""

WRITABLE = {"/tmp", "/mnt/data", bubblewrap.RUN_FOLDER, "/proc", "/dev/shm", "/dev/pts"}
DEVICES = {
    f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero", "console")
}


@needs_bubblewrap
def test_mounts_are_read_only_except_a_programs_own_folders(inside: Cells) -> None:
    """Else the rest would be kept by nothing but its owner, who is another user."""
    options = found(inside, MOUNTS)
    assert isinstance(options, dict)
    mounts = {
        place: set(map(str, given)) for place, given in options.items() if isinstance(given, list)
    }
    assert {"/", "/dev", "/proc/sys"} < mounts.keys()
    assert {place for place, given in mounts.items() if "ro" not in given} - DEVICES == WRITABLE
    assert {place for place, given in mounts.items() if "nosuid" not in given} == set()


LIMITS = """
import resource
{name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith('RLIMIT_')}
"""


@needs_bubblewrap
def test_each_limit_is_set_and_cannot_be_raised(inside: Cells) -> None:
    """The sizes of the tmpfs would bound files without RLIMIT_FSIZE, and a control group processes."""
    limits = found(inside, LIMITS)
    assert isinstance(limits, dict)
    space = limits.pop("RLIMIT_AS")
    assert isinstance(space, list) and space[0] == space[1] != resource.RLIM_INFINITY
    ours = ("RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC")
    assert {name: limits[name] for name in ours} == {
        "RLIMIT_CORE": [0, 0],
        "RLIMIT_CPU": [77, 77],
        "RLIMIT_FSIZE": [32 * MiB, 32 * MiB],
        "RLIMIT_NOFILE": [256, 256],
        "RLIMIT_NPROC": [48, 48],
    }


@needs_bubblewrap
def test_a_sandbox_is_a_session_of_its_own_without_a_terminal(inside: Cells) -> None:
    """Else a program could put characters into the server's terminal, but for the filter."""
    assert found(inside, "import os\nos.getsid(0)") == 1


def test_all_packages_of_the_project_are_hidden() -> None:
    """When this module moved one folder down, only ``sandbox/fences`` was hidden."""
    assert {folder.name for folder in bubblewrap.project_packages()} == {"sandbox", "emulator"}
