"""The bubblewrap command line of a kernel's sandbox, and a probe for it. Knows nothing of Jupyter.

Stops: network (own net namespace), host files (the interpreter and system libraries are there,
read-only, and nothing else), host processes (own pid namespace), host environment, capabilities,
gaining privileges, a shell (there is none). /tmp, /mnt/data and /dev/shm are private and sized.

Does not stop: bugs in the Linux kernel (no seccomp filter yet), reading the packages installed
beside the interpreter, a new user namespace inside where the host allows them to everyone. Where
the server is not root, a program may trace bwrap's init: it is in the same sandbox, with the same
rights.
"""

import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from sandbox.errors import SandboxUnavailable

INSTALL_FIX = "install it (`apt-get install bubblewrap`) or run with --sandbox none"
PERMIT_FIX = (
    "allow unprivileged user namespaces (in Docker: --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined) or run with --sandbox none"
)

RUN = "/run/kernel"
"""The folder of the kernel's sockets, inside the sandbox."""

_MiB = 1024 * 1024

ENVIRONMENT = {
    "HOME": "/mnt/data",
    "USER": "sandbox",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "IPYTHONDIR": f"{RUN}/ipython",
    "MPLCONFIGDIR": f"{RUN}/matplotlib",
    "PYTHONDONTWRITEBYTECODE": "1",
    "JUPYTER_PLATFORM_DIRS": "1",
    # Each of these otherwise maps or starts as much as there are cores.
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_launched = itertools.count()


def sandboxed(command: Sequence[str], *, data_size: int, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs `command` in a fresh sandbox. Raises SandboxUnavailable.

    `data_size` is in bytes, for each of /tmp and /mnt/data; `options` are more bwrap options.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap (bwrap) is not installed", INSTALL_FIX)
    return [bwrap, *_walls(), *_files(data_size), *options, "--", *_drop_root(), *command]


def probe() -> SandboxUnavailable | None:
    """Start the interpreter in a sandbox once: None if that works, else why not."""
    try:
        command = sandboxed([sys.executable, "-c", "import ipykernel"], data_size=_MiB)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env={}
        )
    except SandboxUnavailable as error:
        return error
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxUnavailable(f"bubblewrap does not start: {error}", PERMIT_FIX)
    if done.returncode == 0:
        return None
    words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return SandboxUnavailable(f"bubblewrap makes no sandbox here: {words[-1]}", PERMIT_FIX)


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
    return walls


def _drop_root() -> Sequence[str]:
    """Inside the sandbox, before the interpreter starts: a uid of its own for each kernel."""
    if os.geteuid() != 0:
        return ()
    # RLIMIT_NPROC counts a uid's threads on the whole host, so no two kernels may share one.
    uid = (1 << 30) + (os.getpid() % (1 << 22)) * 256 + next(_launched) % 256
    return (
        f"/usr/bin/setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all "
        "--bounding-set=-all --no-new-privs"
    ).split()


def _files(data_size: int) -> list[str]:
    files = []
    made: set[Path] = set()

    def make_parents(path: Path) -> None:
        # bwrap 0.8 makes missing parents 0700, closed to the uid that the kernel runs as.
        for parent in reversed(path.parents[:-1]):
            if parent not in made:
                made.add(parent)
                files.extend(["--perms", "0755", "--dir", str(parent)])

    for path in _readable_paths():
        make_parents(path)
        if path.is_symlink():
            files += ["--symlink", str(path.readlink()), str(path)]
        else:
            files += ["--ro-bind", str(path), str(path)]
    for place, size in (("/tmp", data_size), ("/mnt/data", data_size), (RUN, _MiB)):  # noqa: S108
        make_parents(Path(place))
        files += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
    files += "--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev".split()
    files += f"--perms 1777 --size {16 * _MiB} --tmpfs /dev/shm".split()
    files += "--remount-ro /dev --remount-ro / --chdir /mnt/data".split()
    return files


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
    kept: list[Path] = []
    for path in sorted(wanted, key=lambda path: (len(path.parts), path)):
        if path.exists() and not any(path.is_relative_to(folder) for folder in kept):
            kept.append(path)
    return kept
