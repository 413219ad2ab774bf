"""Stops: network (none; no socket but AF_UNIX), host files (no host folder is mounted, the image is
read-only), host processes, host environment, capabilities, gaining privileges, system calls that
`sandbox.fences.syscalls` does not list, memory and processes of the container as a whole, more than its
share of the processor, writing outside /tmp, /mnt/data, /dev/shm and its sockets' folder (private,
limited in size), filling the host's disk through its log (there is none).

Does not stop: bugs in the allowed system calls; a shell or other commands of the image, inside the
container; reading what /proc and /sys show of the machine; a program that disables what ends it with its
server: if the server is killed, the program runs until the next start or the end of its processor time.

Makes Docker containers, and removes those of dead servers. Knows nothing of Jupyter.
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
"""The name that `make kernel-image` gives the image of sandbox/Dockerfile."""
LABEL = "tool-use-api-emulator.server"
SHM_SIZE, RUN_FOLDER_SIZE = 16 * 1024 * 1024, 1024 * 1024
"""Bytes in /dev/shm, and in the folder of the sockets."""

ENGINE_FIX = "start Docker on this machine and give this user access, or set DOCKER_HOST"
IMAGE_FIX = "make kernel-image (docker build), or set another image with --docker-image"

_OWN_PROCESSES = 2
"""The container's init, and the process that starts it."""
_PATIENCE = 10.0
"""Timeout of requests to the engine, in seconds."""
_MAPPED_USER = "65534:65534"

_container_count = itertools.count()


@dataclass(frozen=True)
class DockerLimits:
    """The limits of one container.

    `memory` (bytes) is for all processes together, without what a Python kernel itself uses. `data_size`
    (bytes) is the size of /tmp and of /mnt/data. `processes` includes threads.
    """

    memory: int
    data_size: int
    processes: int
    cpus: float = 1.0

    @property
    def all_memory(self) -> int:
        """The memory of processes and file systems together."""
        return self.memory + 2 * self.data_size + KERNEL_MEMORY


@contextlib.contextmanager
def client() -> Iterator[Any]:
    """A client of the engine that the environment names.

    Raises SandboxUnavailable, also for errors of the engine inside the context.
    """
    errors = library().errors
    try:
        with contextlib.closing(library().from_env(timeout=_PATIENCE)) as connection:
            yield connection
    except errors.ImageNotFound as error:
        name = str(error.explanation).rpartition(" ")[2]
        raise SandboxUnavailable(f"the Docker engine has no image {name}", IMAGE_FIX) from error
    except (OSError, errors.DockerException) as error:
        words = str(getattr(error, "explanation", None) or error)
        host = os.environ.get("DOCKER_HOST", "")
        if secret := host.partition("://")[2].rpartition("@")[0]:
            words = words.replace(f"{secret}@", "")
        raise SandboxUnavailable(f"the Docker engine failed: {words}", ENGINE_FIX) from error


def library() -> Any:
    """The Docker SDK, an optional dependency."""
    import docker

    return docker


def sweep() -> int:
    """Remove the containers of dead servers, never those of a running one. Returns the number."""
    swept = 0
    with client() as connection:
        # Not `containers.list`: it inspects each container, and fails if one is removed meanwhile.
        for found in connection.api.containers(all=True, filters={"label": LABEL}):
            if is_abandoned(found["Labels"][LABEL]):
                with contextlib.suppress(library().errors.APIError):  # another process removes it
                    connection.api.remove_container(found["Id"], force=True, v=True)
                    swept += 1
    return swept


def container_options(limits: DockerLimits, user: str) -> dict[str, Any]:
    """The arguments for `docker.models.containers` to create a container."""
    types = library().types
    uid, _, gid = user.partition(":")
    private = f"rw,mode=0700,uid={uid},gid={gid}"
    return {
        "name": f"{mark()}-{next(_container_count)}",
        "labels": {LABEL: mark()},
        "auto_remove": True,
        "entrypoint": [],
        # The image sets PATH.
        "environment": {name: value for name, value in ENVIRONMENT.items() if name != "PATH"},
        "working_dir": "/mnt/data",
        "hostname": "sandbox",
        "user": user,
        # An init as pid 1 reaps orphaned processes and forwards signals.
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
            "/tmp": f"rw,mode=1777,size={limits.data_size}",  # noqa: S108
            "/mnt/data": f"{private},size={limits.data_size}",
            RUN_FOLDER: f"{private},size={RUN_FOLDER_SIZE}",
        },
        "shm_size": SHM_SIZE,
        "mem_limit": limits.all_memory,
        "memswap_limit": limits.all_memory,
        "nano_cpus": int(limits.cpus * 1e9),
        "pids_limit": limits.processes + _OWN_PROCESSES,
        "ulimits": [
            types.Ulimit(name="core", soft=0, hard=0),
            types.Ulimit(name="nofile", soft=256, hard=256),
        ],
    }  # fmt: skip


def user(connection: Any) -> str:
    """The user of the command: never root, and one whose processes this user may inspect."""
    options = connection.info().get("SecurityOptions") or []
    if any(option.startswith(("name=userns", "name=rootless")) for option in options):
        return _MAPPED_USER  # such an engine maps users, and has only a few
    uid = os.geteuid()
    if uid == 0:
        uid = new_uid()
        return f"{uid}:{uid}"
    return f"{uid}:{os.getegid()}"
