"""The environment variables that OpenAI-compatible tools share, and which host may receive which key.

A key belongs to its provider. It is sent only to the provider's own host, or to the base URL in the variable
with the same prefix (``OPENAI_API_KEY``, ``OPENAI_BASE_URL``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator.addresses import origin

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
