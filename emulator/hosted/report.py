"""`tool-emulator mcp`: the operator's servers, their tools as a model sees them, and what is wrong.

At the start of the proxy, and for `doctor`, too: whether the vendors' types bind to tools of these servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from emulator.hosted.address import ServerFailed
from emulator.hosted.listing import Listing, function, hints
from emulator.hosted.mapping_problems import mapping_problems
from emulator.hosted.mcp_items import OfferedServer, operators_server
from emulator.hosted.mcp_servers import explained
from emulator.hosted.sessions import Sessions
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from sandbox.report import Check


@dataclass(frozen=True)
class ServerReport:
    """What one server answered: its tools, or why it cannot be used."""

    server: OfferedServer
    listing: Listing
    error: str = ""

    @property
    def is_sound(self) -> bool:
        return not self.error and not self.listing.problems

    @property
    def unasked(self) -> list[str]:
        """The names of acting tools whose calls run without approval."""
        return [
            tool["name"]
            for tool in self.listing.tools
            if self.server.allows(tool["name"], hints(tool))
            and hints(tool).get("readOnlyHint") is not True
            and not self.server.asks(tool["name"], hints(tool))
        ]

    def check(self) -> Check:
        """The line of `tool-emulator doctor`."""
        tools = f"{len(self.listing.tools)} tools from {self.server.address}"
        if self.unasked:
            tools += f"; run without approval (require_approval): {', '.join(self.unasked)}"
        detail = "; ".join([self.error or tools, *self.listing.problems])
        fix = self.error and f"correct [mcp.{self.server.label}]; see tool-emulator mcp"
        return Check(
            f"mcp.{self.server.label}", self.is_sound, detail, fix, needed=bool(self.error)
        )

    def __str__(self) -> str:
        """The tools as Python, with everything else in comments."""
        server, listing = self.server, self.listing
        tools = [tool for tool in listing.tools if server.allows(tool["name"], hints(tool))]
        approved_first = [tool["name"] for tool in tools if server.asks(tool["name"], hints(tool))]
        comments = [f"{server.label} ({server.address}): {self.error or f'{len(tools)} tools'}"]
        if hidden := len(listing.tools) - len(tools):
            comments.append(f"{hidden} tools are not offered (allowed_tools, serve)")
        if self.unasked:
            comments.append(f"run without approval (require_approval): {', '.join(self.unasked)}")
        if approved_first:
            comments.append(f"wait for approval: {', '.join(approved_first)}")
        heading = "\n".join(f"# {line}" for line in [*comments, *listing.problems])
        stubs = Toolset.parse([function(tool) for tool in tools]).stubs
        return f"{heading}\n\n{stubs}" if tools else f"{heading}\n"


def examine(settings: Settings, labels: Collection[str] | None = None) -> list[ServerReport]:
    """Ask the servers of the settings, or only those with these labels, for their tools."""
    return list(_reports(settings, settings.mcp.keys() if labels is None else labels))


def served_checks(settings: Settings, reports: Sequence[ServerReport]) -> list[Check]:
    """A line for each type of tool that the settings serve."""
    listings = {one.server.label: one.listing for one in reports if not one.error}
    problems = dict(mapping_problems(settings, listings))
    return [
        Check(
            f"serve.{name}",
            name not in problems and row.server in listings,
            problems.get(name) or f"by {row.tool}",
            f"correct [serve.{name}]; see tool-emulator mcp" if name in problems else "",
            needed=name in problems,
        )
        for name, row in settings.serve.rows.items()
    ]


def _reports(settings: Settings, labels: Collection[str]) -> Iterator[ServerReport]:
    servers = [operators_server(settings, label) for label in labels]
    with closing(Sessions()) as sessions:
        futures = [sessions.tools(server.address, "") for server in servers]
        for server, future in zip(servers, futures, strict=True):
            try:
                yield ServerReport(server, future.result())
            except ServerFailed as error:
                yield ServerReport(server, Listing(()), explained(server, error))
