"""The table ``[web_search]`` of emulator.toml: the provider that answers the model's web searches."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from emulator.settings.mcp_settings import Expanded, ExpandedSecret, check_header

_DEFAULT_URLS = {
    "searxng": "",
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}


class WebSearchTable(BaseModel):
    """``searxng``, ``brave`` or ``tavily``; a tool of an MCP server searches by ``[serve]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str
    url: Expanded = ""
    """The address of the search API; ``searxng`` has no default."""
    token: ExpandedSecret | None = None
    results: int = Field(8, ge=1, le=20)
    """The number of results that the model gets."""
    timeout: float = Field(15, gt=0, le=300)
    """Seconds for one search."""

    @property
    def address(self) -> str:
        return self.url or _DEFAULT_URLS[self.provider]

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.provider.startswith("mcp:"):
            raise ValueError(f'write serve.web_search = "{self.provider[4:]}" instead')
        if self.provider not in _DEFAULT_URLS:
            raise ValueError(f"provider must be one of {', '.join(_DEFAULT_URLS)}")
        if not self.address.startswith(("http://", "https://")):
            raise ValueError("url must start with http:// or https://")
        if self.provider in ("brave", "tavily") and self.token is None:
            raise ValueError(f"{self.provider} needs a token")
        check_header("Authorization", self.token.get_secret_value() if self.token else "")
        return self
