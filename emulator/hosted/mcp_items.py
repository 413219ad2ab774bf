"""The items ``{"type": "mcp", ...}`` of a request's ``tools``: which server each one means, and its rules.

An item with ``server_url`` names a server of its own, if the setting ``mcp_hosts`` allows the host. An item
with only a ``server_label`` means the operator's server of that name. Raises `BadRequest` naming the place.

What may never happen: a request calls a tool whose calls the operator limits (`ServeRow.is_limited`), except
as the type that it serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints

from emulator.core.addresses import origin
from emulator.core.client_keys import grant_of
from emulator.core.errors import BadRequest
from emulator.core.protocol import validated
from emulator.hosted.address import (
    ServerAddress,
    address_of,
    is_allowed_host,
    is_for_one_user,
    with_token,
)
from emulator.settings.mcp_settings import (
    AllowedTools,
    RequireApproval,
    check_header,
    is_allowed,
    needs_approval,
    uses_hints,
)
from emulator.settings.settings import Settings

MAX_SERVERS = 32
ONE_USER = " (logins are for one user on one machine, without client keys)"


class _Item(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    server_label: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z][\w-]*$", min_length=1, max_length=64)
    ]
    server_url: str | None = None
    server_description: str | None = None
    authorization: SecretStr | None = None
    headers: dict[str, SecretStr] | None = None
    allowed_tools: AllowedTools = None
    excluded_tools: tuple[str, ...] = ()
    """What toolsets of Messages disable."""
    require_approval: RequireApproval | None = None
    defer_loading: bool | str | None = None
    deferred_tools: dict[str, bool] = {}
    """What toolsets of Messages defer, or not, by the tool's name."""


@dataclass(frozen=True)
class OfferedServer:
    """A server in one request, and the rules for its tools: all of them apply."""

    label: str
    address: ServerAddress
    description: str = ""
    allowed: tuple[AllowedTools, ...] = ()
    approval: tuple[RequireApproval, ...] = ()
    excluded: tuple[str, ...] = ()
    own_list: bool = False
    """The operator's rules use hints, so the server's own list counts, not the one in a client's history."""
    is_default: bool = False
    """The operator offers it in every request; this request does not name it."""
    deferral: bool | str = field(default=False, kw_only=True)
    """The value of ``defer_loading`` of its tools: the model searches for them."""
    deferrals: Mapping[str, bool] = field(default_factory=dict, kw_only=True)
    """The value for some of its tools."""
    place: str = field(default="", kw_only=True)
    """Where the request names the server."""
    credentials: str = field(default="", kw_only=True)
    """What to set if the server refuses the credentials."""

    def allows(self, name: str, annotations: Mapping[str, Any]) -> bool:
        allowed = all(is_allowed(rule, name, annotations) for rule in self.allowed)
        return allowed and name not in self.excluded

    def asks(self, name: str, annotations: Mapping[str, Any]) -> bool:
        """Return True if a call of the tool waits for approval."""
        return any(needs_approval(rule, name, annotations) for rule in self.approval)


def offered_servers(
    tools: list[dict[str, Any]], settings: Settings, client: str
) -> list[OfferedServer]:
    """Return the servers of a request: those of its items, then those that the operator always offers."""
    servers: dict[str, OfferedServer] = {}
    for n, tool in enumerate(tools):
        if tool.get("type") != "mcp":
            continue
        server = _named_server(tool, f"tools[{n}]", settings, client)
        if server.label in servers:
            place = f"tools[{n}].server_label"
            raise BadRequest(f"{place}: two servers have the label {server.label!r}.", place)
        servers[server.label] = replace(
            server,
            place=f"tools[{n}]",
            deferral=tool.get("defer_loading") or False,
            deferrals=tool.get("deferred_tools") or {},
        )
        if len(servers) > MAX_SERVERS:
            raise BadRequest(f"tools names more than {MAX_SERVERS} MCP servers.", "tools")
    for label in _usable(settings, client):
        if settings.mcp[label].always and label not in servers:
            servers[label] = operators_server(settings, label, is_default=True)
    return list(servers.values())


def operators_server(
    settings: Settings, label: str, item: _Item | None = None, *, is_default: bool = False
) -> OfferedServer:
    row = settings.mcp[label]
    address = address_of(settings, label)
    rules = (row.require_approval, item.require_approval if item else None)
    return OfferedServer(
        label,
        address,
        (item.server_description if item else None) or row.description,
        (row.allowed_tools, item.allowed_tools if item else None),
        tuple(rule for rule in rules if rule is not None),
        (*_limited_tools(settings, address), *(item.excluded_tools if item else ())),
        uses_hints(row),
        is_default,
        credentials=f"token in [mcp.{label}]{'' if is_for_one_user(settings) else ONE_USER}",
    )


def _limited_tools(settings: Settings, address: ServerAddress) -> Iterator[str]:
    """The tools of the server at ``address`` that only the types which they serve may call. A server is the
    same under each label, and at each URL of its origin."""
    for row in settings.serve.rows.values():
        own = address_of(settings, row.server)
        is_same = own.digest == address.digest or (
            own.url and address.url and origin(own.url) == origin(address.url)
        )
        if row.is_limited and is_same:
            yield row.tool_name


def _usable(settings: Settings, client: str) -> list[str]:
    key_name = grant_of(client).name
    return [label for label, row in settings.mcp.items() if row.may_use(key_name)]


def _named_server(
    tool: Mapping[str, Any], place: str, settings: Settings, client: str
) -> OfferedServer:
    item = validated(_Item, tool, place)
    for name in ("connector_id", "tunnel_id"):
        if tool.get(name) is not None:
            raise BadRequest(f"{place}.{name} works only at OpenAI.", f"{place}.{name}")
    if item.server_url is None:
        usable = _usable(settings, client)
        if item.server_label not in usable:
            known = f"expected one of {', '.join(usable)}, or" if usable else "send"
            where = f"{place}.server_label"
            message = (
                f"{where} is {item.server_label!r}, which is no server here: {known} server_url."
            )
            raise BadRequest(message, where)
        for name in ("authorization", "headers"):
            if getattr(item, name):
                where = f"{place}.{name}"
                raise BadRequest(f"{where} needs server_url: this server has its own.", where)
        return operators_server(settings, item.server_label, item)
    _check_url(item.server_url, f"{place}.server_url", settings)
    headers = with_token(item.headers or {}, item.authorization)
    for name, value in headers:
        where = f"{place}.{'headers' if name in (item.headers or {}) else 'authorization'}"
        try:
            check_header(name, value)
        except ValueError as error:
            raise BadRequest(f"{where}: {error}.", where) from None
    address = ServerAddress(url=item.server_url, headers=headers)
    return OfferedServer(
        item.server_label,
        address,
        item.server_description or "",
        (item.allowed_tools,),
        (item.require_approval or "always",),
        (*_limited_tools(settings, address), *item.excluded_tools),
        credentials=f"{place}.authorization",
    )


def _check_url(url: str, place: str, settings: Settings) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        _ = parts.port  # raises ValueError
    except ValueError:
        usable = False
    if not usable:
        message = f"{place} must start with https:// or http:// and contain no user or password."
        raise BadRequest(message, place)
    if not is_allowed_host(url, settings.mcp_hosts):
        message = f"{place}: the setting mcp_hosts does not allow the host {parts.netloc[:256]}."
        raise BadRequest(message, place, "mcp_host_not_allowed")
