"""Where settings come from beside the command line: the environment, emulator.toml, providers' variables.

Knows no setting but those that providers' variables stand for.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from emulator import providers

CONFIG_VARIABLE = "EMULATOR_CONFIG"
DEFAULT_FILE = "emulator.toml"
APPLICATION = "tool-use-api-emulator"


class EnvironmentDefaults(PydanticBaseSettingsSource):
    """What the environment says under names that are not ours, where no setting says otherwise."""

    def get_field_value(
        self,
        field: FieldInfo,  # noqa: ARG002
        field_name: str,
    ) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        said = self.current_state
        choice = providers.provider_defaults(
            os.environ, base_url=said.get("base_url"), has_key="api_key" in said
        )
        found = {"base_url": choice.base_url, "api_key": choice.api_key}
        state = os.environ.get("XDG_STATE_HOME", "")
        if Path(state).is_absolute():  # the specification ignores others
            folder = Path(state) / APPLICATION
            found |= {"store": str(folder / "programs.sqlite"), "files_dir": str(folder / "files")}
        return {name: value for name, value in found.items() if value is not None}


SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")
"""What Kubernetes sets EMULATOR_PORT to, in all containers beside a service called emulator. No setting of
ours begins so."""


class Variables(EnvSettingsSource):
    """``EMULATOR_*``, but for what Kubernetes says of services."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, value_is_complex = super().get_field_value(field, field_name)
        if isinstance(value, str) and SERVICE_LINK_ADDRESS.fullmatch(value):
            value = None
        return value, key, value_is_complex


def sources(settings: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
    """Which source is asked first, after the command line."""
    file = Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    return (
        Variables(settings),
        TomlConfigSettingsSource(settings, file),
        EnvironmentDefaults(settings),
    )
