"""Stops: starting kernels in containers in which a fence has silently no effect: an engine may ignore a
limit with only a warning, or be configured to be less strict. The probes run inside a container, as those
of `sandbox.fences.probes` do in bubblewrap, and are the same where the promise is the same.

Does not stop: what no probe tests; tests/sandbox/fences/test_docker.py tests much more.
"""

import errno
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
_LIMITS = DockerLimits(memory=64 * _MiB, data_size=_MiB, processes=32, cpus=0.5)
_CGROUPS_FIX = (
    "let the engine use control groups with memory, pids and cpu controllers (rootless: cgroup v2 "
    "with delegation)"
)
_ENGINE_FIX = "use a Docker engine whose defaults are not weakened, with its seccomp support"
_FENCES = {fence.name: fence for fence in probes.FENCES}
_SHARED = ("namespaces", "network", "/proc/sys", "privileges", "memory")
_SIZES = {
    "/tmp": _LIMITS.data_size, "/mnt/data": _LIMITS.data_size,  # noqa: S108
    "/dev/shm": docker.SHM_SIZE, RUN_FOLDER: docker.RUN_FOLDER_SIZE,  # noqa: S108
}  # fmt: skip
_HOST_FILES = ("/var/run/docker.sock", "/run/docker.sock", str(Path(__file__)))
_READ_ONLY_FOLDERS = ("/", "/etc", "/usr", "/dev", "/run", "/var/tmp", "/root", "/home")  # noqa: S108


def _filtered(found: Any) -> bool:
    mode, unlisted, inet = found
    # An engine before version 23 answers EPERM: see seccomp.profile.
    return mode == "2" and unlisted in (errno.ENOSYS, errno.EPERM) and inet == errno.EOPNOTSUPP


def _bounded(found: Any) -> bool:
    memory, processes, quota, period = map(int, found)
    return (
        memory <= _LIMITS.all_memory
        and processes <= 2 * _LIMITS.processes
        and 0 < quota <= period * _LIMITS.cpus
    )


FENCES = (
    FenceProbe(
        "interpreter", "the image's python3 finds ipykernel",
        "import importlib.util; found = importlib.util.find_spec('ipykernel') is not None",
        lambda found: found is True,
        docker.IMAGE_FIX,
    ),
    replace(
        _FENCES["seccomp"], holds=_filtered, fix=_ENGINE_FIX,
        promise="unlisted system calls are refused, inet sockets too",
    ),
    *(replace(_FENCES[name], fix=_ENGINE_FIX) for name in _SHARED),
    FenceProbe(
        "files", "no host files, and the image is read-only",
        f"found = [path for path in {_HOST_FILES!r} if os.path.exists(path)]\n"
        f"found += [path for path in {_READ_ONLY_FOLDERS!r} if os.access(path, os.W_OK)]",
        lambda found: found == [],
        "use an image that has no such files and no volumes",
    ),
    FenceProbe(
        "sizes", "writable folders have a size limit",
        f"found = {{path: os.statvfs(path) for path in {[*_SIZES]!r}}}\n"
        "found = {path: it.f_blocks * it.f_frsize for path, it in found.items()}",
        lambda found: all(found[path] <= size for path, size in _SIZES.items()),
        _ENGINE_FIX,
    ),
    FenceProbe(
        "control group", "memory, processes and processor are limited as a whole",
        "def first(*paths):\n"
        "    for path in paths:\n"
        "        if os.path.exists('/sys/fs/cgroup/' + path):\n"
        "            return open('/sys/fs/cgroup/' + path).read().split()\n"
        "found = [*first('memory.max', 'memory/memory.limit_in_bytes'),\n"
        "         *first('pids.max', 'pids/pids.max'),\n"
        "         *(first('cpu.max') or [*first('cpu/cpu.cfs_quota_us'), *first('cpu/cpu.cfs_period_us')])]",
        _bounded,
        _CGROUPS_FIX,
    ),
)  # fmt: skip


def checks(image: str = docker.IMAGE) -> list[Check]:
    """Find the engine and the image, start one container and test each fence in it. Takes about 0.5 s.

    Removes the containers of dead servers first.
    """
    found: list[Check] = []
    name = "docker engine"
    try:
        docker.sweep()
        with docker.client() as client:
            version = client.version()
            found.append(Check(name, ok=True, detail=f"version {version.get('Version')}"))
            name = "kernel image"
            client.images.get(image)
            found.append(Check(name, ok=True, detail=image))
            name = "docker"
            report = _report(image)
    except SandboxUnavailable as error:
        return [*found, Check(name, ok=False, detail=error.reason, fix=error.fix)]
    return found + [probes.judge(fence, report.get(fence.name)) for fence in FENCES]


def _report(image: str) -> dict[str, Any]:
    limits = f"{_LIMITS.memory},10,-1,{_LIMITS.data_size}"
    # It waits for input first: otherwise it may end before its process has been found.
    source = f"import os; os.read(0, 1)\n{probes.probe(FENCES)}"
    container = DockerContainer(image, ["python3", "-I", "-c", source, limits], _LIMITS)
    try:
        container.write_stdin(b"\n")
        # Read everything before waiting for the end: a full pipe would block forever.
        output = container.stderr.read()
    finally:
        container.kill()
        container.close()
    return probes.read_report(
        output, "the fences cannot be tested in a container", docker.IMAGE_FIX
    )
