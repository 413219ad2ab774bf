"""The sources of settings after the command line: the environment, emulator.toml, providers' variables.

Providers' variables are those that OpenAI-compatible tools share. A key in them belongs to its provider. It
is sent only to the provider's own host, or to the base URL in the variable with the same prefix
(``OPENAI_API_KEY``, ``OPENAI_BASE_URL``). Knows no settings except those that these variables can supply.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from emulator.core.addresses import origin
from emulator.settings.removed_settings import is_ignored

BASE_URL_VARIABLE = "OPENAI_BASE_URL"


@dataclass(frozen=True)
class Provider:
    key: str
    """The name of the variable that holds the provider's key."""
    host: str
    base_url_variable: str | None = None

    @property
    def base_url(self) -> str:
        return f"https://{self.host}/v1"

    def owns(self, url: str, variables: Mapping[str, str]) -> bool:
        """Return True if the provider's key may be sent to ``url``."""
        paired = variables.get(self.base_url_variable or "")
        if paired and origin(paired) == origin(url):
            return True
        return origin(url) == origin(self.base_url)


PROVIDERS = (
    Provider("DEEPSEEK_API_KEY", "api.deepseek.com"),
    Provider("OPENAI_API_KEY", "api.openai.com", BASE_URL_VARIABLE),
)


@dataclass(frozen=True)
class ProviderDefaults:
    """The base URL and key that the providers' variables supply where the settings do not."""

    base_url: str | None = None
    api_key: str | None = None
    url_from: str = ""
    """The variable that determined the base URL."""
    unsent: tuple[str, ...] = ()
    """Variables that hold keys of other providers: these keys are not sent to the base URL."""


def provider_defaults(
    variables: Mapping[str, str], *, base_url: str | None, has_key: bool
) -> ProviderDefaults:
    """Choose a base URL and a key. ``base_url`` and ``has_key`` describe what the settings already define."""
    url, url_from = base_url, ""
    keys = [provider for provider in PROVIDERS if variables.get(provider.key)]
    if url is None and variables.get(BASE_URL_VARIABLE):
        url, url_from = variables[BASE_URL_VARIABLE], BASE_URL_VARIABLE
    elif url is None and keys and not has_key:
        url, url_from = keys[0].base_url, keys[0].key
    new_url = None if base_url == url else url
    if has_key or url is None:
        return ProviderDefaults(new_url, url_from=url_from)
    owner = next((provider for provider in keys if provider.owns(url, variables)), None)
    if owner:
        return ProviderDefaults(new_url, variables[owner.key], url_from)
    return ProviderDefaults(
        new_url, url_from=url_from, unsent=tuple(provider.key for provider in keys)
    )


CONFIG_VARIABLE = "EMULATOR_CONFIG"
DEFAULT_FILE = "emulator.toml"
ENCODING = "utf-8-sig"
"""UTF-8; some editors start a file with a byte order mark."""
APPLICATION = "tool-use-api-emulator"


def state_folder() -> Path:
    """The folder of this application in XDG_STATE_HOME, or in ~/.local/state, where ``~`` is not expanded."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The XDG specification ignores relative paths.
    return (state if state.is_absolute() else Path("~/.local/state")) / APPLICATION


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
        defaults = provider_defaults(
            os.environ, base_url=explicit.get("base_url"), has_key="api_key" in explicit
        )
        found = {"base_url": defaults.base_url, "api_key": defaults.api_key}
        if (folder := state_folder()).is_absolute():
            found |= {
                "database": str(folder / "emulator.sqlite"),
                "files_dir": str(folder / "files"),
            }
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

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """A table in a variable is JSON. Anything else reaches `Settings`, which refuses it as no table."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class TomlFile(TomlConfigSettingsSource):
    def _read_file(self, file_path: Any) -> dict[str, Any]:
        values = tomllib.loads(file_path.read_text(ENCODING))
        return {name: value for name, value in values.items() if not is_ignored(name)}


def sources(settings: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
    """The sources after the command line, the one with the highest precedence first."""
    file = Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    return (
        Variables(settings),
        TomlFile(settings, file),
        EnvironmentDefaults(settings),
    )
