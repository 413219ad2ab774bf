"""Stops: network (own net namespace; seccomp allows no socket but AF_UNIX), host files (only the
interpreter and system libraries are visible, read-only), host processes (own pid namespace), host
environment, capabilities, gaining privileges, new namespaces, system calls that `sandbox.fences.syscalls`
does not list, a shell (there is none, unless the launch asks for `programs`). /tmp, /mnt/data and /dev/shm
are private and have a size limit.

Does not stop: bugs in the allowed system calls; reading the packages installed next to the interpreter;
memory spread over many processes without a control group (`sandbox.fences.cgroups`).

Launches a command under bubblewrap. Knows nothing of Jupyter.
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

# Debian's awk, for one, is a link to /etc/alternatives.
_PROGRAMS = (Path("/bin"), Path("/usr/bin"), Path("/etc/alternatives"))
_DISTRIBUTION = "tool_use_api_emulator"
_MiB = 1024 * 1024
KERNEL_MEMORY = 128 * _MiB
"""Bytes that a kernel uses before its program's first line, for /dev/shm and for bwrap."""
_BWRAP = 4
"""Processes of bwrap itself, and the one that it leaves running."""

ENVIRONMENT = {
    "HOME": "/mnt/data",
    "USER": "sandbox",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "IPYTHONDIR": f"{RUN_FOLDER}/ipython",
    "MPLCONFIGDIR": f"{RUN_FOLDER}/matplotlib",
    "XDG_CACHE_HOME": f"{RUN_FOLDER}/cache",  # fontconfig writes there, and HOME is the user's folder
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # a replayed program sees its sets in the same order
    "JUPYTER_PLATFORM_DIRS": "1",
    # Without these settings, memory and threads grow with the number of cores.
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_launched = itertools.count()


@dataclass(frozen=True)
class Launch:
    """A command to start with these open descriptors and an empty environment; it joins the group by
    itself."""

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
    programs: bool = False,
    options: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
) -> Iterator[Launch]:
    """Prepare to run `command` in a new sandbox. Start the launch inside the context.

    `data_size` is the size of /tmp and of /mnt/data in bytes. `memory` is the limit of all processes
    together, without what a Python kernel itself uses. With `programs`, those of /usr/bin are visible, which
    run inside the same fences. `options` are further bwrap options that refer to
    descriptors in `pass_fds`. The caller removes the control group, if there is one. Raises
    SandboxUnavailable.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap (bwrap) is not installed", INSTALL_FIX)
    roots = cgroups.find()
    with inheritable_file(seccomp.assemble()) as filter_fd:
        line = [
            bwrap,
            *_isolation_options(),
            *_file_options(data_size, programs=programs),
            "--seccomp",
            str(filter_fd),
            *options,
        ]
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
                    f"a control group cannot be made: {error}", "run `tool-emulator doctor`"
                ) from error
            line = group.join_command(line)
        yield Launch(line, (*pass_fds, filter_fd), group)


@contextlib.contextmanager
def inheritable_file(content: bytes) -> Iterator[int]:
    """An inheritable descriptor from which a child reads `content`; no file remains."""
    descriptor = os.memfd_create("kernel")
    with os.fdopen(descriptor, "r+b") as file:
        file.write(content)
        file.seek(0)
        yield descriptor


def _isolation_options() -> list[str]:
    # Without --as-pid-1: bwrap may not kill a child that has another uid, but it may kill its own init,
    # and the whole
    # pid namespace ends with the init.
    options = (
        "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
        "--hostname sandbox --die-with-parent --new-session --clearenv --cap-drop ALL"
    ).split()
    if os.geteuid() == 0:
        # A user namespace made by root maps the sandbox to root, which may write to /proc/sys. So
        # root makes no user
        # namespace and changes its uid with setpriv instead, which needs these capabilities.
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            options += ["--cap-add", capability]
    else:
        options += "--unshare-user --uid 65534 --gid 65534".split()
    for name, value in ENVIRONMENT.items():
        options += ["--setenv", name, value]
    # This option has no effect. It only shows who started this bwrap, in case it outlives its server.
    options += ["--unsetenv", mark()]
    return options


def _drop_root() -> Sequence[str]:
    """The command that changes to a new uid inside the sandbox, before the interpreter starts."""
    if os.geteuid() != 0:
        return ()
    uid = new_uid()
    return (
        f"/usr/bin/setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all "
        "--bounding-set=-all --no-new-privs"
    ).split()


def new_uid() -> int:
    """A uid that no other kernel has, because RLIMIT_NPROC counts a uid's threads on the whole host."""
    return (1 << 30) + (os.getpid() % (1 << 22)) * 256 + next(_launched) % 256


def _file_options(data_size: int, *, programs: bool = False) -> list[str]:
    files = []
    existing: set[Path] = set()

    def make_parents(path: Path) -> None:
        # bwrap 0.8 creates missing parents with mode 0700, which the kernel's uid cannot enter.
        for parent in reversed(path.parents[:-1]):
            if parent not in existing:
                existing.add(parent)
                files.extend(["--perms", "0755", "--dir", str(parent)])

    # First, because an interpreter may be below one of these folders, and the tmpfs must not cover it.
    for place, size in (("/tmp", data_size), ("/mnt/data", data_size), (RUN_FOLDER, _MiB)):  # noqa: S108
        make_parents(Path(place))
        files += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
        existing.add(Path(place))
    readable = _readable_paths(_PROGRAMS if programs else ())
    for path in readable:
        make_parents(path)
        if path.is_symlink():
            files += ["--symlink", str(path.readlink()), str(path)]
        else:
            files += ["--ro-bind", str(path), str(path)]
    for folder in project_packages():
        # An installed proxy is among the packages that a kernel may read.
        if any(folder.is_relative_to(path) for path in readable):
            files += _hide_folder(folder)
    for folder in _own_metadata():
        if any(folder.is_relative_to(path) for path in readable):
            files += _hide_folder(folder, "METADATA")
    files += "--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev".split()
    files += f"--perms 1777 --size {16 * _MiB} --tmpfs /dev/shm".split()
    files += "--remount-ro /dev --remount-ro / --chdir /mnt/data".split()
    return files


def _hide_folder(folder: Path, *visible: str) -> Iterator[str]:
    """Options that hide a folder's files, except these."""
    yield from ("--perms", "0555", "--size", "4096", "--tmpfs", str(folder))
    for name in visible:
        yield from ("--ro-bind", str(folder / name), str(folder / name))
    yield from ("--remount-ro", str(folder))


def _own_metadata() -> list[Path]:
    """The folders of pip's metadata about this project (origin, file list).

    METADATA, which has the project's name, stays visible: code that lists distributions fails for one
    without a name.
    """
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = (Path(place).glob(f"{_DISTRIBUTION}-*.dist-info") for place in places)
    return [folder for each in found for folder in each if (folder / "METADATA").is_file()]


def project_packages() -> list[Path]:
    """The folders of this project's packages: hidden from a kernel, in case they are installed next to
    its packages."""
    top = Path(__file__).resolve().parents[2]
    return [folder for folder in (top / "sandbox", top / "emulator") if folder.is_dir()]


def interpreter() -> Path:
    """This interpreter, by a path without "..": its folders may be missing in a sandbox."""
    started = Path(sys.executable)
    return started.parent.resolve() / started.name


def _readable_paths(programs: Sequence[Path] = ()) -> list[Path]:
    """The host files that a kernel may read: the interpreter, its packages, the system libraries."""
    python = interpreter()
    wanted = {
        python,
        python.resolve(),
        Path("/etc/ld.so.cache"),
        Path("/usr/bin/setpriv"),
        *programs,
    }
    # An own prefix of the interpreter (a venv, pyenv) is bound completely, the system's prefix is not.
    wanted |= {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)} - {
        Path("/usr"), Path("/usr/local"), Path("/"),
    }  # fmt: skip
    wanted |= {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")}
    for folder in ("lib", "lib64", "lib32"):
        wanted |= {Path("/", folder), Path("/usr", folder), Path("/usr/local", folder)}
    wanted |= {Path("/usr/share/zoneinfo"), Path("/usr/share/fonts"), Path("/etc/fonts")}
    # The targets of links are needed too: /venv/bin/python -> /usr/bin/python3 -> python3.11
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
