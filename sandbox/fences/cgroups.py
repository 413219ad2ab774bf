"""Bound a sandbox's memory and processes as a whole, by control groups. Knows nothing of kernels.

Stops: memory that is spread over many processes or kept in tmpfs files, sockets and other places
that no rlimit counts; more processes than allowed, whatever uid they run as.

Does not stop: anything where there is no group to be had. That takes a hierarchy with the memory and
pids controllers in which this server may make groups: root mostly may, another user where such a
part of it is delegated (Linux's cgroup-v2.rst, "Delegation"; on older systems cgroup-v1). `find` says
what is missing.
"""

import contextlib
import errno
import itertools
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandbox.errors import SandboxUnavailable
from sandbox.fences.leftovers import mark

_FIX = (
    "let this user make control groups (`systemd-run --user --scope -p Delegate=yes python app.py ...`; in "
    "a systemd service: Delegate=memory pids), or accept that each process of a program is bounded, "
    "but not all together"
)


@dataclass(frozen=True)
class _Files:
    """How one version of control groups names things. A missing optional file is passed over."""

    limits: tuple[tuple[str, str], ...]
    events: str
    """Where a line `oom_kill N` counts what was killed for want of memory."""


_V2 = _Files(
    limits=(
        ("memory.max", "{memory}"),
        ("pids.max", "{processes}"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
    ),
    events="memory.events",
)
_V1 = _Files(
    limits=(
        ("memory.limit_in_bytes", "{memory}"),
        ("pids.max", "{processes}"),
        ("memory.memsw.limit_in_bytes", "{memory}"),
    ),
    events="memory.oom_control",
)
_CONTROLLERS = ("memory", "pids")
_ROUNDS = 10
"""How often processes are moved: those that are there may start others meanwhile."""
_made = itertools.count()


@dataclass(frozen=True)
class Roots:
    """Where groups can be made: one folder, or in version 1 one for each controller."""

    folders: tuple[Path, ...]
    files: _Files


class ControlGroup:
    """The control group of one sandbox. Raises OSError where it cannot be made."""

    def __init__(self, roots: Roots, *, memory: int, processes: int) -> None:
        """`memory` in bytes, of all processes and their files together."""
        name = f"{mark()}-{next(_made)}"
        self._files = roots.files
        self.folders = [folder / name for folder in roots.folders]
        try:
            for folder in self.folders:
                folder.mkdir()
            for file, value in self._files.limits:
                for folder in self.folders:
                    if (folder / file).exists():
                        text = value.format(memory=memory, processes=processes)
                        (folder / file).write_text(text)
        except OSError:
            self.remove(patience=0)
            raise

    def join_command(self, command: Sequence[str]) -> list[str]:
        """The command line that joins this group and then becomes `command`."""
        # A process that joins by itself has no moment outside with which to start others.
        joins = [f"echo $$ >{shlex.quote(str(folder / 'cgroup.procs'))}" for folder in self.folders]
        return ["/bin/sh", "-c", f'{" && ".join(joins)} && exec "$@"', "sh", *command]

    def out_of_memory(self) -> bool:
        """Whether a process in the group was killed because the group was full."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                for line in (folder / self._files.events).read_text().splitlines():
                    name, _, count = line.partition(" ")
                    if name == "oom_kill" and int(count):
                        return True
        return False

    def remove(self, patience: float = 2.0) -> None:
        """Give the group back; its processes have been killed and may need a moment to be gone."""
        until = time.monotonic() + patience
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > until:
                        break  # the next start's sweep finds it
                    time.sleep(0.005)
                else:
                    break


@cache
def find() -> Roots | SandboxUnavailable:
    """Where groups can be made on this machine, or why none can."""
    problem = "no hierarchy offers the memory and pids controllers"
    for roots in _candidates():
        try:
            _try(roots)
        except OSError as error:
            problem = f"control groups cannot be made: {error}"
        else:
            return roots
    return SandboxUnavailable(problem, _FIX)


def _try(roots: Roots) -> None:
    """Make a group and let a process join it. Raises OSError."""
    group = ControlGroup(roots, memory=2**26, processes=8)
    try:
        # Whoever may make a group may yet be kept from moving a process into it.
        joins = subprocess.run(
            group.join_command(["/bin/sh", "-c", ""]), check=False, capture_output=True, text=True
        )
    finally:
        group.remove()
    if joins.returncode != 0:
        raise PermissionError(joins.stderr.strip() or "no process may join one")


def folders() -> tuple[Path, ...]:
    roots = find()
    return roots.folders if isinstance(roots, Roots) else ()


def _candidates() -> Iterator[Roots]:
    """The nearest first; a group that must be changed for it only after all that need not be."""
    hierarchies = _mounted("cgroup2", "")
    for mount, own in hierarchies:
        for folder in (own, *own.parents):
            if not folder.is_relative_to(mount):
                break
            with contextlib.suppress(OSError):
                offered = (folder / "cgroup.subtree_control").read_text().split()
                if set(_CONTROLLERS) <= set(offered):
                    yield Roots((folder,), _V2)
    for mount, own in hierarchies:
        for folder in (own.parent, own):
            with contextlib.suppress(OSError):
                offered = (folder / "cgroup.controllers").read_text().split()
                if folder.is_relative_to(mount) and set(_CONTROLLERS) <= set(offered):
                    delegate_controllers(folder, _CONTROLLERS, move=folder == own)
                    yield Roots((folder,), _V2)
    version_1 = _version_1()
    if version_1 is not None:
        yield version_1


def delegate_controllers(folder: Path, controllers: Sequence[str], *, move: bool) -> None:
    """Let the children of a version 2 group have these controllers. Raises OSError.

    A group has either processes or children with controllers; with `move`, processes that are in it
    go to a child of their own, where they are bounded as before.
    """
    wanted = " ".join(f"+{name}" for name in controllers)
    control = folder / "cgroup.subtree_control"
    try:
        control.write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY or not move:
            raise
    else:
        return
    child = folder / "emulator-server"
    child.mkdir(exist_ok=True)
    for _ in range(_ROUNDS):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (child / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            control.write_text(wanted)
            return
    control.write_text(wanted)


def _version_1() -> Roots | None:
    found = [own for controller in _CONTROLLERS for _, own in _mounted("cgroup", controller)[:1]]
    # Controllers that are mounted together share their folder.
    return Roots(tuple(dict.fromkeys(found)), _V1) if len(found) == len(_CONTROLLERS) else None


def _mounted(kind: str, controller: str) -> list[tuple[Path, Path]]:
    """(mount point, this process's group in it) of each hierarchy with `controller`."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        filesystem, _, options = right.split()[:3]
        if filesystem == kind and controller in ("", *options.split(",")) and controller in paths:
            own = Path(paths[controller])
            inside = own.relative_to(root) if own.is_relative_to(root) else Path()
            found.append((Path(point), Path(point) / inside))
    return found
