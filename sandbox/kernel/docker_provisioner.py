"""Run kernels in Docker containers: a provisioner for jupyter_client, like those of `provisioners`.

Stops: what `sandbox.fences.docker` says; a kernel in there ends with its server, which holds its standard
input; a second connection to what a program may have put in a socket's place (as everywhere).

Does not stop: what `sandbox.fences.docker` says.
"""

from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from traitlets import Float, Integer, Unicode

from sandbox.fences import docker
from sandbox.fences.bubblewrap import RUN_FOLDER
from sandbox.fences.container import DockerContainer
from sandbox.fences.docker import DockerLimits
from sandbox.kernel.provisioners import (
    CONNECTION,
    IpcProvisioner,
    as_json,
    new_connection,
)

# Runs in the kernel's process before the code of `provisioners`. The first line of standard input, its later
# lifeline, is the content of its connection file, so that the key is in no environment and no image.
_READ_CONNECTION = f"""\
import os
line = b""
while not line.endswith(b"\\n"):
    line += os.read(0, 65536) or os._exit(1)
with open({CONNECTION!r}, "wb") as file:
    file.write(line)
"""


class DockerProvisioner(IpcProvisioner):
    """Launch a kernel in a container made by the Docker engine of this machine."""

    image = Unicode(docker.IMAGE, help="image that has ipykernel for its python3")
    processes = Integer(-1, help="no limit for the user: the container as a whole has one")
    all_processes = Integer(64, help="processes and threads in the container")
    cpus = Float(1.0, help="processors that the container may use")

    @property
    def container(self) -> DockerContainer:
        return cast(DockerContainer, self.process)

    async def launch_kernel(self, cmd: list[str], **_: Any) -> KernelConnectionInfo:
        inside = new_connection(f"{RUN_FOLDER}/s")
        limits = DockerLimits(self.memory, self.data_size, self.all_processes, self.cpus)
        command = ["python3", cmd[1], _READ_CONNECTION + cmd[2], *cmd[3:]]
        # jupyter_client types it as a Popen; only the methods of `Process` are used.
        self.process = DockerContainer(self.image, command, limits)  # type: ignore[assignment]
        self.pid = self.container.pid
        self.container.write_stdin(as_json(inside) + b"\n")
        # As with bubblewrap, nothing is shared: the host connects to the sockets in the kernel's own folder.
        outside = f"{self.container.root}{RUN_FOLDER}/s"
        await self._wait_until_bound(outside)
        self.inside = inside["ip"]
        self.connection_info = {**inside, "ip": outside}  # type: ignore[typeddict-item]
        return self.connection_info

    def watch(self) -> int:
        return self.container.watch()

    def signal_now(self, signum: int) -> None:
        if self.process is not None:
            self.container.send_signal(signum)

    def out_of_memory(self) -> bool:
        return self.process is not None and self.container.out_of_memory

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self.process is not None:
            self.container.close()
