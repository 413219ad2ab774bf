"""Launch a command under bubblewrap, behind every fence there is. Knows nothing of Jupyter.

Stops: network (own net namespace; seccomp leaves no socket but AF_UNIX), host files (the interpreter
and system libraries are there, read-only, and nothing else), host processes (own pid namespace),
host environment, capabilities, gaining privileges, new namespaces, system calls beyond
`sandbox.fences.syscalls`, a shell (there is none). /tmp, /mnt/data and /dev/shm are private and sized.

Does not stop: bugs in the system calls that are left; reading the packages installed beside the
interpreter; memory spread over many processes where there is no control group (`sandbox.fences.cgroups`).
"""

import contextlib
import itertools
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import SandboxUnavailable
from sandbox.fences import cgroups, seccomp
from sandbox.fences.leftovers import mark

INSTALL_FIX = "install it (`apt-get install bubblewrap`) or run with --sandbox none"
PERMIT_FIX = (
    "allow unprivileged user namespaces (in Docker: --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined) "
    "or run with --sandbox none"
)

RUN_FOLDER = "/run/kernel"
"""The folder of the kernel's sockets, inside the sandbox."""

_DISTRIBUTION = "tool_use_api_emulator"
_MiB = 1024 * 1024
KERNEL_MEMORY = 128 * _MiB
"""What a kernel takes before its program's first line, /dev/shm and bwrap."""
_BWRAP = 4
"""Processes of bwrap's own, and the one that it leaves."""

ENVIRONMENT = {
    "HOME": "/mnt/data",
    "USER": "sandbox",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "IPYTHONDIR": f"{RUN_FOLDER}/ipython",
    "MPLCONFIGDIR": f"{RUN_FOLDER}/matplotlib",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # a program that is run again sees its sets in the same order
    "JUPYTER_PLATFORM_DIRS": "1",
    # Each of these otherwise maps or starts as much as there are cores.
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_launched = itertools.count()


@dataclass(frozen=True)
class Launch:
    """What to start: with these descriptors open, an empty environment, and in this group."""

    command: list[str]
    pass_fds: tuple[int, ...]
    group: cgroups.ControlGroup | None


@contextlib.contextmanager
def prepare_launch(
    command: Sequence[str],
    *,
    data_size: int,
    memory: int,
    processes: int,
    options: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
) -> Iterator[Launch]:
    """What runs `command` in a fresh sandbox, to be started within the context.

    `data_size` is in bytes, for each of /tmp and /mnt/data; `memory` is of all processes together,
    beyond what a Python kernel takes by itself; `options` are more bwrap options that name
    descriptors in `pass_fds`. The group, if there is one, is the caller's to remove.
    Raises SandboxUnavailable.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap (bwrap) is not installed", INSTALL_FIX)
    roots = cgroups.find()
    with inheritable_file(seccomp.assemble()) as filter_fd:
        line = [bwrap, *_walls(), *_files(data_size), "--seccomp", str(filter_fd), *options]
        line += ["--", *_drop_root(), *command]
        group = None
        if isinstance(roots, cgroups.Roots):
            try:
                group = cgroups.ControlGroup(
                    roots,
                    memory=memory + 2 * data_size + KERNEL_MEMORY,
                    processes=processes + _BWRAP,
                )
            except OSError as error:
                raise SandboxUnavailable(
                    f"a control group cannot be made: {error}", "see `python -m sandbox`"
                ) from error
            line = group.join_command(line)
        yield Launch(line, (*pass_fds, filter_fd), group)


@contextlib.contextmanager
def inheritable_file(content: bytes) -> Iterator[int]:
    """A descriptor to inherit from which `content` is read; it leaves no file."""
    descriptor = os.memfd_create("kernel")
    with os.fdopen(descriptor, "r+b") as file:
        file.write(content)
        file.seek(0)
        yield descriptor


def _walls() -> list[str]:
    # Not: bwrap may not kill a child of another uid, only an init of its own, and with
    # an init its whole namespace goes.
    walls = (
        "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
        "--hostname sandbox --die-with-parent --new-session --clearenv --cap-drop ALL"
    ).split()
    if os.geteuid() == 0:
        # A user namespace made by root maps the sandbox to root itself, which may write /proc/sys.
        # So root stays out of one and gives up its uid instead, for which setpriv needs these.
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            walls += ["--cap-add", capability]
    else:
        walls += "--unshare-user --uid 65534 --gid 65534".split()
    for name, value in ENVIRONMENT.items():
        walls += ["--setenv", name, value]
    # Does nothing but be seen: who started this bwrap, should it outlive them.
    walls += ["--unsetenv", mark()]
    return walls


def _drop_root() -> Sequence[str]:
    """Inside the sandbox, before the interpreter starts: a uid of its own for each kernel."""
    if os.geteuid() != 0:
        return ()
    uid = new_uid()
    return (
        f"/usr/bin/setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all "
        "--bounding-set=-all --no-new-privs"
    ).split()


def new_uid() -> int:
    """A uid that no other kernel has: RLIMIT_NPROC counts a uid's threads on the whole host."""
    return (1 << 30) + (os.getpid() % (1 << 22)) * 256 + next(_launched) % 256


def _files(data_size: int) -> list[str]:
    files = []
    made: set[Path] = set()

    def make_parents(path: Path) -> None:
        # bwrap 0.8 makes missing parents 0700, closed to the uid that the kernel runs as.
        for parent in reversed(path.parents[:-1]):
            if parent not in made:
                made.add(parent)
                files.extend(["--perms", "0755", "--dir", str(parent)])

    # First, since an interpreter may live below one of these and must not be covered by it.
    for place, size in (("/tmp", data_size), ("/mnt/data", data_size), (RUN_FOLDER, _MiB)):  # noqa: S108
        make_parents(Path(place))
        files += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
        made.add(Path(place))
    made_readable = _readable_paths()
    for path in made_readable:
        make_parents(path)
        if path.is_symlink():
            files += ["--symlink", str(path.readlink()), str(path)]
        else:
            files += ["--ro-bind", str(path), str(path)]
    for folder in project_packages():
        # Installed, it lies among the packages that a kernel may read.
        if any(folder.is_relative_to(path) for path in made_readable):
            files += _emptied(folder)
    for folder in _own_metadata():
        if any(folder.is_relative_to(path) for path in made_readable):
            files += _emptied(folder, "METADATA")
    files += "--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev".split()
    files += f"--perms 1777 --size {16 * _MiB} --tmpfs /dev/shm".split()
    files += "--remount-ro /dev --remount-ro / --chdir /mnt/data".split()
    return files


def _emptied(folder: Path, *but: str) -> Iterator[str]:
    """Options that leave of a folder nothing ``but`` these files."""
    yield from ("--perms", "0555", "--size", "4096", "--tmpfs", str(folder))
    for name in but:
        yield from ("--ro-bind", str(folder / name), str(folder / name))
    yield from ("--remount-ro", str(folder))


def _own_metadata() -> list[Path]:
    """What pip says of this project: where it came from, and what it consists of.

    Its name stays: code that lists distributions stumbles over one that has none.
    """
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = (Path(place).glob(f"{_DISTRIBUTION}-*.dist-info") for place in places)
    return [folder for each in found for folder in each if (folder / "METADATA").is_file()]


def project_packages() -> list[Path]:
    """The folders of this project's packages: hidden from a kernel, in case they are installed next to
    its packages."""
    top = Path(__file__).resolve().parents[2]
    return [folder for folder in (top / "sandbox", top / "emulator") if folder.is_dir()]


def _readable_paths() -> list[Path]:
    """What a kernel may read of the host: the interpreter, its packages, the system's libraries."""
    python = Path(sys.executable)
    wanted = {python, python.resolve(), Path("/etc/ld.so.cache"), Path("/usr/bin/setpriv")}
    # A prefix of the interpreter's own (a venv, pyenv) is bound whole, the system's is not.
    wanted |= {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)} - {
        Path("/usr"), Path("/usr/local"), Path("/"),
    }  # fmt: skip
    wanted |= {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")}
    for folder in ("lib", "lib64", "lib32"):
        wanted |= {Path("/", folder), Path("/usr", folder), Path("/usr/local", folder)}
    wanted |= {Path("/usr/share/zoneinfo"), Path("/usr/share/fonts"), Path("/etc/fonts")}
    # What a link leads to has to be there too: /venv/bin/python -> /usr/bin/python3 -> python3.11
    wanted |= {link for path in wanted for link in _links_from(path)}
    wanted |= {path.resolve() for path in wanted}
    folders: list[Path] = []
    for path in sorted(wanted, key=lambda path: (len(path.parts), path)):
        if path.exists() and not any(path.is_relative_to(folder) for folder in folders):
            folders.append(path)
    return folders


def _links_from(path: Path) -> Iterator[Path]:
    while path.is_symlink() and path.exists():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path
