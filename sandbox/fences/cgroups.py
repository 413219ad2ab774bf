"""Stops: memory that is spread over many processes, or kept in tmpfs files, sockets and other places that
no rlimit counts; more processes than allowed, under any uid.

Does not stop: anything where no control group can be made. That needs a hierarchy with the memory and
pids controllers in which this server may make groups: usually root may, another user only in a delegated
part of the hierarchy (Linux's cgroup-v2.rst, "Delegation"; on older systems cgroup-v1). `find` reports
what is missing.

Limits the memory and processes of a sandbox as a whole. Knows nothing of kernels.
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
    "a systemd service: Delegate=memory pids), or accept that the limits hold for each process of a "
    "program, not for all together"
)


@dataclass(frozen=True)
class _Files:
    """The file names of one version of control groups. Missing files are skipped."""

    limits: tuple[tuple[str, str], ...]
    events: str
    """The file whose line `oom_kill N` counts processes killed for lack of memory."""


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
"""How often processes are moved, because they may start others meanwhile."""
_group_count = itertools.count()


@dataclass(frozen=True)
class Roots:
    """The folders in which groups can be made: one, or in version 1 one for each controller."""

    folders: tuple[Path, ...]
    files: _Files


class ControlGroup:
    """The control group of one sandbox. Raises OSError if it cannot be made."""

    def __init__(self, roots: Roots, *, memory: int, processes: int) -> None:
        """`memory` is the limit in bytes for all processes and their files together."""
        name = f"{mark()}-{next(_group_count)}"
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
        """The command line that joins this group and then executes `command`."""
        # A process that joins by itself cannot start others outside the group before.
        joins = [f"echo $$ >{shlex.quote(str(folder / 'cgroup.procs'))}" for folder in self.folders]
        return ["/bin/sh", "-c", f'{" && ".join(joins)} && exec "$@"', "sh", *command]

    def out_of_memory(self) -> bool:
        """Return True if a process was killed because the group reached its memory limit."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                for line in (folder / self._files.events).read_text().splitlines():
                    name, _, count = line.partition(" ")
                    if name == "oom_kill" and int(count):
                        return True
        return False

    def remove(self, patience: float = 2.0) -> None:
        """Remove the group. Its processes have been killed, and may need a moment to disappear."""
        until = time.monotonic() + patience
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > until:
                        break  # the sweep of the next start removes it
                    time.sleep(0.005)
                else:
                    break


@cache
def find() -> Roots | SandboxUnavailable:
    """Where groups can be made on this machine, or why not."""
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
        # A user may be allowed to make a group but not to move a process into it.
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
    """Possible roots, nearest first; those that have to be reconfigured come last."""
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
    """Enable these controllers for the children of a version 2 group. Raises OSError.

    A group has either processes, or children with controllers. With `move`, the group's processes move to
    a new child group, where the same limits hold.
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
    """(mount point, this process's group) for each hierarchy with `controller`."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_fields, _, filesystem_fields = line.partition(" - ")
        root, point = mount_fields.split()[3:5]
        filesystem, _, options = filesystem_fields.split()[:3]
        if filesystem == kind and controller in ("", *options.split(",")) and controller in paths:
            own = Path(paths[controller])
            inside = own.relative_to(root) if own.is_relative_to(root) else Path()
            found.append((Path(point), Path(point) / inside))
    return found
