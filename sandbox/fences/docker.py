"""Docker containers behind every fence there is: how they are made, and swept up. Knows no Jupyter.

Stops: network (none; no socket but AF_UNIX), host files (nothing of the host is mounted, the image
is read-only), host processes, host environment, capabilities, gaining privileges, system calls
beyond `sandbox.fences.syscalls`, memory and processes of the container as a whole, more than its share of
the processor, writing beyond /tmp, /mnt/data, /dev/shm and its sockets' folder (private, sized),
filling the host's disk through its log (there is none).

Does not stop: bugs in the system calls that are left; a shell or whatever else the image has, within
the container; reading what /proc and /sys tell of the machine; a program that undoes what ends it with
its server from outliving one that was killed, until the next start or the end of its processor time.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandbox.errors import SandboxUnavailable
from sandbox.fences import seccomp
from sandbox.fences.bubblewrap import ENVIRONMENT, KERNEL_MEMORY, RUN_FOLDER, new_uid
from sandbox.fences.leftovers import is_abandoned, mark

IMAGE = "tool-use-api-emulator-kernel"
"""What `make kernel-image` names the image of sandbox/Dockerfile."""
LABEL = "tool-use-api-emulator.server"
SHM_SIZE, RUN_FOLDER_SIZE = 16 * 1024 * 1024, 1024 * 1024
"""Bytes in /dev/shm, and in the folder of the sockets."""

INSTALL_FIX = 'pip install "docker~=7.2"'
ENGINE_FIX = (
    "start Docker on this machine and let this user reach it, or name it with --docker-host"
)
IMAGE_FIX = "make kernel-image (docker build), or name another one with --docker-image"

_OWN_PROCESSES = 2
"""The container's init, and the one that starts it."""
_PATIENCE = 10.0
"""Seconds for the engine to answer."""
_MAPPED_USER = "65534:65534"

_made = itertools.count()


@dataclass(frozen=True)
class DockerLimits:
    """What one container may take: bytes, processes and threads, processors.

    `memory` is of all processes together, beyond what a Python kernel takes by itself; `data_size`
    is that of each of /tmp and /mnt/data.
    """

    memory: int
    data_size: int
    processes: int
    cpus: float = 1.0

    @property
    def all_memory(self) -> int:
        """Its own and its file systems' together."""
        return self.memory + 2 * self.data_size + KERNEL_MEMORY


@contextlib.contextmanager
def client(host: str) -> Iterator[Any]:
    """A client of the engine at `host` (empty: what the environment says). Raises SandboxUnavailable.

    Whatever the engine answers amiss within the context becomes that error too.
    """
    errors = library().errors
    try:
        with contextlib.closing(_connected(host)) as connected:
            yield connected
    except errors.ImageNotFound as error:
        name = str(error.explanation).rpartition(" ")[2]
        raise SandboxUnavailable(f"the Docker engine has no image {name}", IMAGE_FIX) from error
    except (OSError, errors.DockerException) as error:
        words = getattr(error, "explanation", None) or error
        raise SandboxUnavailable(f"the Docker engine fails: {words}", ENGINE_FIX) from error


def library() -> Any:
    """The Docker SDK, which not every installation has. Raises SandboxUnavailable."""
    try:
        import docker
    except ImportError as error:
        raise SandboxUnavailable("the docker library is not installed", INSTALL_FIX) from error
    return docker


def _connected(host: str) -> Any:
    if host:
        return library().DockerClient(base_url=host, timeout=_PATIENCE)
    return library().from_env(timeout=_PATIENCE)


def sweep(host: str) -> int:
    """Remove the containers of dead servers, never those of a living one. Returns how many."""
    swept = 0
    with client(host) as connected:
        # Not `containers.list`, which looks at each, and fails if one has gone meanwhile.
        for found in connected.api.containers(all=True, filters={"label": LABEL}):
            if is_abandoned(found["Labels"][LABEL]):
                with contextlib.suppress(library().errors.APIError):  # it is just being removed
                    connected.api.remove_container(found["Id"], force=True, v=True)
                    swept += 1
    return swept


def container_options(room: DockerLimits, user: str) -> dict[str, Any]:
    """How a container is made, as `docker.models.containers` takes it."""
    types = library().types
    uid, _, gid = user.partition(":")
    private = f"rw,mode=0700,uid={uid},gid={gid}"
    return {
        "name": f"{mark()}-{next(_made)}",
        "labels": {LABEL: mark()},
        "auto_remove": True,
        "entrypoint": [],
        # PATH is for the image to say.
        "environment": {name: value for name, value in ENVIRONMENT.items() if name != "PATH"},
        "working_dir": "/mnt/data",
        "hostname": "sandbox",
        "user": user,
        # Its pid 1: reaps what a program leaves, and hands signals on.
        "init": True,
        "stdin_open": True,
        "log_config": types.LogConfig(type=types.LogConfig.types.NONE),
        "network_mode": "none",
        "ipc_mode": "private",
        "cgroupns": "private",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={json.dumps(seccomp.profile())}"],
        "read_only": True,
        "tmpfs": {
            "/tmp": f"rw,mode=1777,size={room.data_size}",  # noqa: S108
            "/mnt/data": f"{private},size={room.data_size}",
            RUN_FOLDER: f"{private},size={RUN_FOLDER_SIZE}",
        },
        "shm_size": SHM_SIZE,
        "mem_limit": room.all_memory,
        "memswap_limit": room.all_memory,
        "nano_cpus": int(room.cpus * 1e9),
        "pids_limit": room.processes + _OWN_PROCESSES,
        "ulimits": [
            types.Ulimit(name="core", soft=0, hard=0),
            types.Ulimit(name="nofile", soft=256, hard=256),
        ],
    }  # fmt: skip


def user(connected: Any) -> str:
    """Who the command runs as: never root, and someone whose processes this user may look into."""
    options = connected.info().get("SecurityOptions") or []
    if any(option.startswith(("name=userns", "name=rootless")) for option in options):
        return _MAPPED_USER  # such an engine maps its users to others, and has few of them
    uid = os.geteuid()
    if uid == 0:
        uid = new_uid()
        return f"{uid}:{uid}"
    return f"{uid}:{os.getegid()}"
