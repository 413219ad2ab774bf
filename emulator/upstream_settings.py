"""What emulator.toml may say of several upstreams, and of models that want a profile of their own.

A row of ``[[upstreams]]`` says where some models are; of a row of ``[[profiles]]`` each field is one of
``emulator.answering.profiles.Profile``. Knows nothing of requests.
"""

from __future__ import annotations

import os
import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from emulator import addresses

Tools = Literal["emulate", "native", "auto"]
"""Who makes tool calls of a model's reply: this proxy, the upstream, or whichever can."""

GrammarField = Literal[
    "off",
    "grammar",
    "guided_grammar",
    "structured_outputs",
    "ebnf",
    "structural_tag",
    "json_schema",
]
"""In which field of a request an upstream takes a grammar; ``off`` for one that takes none."""


class _TableRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UpstreamRow(_TableRow):
    """One upstream. What a row leaves out of its second half is as the settings of that name say."""

    base_url: str
    name: str = ""
    """What errors, logs and ``owned_by`` call it; its host, if nothing is said."""
    models: tuple[str, ...] = Field(("*",), min_length=1)
    """Patterns (``deepseek-*``) of the models that are asked for here."""
    strip: str = ""
    """A beginning of model names that clients write and the upstream does not know: ``groq/``."""
    api_key: SecretStr = SecretStr("none")
    api_key_env: str = ""
    """The variable that holds the key."""
    headers: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    """Goes with each request: ``{"api-version" = "..."}``."""

    pass_client_key: bool | None = None
    profile: str | None = None
    tools: Tools | None = None
    grammar: bool | None = None
    retry_grammar: Literal["off", "grammar", "guided_grammar"] | None = None
    response_format: Literal["emulate", "pass"] | None = None
    recover_reasoning: bool | None = None
    drop_fields: tuple[str, ...] | None = None
    repair_attempts: int | None = Field(None, ge=0, le=10)
    upstream_seconds: float | None = Field(None, gt=0)
    upstream_connect_seconds: float | None = Field(None, gt=0)
    upstream_retries: int | None = Field(None, ge=0, le=10)
    upstream_requests: int | None = Field(None, ge=0)
    breaker_failures: int | None = Field(None, ge=0)
    breaker_seconds: float | None = Field(None, gt=0)
    fallbacks: tuple[str, ...] | None = None
    """Models to ask instead, in this order, where this upstream fails."""

    @model_validator(mode="before")
    @classmethod
    def _key_from_environment(cls, row: Any) -> Any:
        if not isinstance(row, dict) or not (variable := row.get("api_key_env")):
            return row
        if "api_key" in row:
            raise ValueError("api_key and api_key_env are two keys for one upstream")
        if not (key := os.environ.get(str(variable))):
            raise ValueError(f"the variable {variable}, which api_key_env names, is not set")
        return {**row, "api_key": key}

    @field_validator("base_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        return addresses.base_url(value)

    @property
    def called(self) -> str:
        return self.name or urlsplit(self.base_url).netloc.rpartition("@")[2]

    def overrides(self) -> dict[str, Any]:
        """The settings that hold for this upstream alone."""
        said = {name: getattr(self, name) for name in OVERRIDABLE_SETTINGS}
        own = {"base_url": self.base_url, "api_key": self.api_key}
        return own | {name: value for name, value in said.items() if value is not None}


OVERRIDABLE_SETTINGS = tuple(
    name for name, field in UpstreamRow.model_fields.items() if field.default is None
)
"""The settings that a row may have its own value for."""


class ProfileRow(_TableRow):
    """A profile beside those that are built in; ``like`` one of which it is, but for what is said."""

    name: str = Field(min_length=1)
    pattern: str = r"(?!)"
    """A regular expression found in the names of its models; without one it is chosen by its name."""
    like: Literal["default", "reasoning", "tiny", "openai"] = "default"
    system: bool | None = None
    drops: tuple[str, ...] | None = None
    renames: dict[str, str] | None = None
    account_fields: tuple[str, ...] | None = None
    plain: bool | None = None
    begins_inside: bool | None = None
    reasoning_field: str | None = None
    stop: tuple[str, ...] | None = None
    grammar: GrammarField | None = None
    template: str | None = None
    """A Jinja file that says what prompts/tools.jinja does."""

    @field_validator("pattern")
    @classmethod
    def _is_expression(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
        return pattern
