"""`python -m tests.image.docker_engine COMMAND...`: run a command before a Docker engine of its own.

The engine keeps its data in a temporary folder, and runs in its own mount and network namespaces, so that it
cannot change this machine's. Its one image is this machine's Debian or Ubuntu with the packages that kernels
need of the extra `interpreter` (tests/image/debian_images.py).

Needs root, and what `make env-docker-engine` installs. Without these it prints the reason and runs nothing.
"""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.image import debian_images
from tests.image.debian_images import Missing

COMMANDS = ("dockerd", "containerd", "runc", "docker-init", "debootstrap", "unshare")
START_SECONDS = 60.0


def main(command: list[str]) -> int:
    return with_engine(command, _kernels)


def with_engine(
    command: list[str], images: Callable[[str], dict[str, str]], *, own_network: bool = True
) -> int:
    """Run `command` with an engine; returns its exit status.

    `images` gets the engine's URL, loads images into it, and returns variables for the command. Without a
    network of its own, the engine's containers can share this machine's (``--network host``).
    """
    try:
        if platform.system() != "Linux" or os.geteuid() != 0:
            raise Missing("a Docker engine is started only by root on Linux")
        os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
        if missing := [name for name in COMMANDS if shutil.which(name) is None]:
            raise Missing(f"there is no {', '.join(missing)}")
        with (
            tempfile.TemporaryDirectory(prefix="docker-engine-") as folder,
            engine(Path(folder), own_network=own_network) as host,
        ):
            known = {"DOCKER_HOST": host, **images(host)}
            done = subprocess.run(command, check=False, env=os.environ | known)
        return done.returncode
    except Missing as why:
        sys.stderr.write(f"skipped, there is no Docker engine: {why}\n")
        return 0


def _kernels(host: str) -> dict[str, str]:
    name = "kernels-for-tests"
    imported(host, debian_images.kernels(), name)
    return {"KERNEL_PLACE": "docker", "KERNEL_IMAGE": name}


@contextlib.contextmanager
def engine(folder: Path, *, own_network: bool = True) -> Iterator[str]:
    """A running engine; yields its URL."""
    socket = folder / "docker.sock"
    (folder / "daemon.json").write_text("{}")  # not this machine's
    dockerd = [
        "dockerd", f"--config-file={folder}/daemon.json", f"--host=unix://{socket}",
        f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
        "--ip-masq=false", f"--cgroup-parent={_group()}", "--exec-opt=native.cgroupdriver=cgroupfs",
        "--containerd-namespace=tests", "--containerd-plugins-namespace=tests-plugins",
    ]  # fmt: skip
    # It makes folders below these two regardless of its options.
    own = 'for hidden in /run /opt; do mount -t tmpfs none "$hidden"; done; exec "$@"'
    network = ["--net"] if own_network else []
    isolated = ["unshare", "--mount", *network, "sh", "-ec", own, "sh", *dockerd]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            isolated, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(f"unix://{socket}"):
            if process.poll() is not None or time.monotonic() > until:
                printed = log.read_text(errors="replace").strip().splitlines()
                raise Missing(f"dockerd does not start: {(printed or ['no message'])[-1]}")
            time.sleep(0.1)
        yield f"unix://{socket}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # Of a build with BuildKit there is one inside.
        for group in Path("/sys/fs/cgroup").glob(f"**/{_group()}"):
            for inner in sorted(group.glob("**/"), reverse=True):
                with contextlib.suppress(OSError):
                    inner.rmdir()


def _group() -> str:
    return f"docker-tests-{os.getpid()}"


def _answers(host: str) -> bool:
    import docker

    try:
        with contextlib.closing(docker.DockerClient(base_url=host)) as client:
            return bool(client.ping())
    except (OSError, docker.errors.DockerException):
        return False


def imported(host: str, archive: Path, name: str, tag: str = "latest") -> None:
    """Make an image of these files."""
    import docker

    with contextlib.closing(docker.DockerClient(base_url=host, timeout=300)) as client:
        client.api.import_image_from_file(str(archive), repository=name, tag=tag)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
