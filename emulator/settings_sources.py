"""The sources of settings after the command line: the environment, emulator.toml, providers' variables.

Knows no settings except those that the providers' variables can supply.
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
    """Defaults from variables that do not start with ``EMULATOR_``: providers' variables and
    XDG_STATE_HOME."""

    def get_field_value(
        self,
        field: FieldInfo,  # noqa: ARG002
        field_name: str,
    ) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        explicit = self.current_state
        defaults = providers.provider_defaults(
            os.environ, base_url=explicit.get("base_url"), has_key="api_key" in explicit
        )
        found = {"base_url": defaults.base_url, "api_key": defaults.api_key}
        state = os.environ.get("XDG_STATE_HOME", "")
        if Path(state).is_absolute():  # the XDG specification ignores relative paths
            folder = Path(state) / APPLICATION
            found |= {"store": str(folder / "programs.sqlite"), "files_dir": str(folder / "files")}
        return {name: value for name, value in found.items() if value is not None}


SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")
"""The value of EMULATOR_PORT that Kubernetes sets in containers next to a service named emulator. No valid
value of a setting starts like this."""


class Variables(EnvSettingsSource):
    """The variables ``EMULATOR_*``, without those that Kubernetes sets for services."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, value_is_complex = super().get_field_value(field, field_name)
        if isinstance(value, str) and SERVICE_LINK_ADDRESS.fullmatch(value):
            value = None
        return value, key, value_is_complex


def sources(settings: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
    """The sources after the command line, the one with the highest precedence first."""
    file = Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    return (
        Variables(settings),
        TomlConfigSettingsSource(settings, file),
        EnvironmentDefaults(settings),
    )
