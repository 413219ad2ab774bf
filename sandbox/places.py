"""Where kernels can run: one row a place. Adding a place is a row here and the module that it names.

Stops: nothing by itself; each row names what does. Does not stop: what that module does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox import docker_fences, fences
from sandbox.errors import SandboxUnavailable
from sandbox.fences import Check

if TYPE_CHECKING:
    from sandbox.jupyter import Connected

Options = Mapping[str, Any]
"""What a place is told: values for the keys of `KernelPlace.options`, and traits of its provisioner."""


@dataclass(frozen=True)
class KernelPlace:
    """One place. Modules that only it needs are imported when it is used."""

    problem: Callable[[Options], SandboxUnavailable | None]
    """Why no kernel can be had there, asked before the first one; it may sweep up after dead servers."""
    checks: Callable[[Options], list[Check]]
    """What `doctor` tells: whether a kernel works there, and each fence."""
    provisioner: str | None = None
    """``module:class`` of jupyter_client's provisioner, or None where `connect` makes the kernels."""
    connect: Callable[[Options], Callable[..., Connected]] | None = None
    """Gives what makes a kernel from the source of its setup, or connects to the one ``at`` an address."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What the place is told by an operator -> the setting that says it."""
    weak: Callable[[], Sequence[Check]] = tuple
    """Fences that can be done without and are not there: an operator is told at the start."""


def _check_bubblewrap(_: Options) -> list[Check]:
    from sandbox import checks

    return [checks.check("kernel (bubblewrap)"), *fences.checks()]


def _check_docker(options: Options) -> list[Check]:
    from sandbox import checks
    from sandbox.kernel import KernelEngine

    kernel = checks.check(
        "kernel (docker)", lambda: KernelEngine(place="docker", warm=0, **options)
    )
    return [kernel, *docker_fences.checks(**options)]


def _gateway_problem(options: Options) -> SandboxUnavailable | None:
    from sandbox.gateway import Gateway

    return Gateway(**options).problem()


def _check_gateway(options: Options) -> list[Check]:
    if (problem := _gateway_problem(options)) is not None:
        return [Check("gateway", ok=False, detail=problem.reason, fix=problem.fix)]
    detail = f"{options['url']} offers {options['kernel']}; its fences are its own"
    return [Check("gateway", ok=True, detail=detail)]


def _connect_gateway(options: Options) -> Callable[..., Connected]:
    from sandbox.gateway import Gateway, GatewayKernel

    return partial(GatewayKernel, Gateway(**options))


def _unsandboxed() -> Sequence[Check]:
    detail = "kernels run unsandboxed: the model's code has your account"
    return [Check("sandbox", ok=False, detail=detail, fix="leave out --sandbox none", needed=False)]


PLACES: Mapping[str, KernelPlace] = {
    "bubblewrap": KernelPlace(
        provisioner="sandbox.provisioners:BubblewrapProvisioner",
        problem=lambda _: fences.problem(),
        checks=_check_bubblewrap,
        weak=lambda: [*fences.missing()],
    ),
    "docker": KernelPlace(
        provisioner="sandbox.docker_kernels:DockerProvisioner",
        problem=docker_fences.problem,
        checks=_check_docker,
        options={"image": "docker_image", "host": "docker_host"},
    ),
    "gateway": KernelPlace(
        connect=_connect_gateway,
        problem=_gateway_problem,
        checks=_check_gateway,
        options={"url": "gateway_url", "token": "gateway_token", "kernel": "gateway_kernel"},
    ),
    "none": KernelPlace(
        provisioner="sandbox.provisioners:UnsandboxedProvisioner",
        problem=lambda _: None,
        checks=_check_bubblewrap,
        weak=_unsandboxed,
    ),
}
