"""Which texts of a conversation may name the URLs that the model fetches: Anthropic's ``url_sources``.

Without it every text counts that the model itself has not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from emulator.core.events import HostedKind

_CONTRIBUTING: tuple[HostedKind, ...] = ("web_search", "web_fetch")
"""The vendor's tools whose results name URLs. Those of others do not."""


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _UserInput(_Rule):
    type: Literal["all", "none"] = "all"


class _Reference(_Rule):
    type: Literal["tool_reference"]
    name: str


class _Results(_Rule):
    type: Literal["all", "none", "only", "except"] = "all"
    tools: tuple[_Reference, ...] = ()

    @model_validator(mode="after")
    def _has_a_list_if_it_needs_one(self) -> Self:
        if (self.type in ("only", "except")) != bool(self.tools):
            raise ValueError("only and except need tools, all and none have none")
        return self

    def include(self, name: str) -> bool:
        is_listed = any(name == tool.name for tool in self.tools)
        return {"all": True, "none": False, "only": is_listed, "except": not is_listed}[self.type]


class URLSources(_Rule):
    user_input: _UserInput = _UserInput()
    client_tool_results: _Results = _Results()
    server_tool_results: _Results = _Results()

    @property
    def include_messages(self) -> bool:
        return self.user_input.type == "all"

    def include_result(self, name: str, *, of_client: bool) -> bool:
        """Whether a result counts: of the client's tool ``name``, or of the vendor's."""
        if of_client:
            return self.client_tool_results.include(name)
        return name in _CONTRIBUTING and self.server_tool_results.include(name)

    def named_tools(self) -> Iterator[tuple[str, str]]:
        """The place of each name of a tool, and the name."""
        for kind in ("client_tool_results", "server_tool_results"):
            for n, tool in enumerate(getattr(self, kind).tools):
                yield f"url_sources.{kind}.tools[{n}].name", tool.name
