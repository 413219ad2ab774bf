"""The container in which the model's code runs, as a tool asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from emulator.core.errors import BadRequest
from emulator.core.protocol import validated
from emulator.settings.settings import MemoryLimit


class NetworkPolicy(BaseModel):
    """A sandbox has no network, so this is the only policy."""

    type: Literal["disabled"]


class AutoContainer(BaseModel):
    """``{"type": "auto", ...}``: the proxy chooses the container. OpenAI's other fields are ignored."""

    model_config = ConfigDict(frozen=True)

    file_ids: list[str] = Field(default_factory=list, max_length=50)
    memory_limit: MemoryLimit | None = None
    network_policy: NetworkPolicy | None = None
    stateful: bool = True
    approval: Literal["never", "required"] | None = None
    reuse: list[str] = Field(default_factory=list)
    """This conversation's containers, the latest last. One that still exists is reused. Set by the proxy."""


ContainerChoice = str | AutoContainer
"""The id of a container, or any."""


def container_choice(wanted: Any, place: str) -> ContainerChoice:
    """Read the field ``container`` of a tool, at ``place``. Raises `BadRequest`."""
    if wanted == "auto":
        raise BadRequest(f'Invalid value for {place!r}: write {{"type": "auto"}}.', place)
    if not wanted or isinstance(wanted, str):
        return wanted or AutoContainer()
    if not isinstance(wanted, Mapping) or wanted.get("type") != "auto":
        raise BadRequest(
            f"Invalid value for {place!r}: expected the id of a container or type auto.", place
        )
    return validated(AutoContainer, wanted, place)
