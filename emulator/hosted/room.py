"""All tools that the proxy runs: those of MCP servers, and the vendors' types."""

from __future__ import annotations

from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.elicitation import Ask
from emulator.hosted.hosted_tool import HostedTools
from emulator.hosted.mcp_servers import MCPServers
from emulator.hosted.served import ServedTypes
from emulator.hosted.sessions import Sessions
from emulator.settings.settings import Settings


class HostedRoom:
    """Resolves the hosted tools of requests. Safe to share between threads."""

    def __init__(self, settings: Settings, ask: Ask | None = None) -> None:
        """``ask`` puts the questions of servers to people; None if nobody can be asked."""
        self._sessions = Sessions(ask)
        self._servers = MCPServers(settings, self._sessions)
        self._served = ServedTypes(settings, self._sessions)

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """Raises `BadRequest` naming the place, `FailedDependency` for a server that cannot be listed."""
        served = self._served.resolve(chat, client)
        servers = self._servers.resolve(chat, client)
        return HostedTools(
            (*servers.tools, *served.tools),
            servers.listings,
            servers.types | served.types,
            served.notice,
            served.ignored,
        )

    @property
    def problems(self) -> dict[str, str]:
        """Server of the settings -> why its tools are missing."""
        return self._servers.problems

    def close(self) -> None:
        self._sessions.close()
