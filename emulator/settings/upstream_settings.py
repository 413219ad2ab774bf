"""The tables of emulator.toml for several upstreams and for custom model profiles.

A row of ``[[upstreams]]`` maps model names to a server. The fields of a row of ``[[profiles]]`` are those of
``emulator.conversation.profiles.Profile``. Knows nothing of requests.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from emulator.core import addresses

Tools = Literal["emulate", "native", "auto"]
"""Who turns a model's reply into tool calls: this proxy, the upstream, or the upstream where it is able
to."""

SchemaField = Literal["off", "json_schema", "json_object"]
"""The type of ``response_format`` by which an upstream enforces a JSON Schema, or ``off``."""

Grammar = Literal[SchemaField, "prompt"]
"""``prompt``: the prompt asks for the same JSON, and nothing enforces it."""


def _key(value: Any) -> Any:
    """Without the line break at the end of many files. A header cannot contain one, or other alphabets."""
    if not isinstance(value, str):
        return value
    if not (key := value.strip()).isascii() or not key.isprintable():
        raise ValueError("a key consists of printable ASCII characters")
    return key


UpstreamKey = Annotated[SecretStr, BeforeValidator(_key)]


class _TableRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UpstreamRow(_TableRow):
    """One upstream. A field of the second half that the row omits takes the value of the setting of that
    name."""

    base_url: str
    name: str = ""
    """The name in errors, logs and ``owned_by``. Defaults to the host."""
    models: tuple[str, ...] = Field(("*",), min_length=1)
    """Patterns (``deepseek-*``) of the models that this upstream serves."""
    strip: str = ""
    """A prefix of model names that clients write and the upstream does not know, such as ``groq/``."""
    api_key: UpstreamKey = SecretStr("none")
    api_key_env: str = ""
    """The variable that holds the key."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    query: dict[str, SecretStr] = Field(default_factory=dict)
    """Query parameters of each request: ``{"api-version" = "..."}``."""

    pass_client_key: bool | None = None
    profile: str | None = None
    tools: Tools | None = None
    grammar: bool | None = None
    retry_grammar: SchemaField | None = None
    response_format: Literal["emulate", "pass"] | None = None
    drop_fields: tuple[str, ...] | None = None
    pass_fields: tuple[str, ...] | None = None
    repair_attempts: int | None = Field(None, ge=0, le=10)
    upstream_seconds: float | None = Field(None, gt=0)
    upstream_retries: int | None = Field(None, ge=0, le=10)
    first_token_seconds: float | None = Field(None, gt=0)
    upstream_requests: int | None = Field(None, ge=0)
    breaker_failures: int | None = Field(None, ge=0)
    fallbacks: tuple[str, ...] | None = None
    """Models to try next, in this order, if this upstream fails."""

    @model_validator(mode="before")
    @classmethod
    def _key_from_environment(cls, row: Any) -> Any:
        if not isinstance(row, dict) or not (variable := row.get("api_key_env")):
            return row
        if "api_key" in row:
            raise ValueError("api_key and api_key_env are both set; an upstream takes one key")
        if not (key := os.environ.get(str(variable))):
            if not re.fullmatch(r"\w+", str(variable)):  # it may be the key itself
                raise ValueError("api_key_env must be the name of a variable")
            raise ValueError(f"the variable {variable}, named by api_key_env, is not set")
        return {**row, "api_key": key}

    @field_validator("base_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        return addresses.base_url(value)

    @property
    def display_name(self) -> str:
        return self.name or urlsplit(self.base_url).netloc.rpartition("@")[2]

    def overrides(self) -> dict[str, Any]:
        """The settings that apply to this upstream only."""
        values = {name: getattr(self, name) for name in OVERRIDABLE_SETTINGS}
        own = {"base_url": self.base_url, "api_key": self.api_key}
        return own | {name: value for name, value in values.items() if value is not None}


OVERRIDABLE_SETTINGS = tuple(
    name for name, field in UpstreamRow.model_fields.items() if field.default is None
)
"""The settings that a row may override."""


class ProfileRow(_TableRow):
    """A custom profile: a copy of the built-in profile ``like``, with the given fields replaced."""

    name: str = Field(min_length=1)
    pattern: str = r"(?!)"
    """A regular expression that the model's name contains. Without one, the profile is chosen by its name."""
    like: Literal["default", "reasoning", "tiny", "openai"] = "default"
    system: bool | None = None
    later_system: bool | None = None
    drops: tuple[str, ...] | None = None
    pass_fields: tuple[str, ...] | None = None
    renames: dict[str, str] | None = None
    account_fields: tuple[str, ...] | None = None
    plain: bool | None = None
    begins_inside: bool | None = None
    reasoning_field: str | None = None
    stop: tuple[str, ...] | None = None
    grammar: Grammar | None = None
    tools: Tools | None = None
    """Takes precedence over the setting ``tools``."""
    tool_tokens: int | None = Field(None, ge=0)
    """Takes precedence over the setting ``tool_tokens``."""
    acts: Literal["label", "any"] | None = None
    """``any``: every valid call in a block acts, for a model that never learns the label ``tool_code``."""
    template: str | None = None
    """A Jinja file that replaces prompts/tools.jinja."""
    chat_template: str | None = None
    """The file of the model's chat template, whose words about tools replace prompts/tools.jinja."""

    @field_validator("pattern")
    @classmethod
    def _is_expression(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from error
        return pattern
