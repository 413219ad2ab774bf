"""Start kernels on this machine: provisioners for jupyter_client. Knows nothing of programs.

Stops: in every place, by rlimits: address space beyond the kernel's start, processes and threads,
open files, file size, CPU time, core dumps. In `bubblewrap` what `sandbox.fences.bubblewrap` says; and the
kernel dies with the thread that launched it.

Does not stop: in `none`, which an operator must name: files, network, processes,
memory in many processes, anything that this user may do.
"""

import asyncio
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any, Protocol

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool, Integer

from sandbox.errors import SandboxUnavailable
from sandbox.fences import bubblewrap
from sandbox.fences.bubblewrap import inheritable_file
from sandbox.fences.cgroups import ControlGroup
from sandbox.fences.leftovers import mark
from sandbox.fences.rlimits import SET_LIMITS
from sandbox.kernel.attached import CHANNELS, connection_info, kernel_address

CONNECTION = f"{bubblewrap.RUN_FOLDER}/connection.json"
"""The kernel's connection file, inside the sandbox."""
_MiB = 1024 * 1024

# Runs in the kernel's process before ipykernel.
#
# The host has the other end of stdin and never writes. bwrap ends a sandbox with its host, but only
# from a certain moment of its start; a host that dies before that is noticed here.
#
# ipykernel imports debugpy if it is installed: a fifth of a kernel's memory and half of its start, for a
# debugger that cannot be used here. A program that imports it itself finds it.
_LAUNCH = f"""\
import os, sys, threading
lifeline = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
threading.Thread(target=lambda: os.read(lifeline, 1) or os._exit(1), daemon=True).start()
from ipykernel.kernelapp import IPKernelApp
{SET_LIMITS}
sys.modules["debugpy"] = None
kernel = IPKernelApp.instance()
kernel.initialize()
del sys.modules["debugpy"]
kernel.start()
"""


class Process(Protocol):
    """The part of `subprocess.Popen` that is used of a kernel's process, here or in a container."""

    @property
    def pid(self) -> int: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def make_provisioner(kind: str, config: Mapping[str, int | str]) -> "IpcProvisioner":
    """A provisioner (``module:class``) for one kernel with ipykernel; `config` sets its traits."""
    quiet = ["--HistoryManager.enabled=False", "--log-level=CRITICAL"]
    argv = [str(bubblewrap.interpreter()), "-c", _LAUNCH, "-f", CONNECTION, *quiet]
    provisioner: IpcProvisioner = resolve_name(kind)(kernel_spec=KernelSpec(argv=argv), **config)
    return provisioner


class IpcProvisioner(LocalProvisioner):
    """ipykernel over ipc://, whose connection file is an inherited descriptor. The base of all local
    places."""

    memory = Integer(256 * _MiB, help="bytes a process may map beyond the kernel's start")
    cpu_seconds = Integer(600, help="CPU seconds in a kernel's life")
    processes = Integer(64, help="processes and threads")
    data_size = Integer(64 * _MiB, help="bytes in /mnt/data, and in /tmp")
    programs = Bool(False, help="bubblewrap: the programs of /usr/bin are visible")

    @property
    def popen(self) -> Process:
        assert self.process is not None
        return self.process

    def watch(self) -> int:
        """Return a descriptor that is readable when the kernel has ended. The caller closes it."""
        return os.pidfd_open(self.popen.pid)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        limits = f"{self.memory},{self.cpu_seconds},{self.processes},{self.data_size}"
        argv = self.kernel_spec.argv
        return {**kwargs, "cmd": [*argv[:3], limits, *argv[3:]]}

    async def launch(self) -> KernelConnectionInfo:
        """Launch the kernel as a KernelManager does."""
        return await self.launch_kernel(**await self.pre_launch())

    @abstractmethod
    def signal_now(self, signum: int) -> None:
        """Signal the kernel, without waiting. SIGKILL also ends everything that it started."""

    inside: str = ""
    """The path of the sockets, as the kernel sees it."""

    def address(self, session: str) -> dict[str, str]:
        """See `sandbox.kernel.attached.kernel_address`."""
        pid, kernel = self.pids()
        return kernel_address(pid, kernel, self.inside, self.connection_info["key"], session)

    def pids(self) -> tuple[int, int]:
        """The process whose end is the kernel's, and the kernel."""
        return self.popen.pid, self.popen.pid

    def out_of_memory(self) -> bool:
        """Return True if the kernel, or a process that it started, was killed for want of memory."""
        return False

    async def send_signal(self, signum: int) -> None:
        self.signal_now(signum)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if isinstance(self.process, subprocess.Popen) and self.process.stdin is not None:
            self.process.stdin.close()

    def is_running(self) -> bool:
        return self.process is not None and self.popen.poll() is None

    def _spawn(self, command: Sequence[str], **how: Any) -> None:
        # The kernel's own stderr is read only until it is ready: see _wait_until_bound.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **how,
        )
        self.pid = self.popen.pid

    async def _wait_until_bound(self, sockets: str, patience: float = 30.0) -> None:
        """Wait until the kernel has bound its sockets. Raises SandboxUnavailable with its last line of
        stderr.

        The host connects once, now, while only our own code has run in there, and never again
        (see `sandbox.kernel.jupyter`): what a program later puts in their place is not connected to.
        """
        paths = [Path(f"{sockets}-{number}") for number in range(1, len(CHANNELS) + 1)]
        until = time.monotonic() + patience
        assert self.popen.stderr is not None
        with self.popen.stderr as stderr:
            while not all(path.exists() for path in paths):
                ended = not self.is_running()
                if ended or time.monotonic() > until:
                    self.signal_now(signal.SIGKILL)
                    self.popen.kill()
                    self.popen.wait()
                    lines = stderr.read(65536).decode(errors="replace").strip().splitlines()
                    within = "" if ended else f" within {patience:g} s"
                    raise SandboxUnavailable(
                        f"a kernel did not get ready{within}: {(lines or ['no message'])[-1]}",
                        "run `tool-emulator doctor`",
                    )
                await asyncio.sleep(0.005)


class BubblewrapProvisioner(IpcProvisioner):
    """Launch a kernel under bubblewrap (0.8 or later), as root or as an ordinary user."""

    init_pid: int | None = None
    """bwrap's init, pid 1 of the sandbox, as the host sees it."""
    kernel_pid: int | None = None
    """The kernel, its child, as the host sees it."""
    group: ControlGroup | None = None
    """Bounds all its processes together, if control groups are available."""

    async def launch_kernel(self, cmd: list[str], **_: Any) -> KernelConnectionInfo:
        inside = new_connection(f"{bubblewrap.RUN_FOLDER}/s")
        read_info, write_info = os.pipe()
        with os.fdopen(read_info) as info, inheritable_file(as_json(inside)) as connection:
            try:
                options = f"--info-fd {write_info} --perms 0444 --ro-bind-data {connection}".split()
                with bubblewrap.prepare_launch(
                    cmd,
                    data_size=self.data_size,
                    memory=self.memory,
                    processes=self.processes,
                    programs=self.programs,
                    options=[*options, CONNECTION],
                    pass_fds=(write_info, connection),
                ) as launch:
                    self.group = launch.group
                    self._spawn(launch.command, env={}, pass_fds=launch.pass_fds)
            finally:
                os.close(write_info)
            self.init_pid = _reported_pid(info.fileno())
        # Nothing of the host's file system is shared with the kernel, not even a socket's folder.
        outside = f"/proc/{self.init_pid}/root{bubblewrap.RUN_FOLDER}/s"
        await self._wait_until_bound(outside)
        self.kernel_pid = _only_child(self.init_pid)
        self.inside = inside["ip"]
        self.connection_info = {**inside, "ip": outside}  # type: ignore[typeddict-item]
        return self.connection_info

    def signal_now(self, signum: int) -> None:
        # While bwrap runs, so do its init and the kernel: neither pid belongs to another process.
        pid = self.init_pid if signum == signal.SIGKILL else self.kernel_pid
        if self.is_running() and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def pids(self) -> tuple[int, int]:
        assert self.init_pid is not None
        assert self.kernel_pid is not None
        return self.init_pid, self.kernel_pid

    def out_of_memory(self) -> bool:
        return self.group is not None and self.group.out_of_memory()

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self.group is not None:
            self.group.remove()
            self.group = None


class UnsandboxedProvisioner(IpcProvisioner):
    """Launch a kernel as a plain process of this user, if the operator asked for it by name."""

    processes = Integer(-1, help="no limit: the kernel counts this user's processes everywhere")
    folder: str | None = None

    async def launch_kernel(self, cmd: list[str], **_: Any) -> KernelConnectionInfo:
        self.folder = tempfile.mkdtemp(prefix=f"{mark()}-")
        sockets = f"{self.folder}/s"
        info = new_connection(sockets)
        with inheritable_file(as_json(info)) as connection:
            command = [part.replace(CONNECTION, f"/dev/fd/{connection}") for part in cmd]
            environment = {**bubblewrap.ENVIRONMENT, "HOME": self.folder, "IPYTHONDIR": self.folder}
            self._spawn(
                command,
                cwd=self.folder,
                env=environment,
                pass_fds=(connection,),
                start_new_session=True,
            )
            await self._wait_until_bound(sockets)
        self.connection_info = info
        self.inside = sockets
        return self.connection_info

    def signal_now(self, signum: int) -> None:
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if signum == signal.SIGKILL else os.kill)(self.popen.pid, signum)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def new_connection(sockets: str) -> Any:
    """A connection file's content, for sockets named `sockets`-1 ... `sockets`-5."""
    return connection_info(sockets, secrets.token_hex(32))


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _only_child(init: int | None) -> int:
    """The kernel's pid: no program has run yet, so bwrap's init has no other child."""
    return int(Path(f"/proc/{init}/task/{init}/children").read_text().split()[0])


def _reported_pid(descriptor: int, patience: float = 10.0) -> int | None:
    """The pid that bwrap reports on --info-fd, or None if it ended without a report."""
    report = b""
    readable = select.poll()  # select(2) takes no descriptor beyond 1023
    readable.register(descriptor, select.POLLIN)
    while readable.poll(1000 * patience):
        chunk = os.read(descriptor, 4096)
        report += chunk
        if not chunk or b"}" in chunk:
            break
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, KeyError):
        return None
