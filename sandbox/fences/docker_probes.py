"""Try the fences of a Docker container from within, before any program gets in.

As `sandbox.fences.probes` does for bubblewrap, and with the same probes where the promise is the same: an
engine may pass over a limit with a mere warning, or be set up to be laxer than it was told.

Stops: starting kernels in containers in which a fence silently came to nothing.

Does not stop: what no probe asks; tests/sandbox/test_docker.py asks much more.
"""

import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxUnavailable
from sandbox.fences import docker, probes
from sandbox.fences.bubblewrap import RUN_FOLDER
from sandbox.fences.container import DockerContainer
from sandbox.fences.docker import DockerLimits
from sandbox.fences.probes import FenceProbe
from sandbox.report import Check

_MiB = 1024 * 1024
_ROOM = DockerLimits(memory=64 * _MiB, data_size=_MiB, processes=32, cpus=0.5)
_LIMITS_FIX = (
    "let the engine use control groups with memory, pids and cpu controllers (rootless: cgroup v2 "
    "with delegation)"
)
_WALLS_FIX = "use a Docker engine whose defaults are not weakened, with its seccomp support"
_FENCES = {fence.name: fence for fence in probes.FENCES}
_SHARED = ("namespaces", "network", "/proc/sys", "privileges", "memory")
_SIZES = {
    "/tmp": _ROOM.data_size, "/mnt/data": _ROOM.data_size,  # noqa: S108
    "/dev/shm": docker.SHM_SIZE, RUN_FOLDER: docker.RUN_FOLDER_SIZE,  # noqa: S108
}  # fmt: skip
_FOREIGN = ("/var/run/docker.sock", "/run/docker.sock", str(Path(__file__)))
_NO_FOLDERS = ("/", "/etc", "/usr", "/dev", "/run", "/var/tmp", "/root", "/home")  # noqa: S108


def _filtered(found: Any) -> bool:
    mode, unlisted, inet = found
    # An engine before version 23 answers EPERM: see seccomp.profile.
    return mode == "2" and unlisted in (errno.ENOSYS, errno.EPERM) and inet == errno.EOPNOTSUPP


def _bounded(found: Any) -> bool:
    memory, processes, quota, period = map(int, found)
    return (
        memory <= _ROOM.all_memory
        and processes <= 2 * _ROOM.processes
        and 0 < quota <= period * _ROOM.cpus
    )


FENCES = (
    FenceProbe(
        "interpreter", "the image's python3 finds ipykernel",
        "import importlib.util; found = importlib.util.find_spec('ipykernel') is not None",
        lambda found: found is True,
        docker.IMAGE_FIX,
    ),
    replace(
        _FENCES["seccomp"], holds=_filtered, fix=_WALLS_FIX,
        promise="unlisted system calls are refused, inet sockets too",
    ),
    *(replace(_FENCES[name], fix=_WALLS_FIX) for name in _SHARED),
    FenceProbe(
        "files", "nothing of the host's is there, and the image is read-only",
        f"found = [path for path in {_FOREIGN!r} if os.path.exists(path)]\n"
        f"found += [path for path in {_NO_FOLDERS!r} if os.access(path, os.W_OK)]",
        lambda found: found == [],
        "use an image that has no such files and no volumes",
    ),
    FenceProbe(
        "sizes", "what can be written is bounded",
        f"found = {{path: os.statvfs(path) for path in {[*_SIZES]!r}}}\n"
        "found = {path: it.f_blocks * it.f_frsize for path, it in found.items()}",
        lambda found: all(found[path] <= size for path, size in _SIZES.items()),
        _WALLS_FIX,
    ),
    FenceProbe(
        "control group", "memory, processes and processor are bounded as a whole",
        "def first(*paths):\n"
        "    for path in paths:\n"
        "        if os.path.exists('/sys/fs/cgroup/' + path):\n"
        "            return open('/sys/fs/cgroup/' + path).read().split()\n"
        "found = [*first('memory.max', 'memory/memory.limit_in_bytes'),\n"
        "         *first('pids.max', 'pids/pids.max'),\n"
        "         *(first('cpu.max') or [*first('cpu/cpu.cfs_quota_us'), *first('cpu/cpu.cfs_period_us')])]",
        _bounded,
        _LIMITS_FIX,
    ),
)  # fmt: skip


def problem(config: Mapping[str, int | str]) -> SandboxUnavailable | None:
    """None if every fence holds for this `image` at this `host`, else the first that does not.

    What dead servers left at that engine goes first.
    """
    image, host = str(config.get("image", docker.IMAGE)), str(config.get("host", ""))
    try:
        docker.sweep(host)
    except SandboxUnavailable as error:
        return error
    for check in checks(image, host):
        if not check.ok:
            return SandboxUnavailable(check.detail, check.fix)
    return None


def checks(image: str, host: str) -> list[Check]:
    """Find the engine and the image, start one container and try each fence in it. Takes about 0.5 s."""
    found: list[Check] = []
    name = "docker engine"
    try:
        with docker.client(host) as client:
            version = client.version()
            found.append(Check(name, ok=True, detail=f"version {version.get('Version')}"))
            name = "kernel image"
            client.images.get(image)
            found.append(Check(name, ok=True, detail=image))
            name = "docker"
            report = _report(image, host)
    except SandboxUnavailable as error:
        return [*found, Check(name, ok=False, detail=error.reason, fix=error.fix)]
    return found + [probes.judge(fence, report.get(fence.name)) for fence in FENCES]


def _report(image: str, host: str) -> dict[str, Any]:
    limits = f"{_ROOM.memory},10,-1,{_ROOM.data_size}"
    # It waits to be told, lest it be over before it has been found among this machine's processes.
    source = f"import os; os.read(0, 1)\n{probes.probe(FENCES)}"
    container = DockerContainer(host, image, ["python3", "-I", "-c", source, limits], _ROOM)
    try:
        container.tell(b"\n")
        # Read to the end before it is waited for: a full pipe would never end.
        said = container.stderr.read().decode(errors="replace").strip()
    finally:
        container.kill()
        container.close()
    lines = said.splitlines() or ["no message"]
    try:
        report = json.loads(lines[-1])
    except ValueError:
        raise SandboxUnavailable(
            f"no fence can be tried in a container: {lines[-1]}", docker.IMAGE_FIX
        ) from None
    assert isinstance(report, dict)
    return report
