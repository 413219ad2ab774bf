"""The variables that OpenAI-compatible tools share, and whose key may go where.

A key belongs to its provider: it is sent to that provider's own host, or to the base URL that stands beside
it under the same name (``OPENAI_API_KEY``, ``OPENAI_BASE_URL``), and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

BASE_URL_VARIABLE = "OPENAI_BASE_URL"


@dataclass(frozen=True)
class Provider:
    key: str
    """The variable of its key."""
    host: str
    base_url_variable: str | None = None

    @property
    def base_url(self) -> str:
        return f"https://{self.host}/v1"

    def owns(self, url: str, variables: Mapping[str, str]) -> bool:
        """Whether its key may be sent to ``url``."""
        paired = variables.get(self.base_url_variable or "")
        if paired and _origin(paired) == _origin(url):
            return True
        return _origin(url) == _origin(self.base_url)


PROVIDERS = (
    Provider("DEEPSEEK_API_KEY", "api.deepseek.com"),
    Provider("OPENAI_API_KEY", "api.openai.com", BASE_URL_VARIABLE),
)


@dataclass(frozen=True)
class ProviderDefaults:
    """What the providers' variables add to settings that say nothing, or only a part."""

    base_url: str | None = None
    api_key: str | None = None
    url_from: str = ""
    """The variable that chose the base URL."""
    key_from: str = ""
    unsent: tuple[str, ...] = ()
    """Variables of keys that do not belong to the base URL."""


def provider_defaults(
    variables: Mapping[str, str], *, base_url: str | None, has_key: bool
) -> ProviderDefaults:
    """``base_url`` and ``has_key``: what settings of ours have said already."""
    url, url_from = base_url, ""
    keys = [provider for provider in PROVIDERS if variables.get(provider.key)]
    if url is None and variables.get(BASE_URL_VARIABLE):
        url, url_from = variables[BASE_URL_VARIABLE], BASE_URL_VARIABLE
    elif url is None and keys and not has_key:
        url, url_from = keys[0].base_url, keys[0].key
    chosen = None if base_url == url else url
    if has_key or url is None:
        return ProviderDefaults(chosen, url_from=url_from)
    owners = [provider for provider in keys if provider.owns(url, variables)]
    if owners:
        return ProviderDefaults(chosen, variables[owners[0].key], url_from, owners[0].key)
    return ProviderDefaults(
        chosen, url_from=url_from, unsent=tuple(provider.key for provider in keys)
    )


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url.strip())
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, parts.hostname or "", port or {"http": 80, "https": 443}.get(parts.scheme)
