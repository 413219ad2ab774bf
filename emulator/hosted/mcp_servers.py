"""Resolve the MCP servers of a request to tools that the proxy runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import structlog

from emulator import traces
from emulator.core.client_disconnect import stop_on_disconnect
from emulator.core.errors import ClientDisconnected, FailedDependency
from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.address import ServerFailed, ServerRefused
from emulator.hosted.hosted_tool import HostedTool, HostedTools, ServerListing
from emulator.hosted.listing import Listing, function, hints
from emulator.hosted.mcp_items import OfferedServer, offered_servers
from emulator.hosted.sessions import Sessions
from emulator.settings.settings import Settings

log = structlog.get_logger()

RETRY_SECONDS = 30
"""How long a server that is offered in every request is left out after a failure."""


class MCPServers:
    """Finds the tools of the servers in the settings and in requests. Safe to share between threads."""

    def __init__(self, settings: Settings, sessions: Sessions | None = None) -> None:
        self._settings = settings
        self._sessions = sessions or Sessions()
        self._failed_at: dict[str, float] = {}
        self.problems: dict[str, str] = {}
        """Server of the settings -> why it could not be listed the last time."""

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """Return the tools of the servers that ``chat`` names, and of those that are always offered.

        Raises `BadRequest` naming the place, `FailedDependency` for a named server that cannot be listed.
        """
        servers = offered_servers(chat.tools or [], self._settings, client)
        own = {server.label for server in servers if server.own_list}
        in_history = {n: t for n, t in (chat.listed_servers or {}).items() if n not in own}
        futures = {
            server.label: self._sessions.tools(server.address, client)
            for server in servers
            if server.label not in in_history and not self._is_skipped(server)
        }
        tools: list[HostedTool] = []
        listings: list[ServerListing] = []
        left_out: list[str] = []

        def cancel() -> None:
            for future in futures.values():
                future.cancel()

        with stop_on_disconnect(cancel):
            for server in servers:
                if server.label in in_history:
                    listing = Listing(in_history[server.label])
                elif (listed := self._listed(server, futures.get(server.label))) is not None:
                    listing = listed
                    listings.append(_shown(server, listing))
                else:
                    left_out.append(server.label)
                    continue
                tools += self._tools(server, client, listing)
        if left_out and (trace := traces.current.get()) is not None:
            trace.unavailable_servers = tuple(left_out)
        return HostedTools(tuple(tools), tuple(listings))

    def close(self) -> None:
        self._sessions.close()

    def _is_skipped(self, server: OfferedServer) -> bool:
        failed_at = self._failed_at.get(server.label)
        recently = failed_at is not None and time.monotonic() < failed_at + RETRY_SECONDS
        return server.is_default and recently

    def _listed(self, server: OfferedServer, future: Future[Listing] | None) -> Listing | None:
        """The server's tools; None if it is left out. Raises `FailedDependency`."""
        if future is None:
            return None
        try:
            listing = future.result()
            self.problems.pop(server.label, None)
            return listing
        except CancelledError:
            raise ClientDisconnected("The client has disconnected.") from None
        except ServerFailed as error:
            if server.is_default:
                self._failed_at[server.label] = time.monotonic()
                self.problems[server.label] = explained(server, error)
                log.warning("MCP server left out", server=server.label, reason=str(error))
                return None
            message = f"{_NOT_LISTED} {server.label!r}: {explained(server, error)}."
            raise FailedDependency(message, server.place) from error

    def _tools(self, server: OfferedServer, client: str, listing: Listing) -> Iterator[HostedTool]:
        description = server.description and f"({server.label}: {server.description})"
        for tool in listing.tools:
            name = tool["name"]
            if not server.allows(name, hints(tool)):
                continue
            definition = function(tool, description)
            if deferral := server.deferrals.get(name, server.deferral):
                definition["function"]["defer_loading"] = deferral
            place = (server.address, client, server.label, tool)
            yield HostedTool(
                definition,
                "mcp",
                server.label,
                name,
                partial(self._sessions.call, *place),
                partial(self._sessions.resume, *place),
                needs_approval=server.asks(name, hints(tool)),
            )
            description = ""  # once, as for namespaces


_NOT_LISTED = "Error retrieving tool list from MCP server"
"""OpenAI's words."""


def explained(server: OfferedServer, error: ServerFailed) -> str:
    """The cause of a failure, and the setting that may repair it."""
    if not isinstance(error, ServerRefused):
        return str(error)
    return f"{error}{', or' if server.address.login else ';'} set {server.credentials}"


def _shown(server: OfferedServer, listing: Listing) -> ServerListing:
    offered = [tool for tool in listing.tools if server.allows(tool["name"], hints(tool))]
    return ServerListing(server.label, tuple(offered))
