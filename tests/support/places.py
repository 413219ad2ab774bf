"""Where the tests' kernels run: in bubblewrap, or in the place that KERNEL_PLACE names.

With `docker`, KERNEL_IMAGE names the image, and the environment the engine, as for any Docker client;
`make test-docker` starts one for the purpose.
"""

import errno
import os
from functools import cache
from typing import Any

import pytest

from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.fences import docker, docker_probes, probes
from sandbox.kernel.engine import KernelEngine
from sandbox.report import first_problem

PLACE = os.environ.get("KERNEL_PLACE", "bubblewrap")
IN_DOCKER = PLACE == "docker"

CONFIG: dict[str, Any] = {
    "bubblewrap": {},
    "docker": {"image": os.environ.get("KERNEL_IMAGE", docker.IMAGE)},
}[PLACE]

REFUSALS = {
    "bubblewrap": {errno.ENOSYS},
    # An engine before version 23 answers the second: see seccomp.profile.
    "docker": {errno.ENOSYS, errno.EPERM},
}[PLACE]
"""What a system call gives that is not on the list."""

OWN_VARIABLES = {
    "bubblewrap": set(),
    # The engine's own, and those of Docker's official python images.
    "docker": {"HOSTNAME", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"},
}[PLACE]
"""Of the environment that a kernel sees, what its place has put there."""


@cache
def problem() -> SandboxUnavailable | None:
    """Why no kernel can be had here, or None."""
    return first_problem(docker_probes.checks(**CONFIG) if IN_DOCKER else probes.checks())


def kernels(limits: Limits, **options: Any) -> KernelEngine:
    """An engine in that place. Skips the test where it cannot be had."""
    if (why := problem()) is not None:
        pytest.skip(str(why))
    return KernelEngine(limits, place=PLACE, **CONFIG, **options)


def containers(of: str | None = None) -> set[str]:
    """The ids of the containers of the server with this mark, or of all servers."""
    if not IN_DOCKER:
        return set()
    label = docker.LABEL if of is None else f"{docker.LABEL}={of}"
    with docker.client() as client:
        return {each["Id"] for each in client.api.containers(all=True, filters={"label": label})}


needs_bubblewrap = pytest.mark.skipif(
    IN_DOCKER or problem() is not None,
    reason="kernels run in docker here" if IN_DOCKER else str(problem()),
)
