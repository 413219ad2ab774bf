"""The tables ``[mcp.NAME]`` of emulator.toml: the operator's MCP servers and the rules for their tools.

Requests limit tools and demand approval in the same way (`is_allowed`, `needs_approval`). Knows nothing of
sessions.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from emulator.core import addresses

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"(?!\s)[\x20-\x7e\t]{0,8192}(?<!\s)")
CLIENT_HEADER, CLIENT_VARIABLE = "X-Emulator-Client", "EMULATOR_CLIENT"
"""Where a server that separates clients finds the digest of the client."""
_OWN_HEADERS = frozenset(
    "accept accept-encoding connection content-length content-type host last-event-id mcp-session-id"
    f" transfer-encoding upgrade {CLIENT_HEADER.lower()}".split()
)
"""Headers that belong to the transport, or that only the proxy may set."""


def _expand(value: Any) -> Any:
    """Replace each ``${NAME}`` by the environment variable of that name."""
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if not os.environ.get(name):
            raise ValueError(f"the environment variable {name} is not set")
    return _VARIABLE.sub(lambda match: os.environ[match[1]], value)


def _expand_argument(value: Any) -> Any:
    """As `_expand`; what contains a variable is a secret."""
    has_variable = isinstance(value, str) and _VARIABLE.search(value)
    return SecretStr(_expand(value)) if has_variable else value


Expanded = Annotated[str, BeforeValidator(_expand)]
ExpandedSecret = Annotated[SecretStr, BeforeValidator(_expand)]
Argument = Annotated[str | SecretStr, BeforeValidator(_expand_argument)]


def check_header(name: str, value: str) -> None:
    """Raises ValueError, which does not contain the value: a library's error would."""
    # CGI and its heirs read a name with underscores as the same header.
    if name.lower().replace("_", "-") in _OWN_HEADERS or not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"headers may not contain {name[:64]!r}")
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"the value of {name[:64]} is no header value")


class ToolFilter(BaseModel):
    """Tools of a server by name, by their hint ``readOnlyHint``, or by both; an empty filter means all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool_names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def matches(self, name: str, annotations: Mapping[str, Any]) -> bool:
        if self.tool_names is not None and name not in self.tool_names:
            return False
        return self.read_only is None or self.read_only == (annotations.get("readOnlyHint") is True)


class ApprovalFilter(BaseModel):
    """Which calls wait for approval. Calls of other tools do so unless only ``always`` is set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    always: ToolFilter | None = None
    never: ToolFilter | None = None


AllowedTools = tuple[str, ...] | ToolFilter | None
RequireApproval = Literal["always", "never"] | ApprovalFilter


def is_allowed(allowed: AllowedTools, name: str, annotations: Mapping[str, Any]) -> bool:
    if isinstance(allowed, ToolFilter):
        return allowed.matches(name, annotations)
    return allowed is None or name in allowed


def needs_approval(rule: RequireApproval, name: str, annotations: Mapping[str, Any]) -> bool:
    if not isinstance(rule, ApprovalFilter):
        return rule == "always"
    if rule.always is not None and rule.always.matches(name, annotations):
        return True
    if rule.never is not None:
        return not rule.never.matches(name, annotations)
    return rule.always is None


def uses_hints(row: MCPServerRow) -> bool:
    """Return True if the rules of ``row`` depend on the hints of tools."""
    approval = row.require_approval
    filters: list[Any] = [row.allowed_tools]
    if isinstance(approval, ApprovalFilter):
        filters += [approval.always, approval.never]
    return any(isinstance(one, ToolFilter) and one.read_only is not None for one in filters)


class MCPServerRow(BaseModel):
    """One MCP server: ``url`` (Streamable HTTP), or ``command`` (standard input and output)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: ExpandedSecret = SecretStr("")
    """A secret, since its path may contain a key."""
    command: str = ""
    args: tuple[Argument, ...] = ()
    env: dict[str, ExpandedSecret] = Field(default_factory=dict)
    """Variables of the command, which otherwise gets only PATH, HOME and the like."""
    token: ExpandedSecret | None = None
    """Sent as ``Authorization: Bearer``."""
    headers: dict[str, ExpandedSecret] = Field(default_factory=dict)
    description: str = ""
    allowed_tools: AllowedTools = None
    require_approval: RequireApproval = "never"
    timeout: float = Field(60, gt=0, le=3600)
    """The deadline of one call, in seconds."""
    keys: tuple[str, ...] = ("*",)
    """Patterns of the names of client keys that may use the server."""
    always: bool = False
    """Offer the tools in every request."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        url = self.url.get_secret_value()
        if bool(url) == bool(self.command):
            raise ValueError("set either url or command")
        if url and (self.args or self.env):
            raise ValueError("args and env are for a server with a command")
        if self.command and (self.token or self.headers):
            raise ValueError("token and headers are for a server with a url")
        if url:
            parts = addresses.parse(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("url must start with http:// or https://")
        for name, value in (*self.headers.items(), ("Authorization", self.token)):
            check_header(name, value.get_secret_value() if value else "")
        return self

    @property
    def has_credentials(self) -> bool:
        return self.token is not None or "authorization" in map(str.lower, self.headers)

    def may_use(self, key_name: str) -> bool:
        """Return True if the client key of that name ("" for keys without a name) may use the server."""
        return any(fnmatchcase(key_name, pattern) for pattern in self.keys)


def read_servers(value: Any) -> Any:
    """Read servers outside of the file: ``NAME=COMMAND`` or ``NAME=URL``, a line each, always offered."""
    if not isinstance(value, str):
        return value
    servers: dict[str, dict[str, Any]] = {}
    for line in filter(None, map(str.strip, value.splitlines())):
        name, _, address = line.partition("=")
        if not address:
            raise ValueError("write NAME=COMMAND or NAME=URL, as in 'time=uvx mcp-server-time'")
        if address.startswith(("http://", "https://")):
            servers[name] = {"url": address, "always": True}
        else:
            command, *arguments = shlex.split(address)
            servers[name] = {"command": command, "args": arguments, "always": True}
    return servers
