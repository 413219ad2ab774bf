"""Where kernels can run: one row for each place. A new place needs a row here and the module that it names.

Stops: nothing by itself; each row names the module that does.
Does not stop: see that module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from sandbox.fences import docker_probes, probes
from sandbox.kernel.connection import KernelConnection
from sandbox.report import Check

Options = Mapping[str, Any]
"""Values for the keys of `KernelPlace.options`; `KernelPlace.connect` also gets traits of the provisioner."""

_KERNELS_EXTRA = "pip install 'tool-use-api-emulator[kernels]'"
"""requirements.txt has it too, so only a wheel can be without it."""


@dataclass(frozen=True)
class KernelPlace:
    """One place. Libraries that only it needs are imported when it is used."""

    libraries: Sequence[str]
    """Modules that only an extra of the package installs, ..."""
    install: str
    """... and the command for it."""
    fences: Callable[[Options], list[Check]]
    """Tries each fence of the place. Takes up to a second; may remove what dead servers left."""
    connect: Callable[[Options], Callable[..., KernelConnection]]
    """Returns a function that makes a kernel from the source of its setup, or connects to the one ``at`` an
    address."""
    shared: bool = False
    """Kernels outlive the process that started them, and may have the same working directory."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Option -> the setting that has its value."""
    weak: Callable[[], Sequence[Check]] = tuple
    """Fences that are missing although kernels run: logged at the start of the server."""

    def checks(self, options: Options) -> list[Check]:
        """What is tested before the first kernel starts: the libraries, and then the fences."""
        missing = [
            Check(name, ok=False, detail=f"the {name} library is not installed", fix=self.install)
            for name in self.libraries
            if find_spec(name) is None
        ]
        return missing or self.fences(options)


def _connect_locally(provisioner: str, config: Options) -> Callable[..., KernelConnection]:
    """Starts kernels on this machine; `provisioner` is ``module:class`` of jupyter_client's."""

    def connect(setup: str, at: Mapping[str, str] | None = None) -> KernelConnection:
        # Imported with the first kernel: jupyter_client takes 17 MiB.
        from sandbox.kernel.attached import AttachedProcess
        from sandbox.kernel.jupyter import JupyterKernel
        from sandbox.kernel.provisioners import make_provisioner

        if at is not None:
            return JupyterKernel(AttachedProcess(at), setup, at["session"])
        return JupyterKernel(make_provisioner(provisioner, config), setup)

    return connect


def _check_gateway(options: Options) -> list[Check]:
    from sandbox.kernel.gateway import Gateway

    gateway = Gateway(**options)
    if (problem := gateway.problem()) is not None:
        return [Check("gateway", ok=False, detail=problem.reason, fix=problem.fix)]
    detail = f"{gateway.address} offers {gateway.kernel}; its fences are its own"
    return [Check("gateway", ok=True, detail=detail)]


def _connect_gateway(config: Options) -> Callable[..., KernelConnection]:
    from sandbox.kernel.gateway import Gateway, GatewayKernel

    options = {name: config[name] for name in PLACES["gateway"].options if name in config}
    return partial(GatewayKernel, Gateway(**options))


def _unsandboxed() -> Sequence[Check]:
    detail = "kernels run unsandboxed: the model's code has your account"
    return [Check("sandbox", ok=False, detail=detail, fix="remove --sandbox none", needed=False)]


PLACES: Mapping[str, KernelPlace] = {
    "bubblewrap": KernelPlace(
        libraries=("ipykernel",),
        install=_KERNELS_EXTRA,
        connect=partial(_connect_locally, "sandbox.kernel.provisioners:BubblewrapProvisioner"),
        fences=lambda _: probes.checks(),
        weak=probes.missing,
    ),
    "docker": KernelPlace(
        libraries=("docker", "jupyter_client"),
        install='pip install "docker~=7.2" "jupyter-client~=8.10"',
        connect=partial(_connect_locally, "sandbox.kernel.docker_provisioner:DockerProvisioner"),
        fences=lambda options: docker_probes.checks(**options),
        options={"image": "docker_image"},
    ),
    "gateway": KernelPlace(
        libraries=("websockets",),
        install='pip install "websockets~=16.0"',
        connect=_connect_gateway,
        shared=True,
        fences=_check_gateway,
        options={"url": "gateway_url", "token": "gateway_token", "kernel": "gateway_kernel"},
    ),
    "none": KernelPlace(
        libraries=("ipykernel",),
        install=_KERNELS_EXTRA,
        connect=partial(_connect_locally, "sandbox.kernel.provisioners:UnsandboxedProvisioner"),
        fences=lambda _: [],
        weak=_unsandboxed,
    ),
}
