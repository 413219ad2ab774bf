"""Agents search the web with their own tools, by a tool of an MCP server that the proxy runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import AGENTS
from tests.agents.test_codex import codex
from tests.conftest import StartProxy
from tests.support import mcp_library
from tests.support.scripted import ScriptedUpstream

[CODEX, CLAUDE] = (agent for agent in AGENTS if agent.title in ("Codex CLI", "Claude Code"))
SERVE = {
    "web_search": mcp_library.SEARCH,
}
SEARCH = "```tool_code\nprint(web_search(query='tea'))\n```"
ANSWER = "A pound costs 4 pounds."


def start(start_proxy: StartProxy, folder: Path) -> str:
    return start_proxy(mcp={"library": mcp_library.stdio(folder / "log")}, serve=SERVE)


def read_by_model(upstream: ScriptedUpstream) -> str:
    return "\n".join(str(request["messages"]) for request in upstream.requests)


@pytest.mark.skipif(not CODEX.environment.installed, reason="Codex is not installed")
def test_codex_searches_the_web(
    start_proxy: StartProxy, upstream: ScriptedUpstream, home: Path
) -> None:
    url = start(start_proxy, home)
    upstream.reply(SEARCH, ANSWER)
    ended = codex(home, url, "-c", 'web_search="live"', "What does tea cost?")
    assert ANSWER in ended.stdout
    assert (home / "log").read_text() == "find tea\n"
    assert "A pound of tea costs 4 pounds." in read_by_model(upstream)


@pytest.mark.skipif(not CLAUDE.environment.installed, reason="Claude Code is not installed")
def test_claude_code_searches_the_web(
    start_proxy: StartProxy, upstream: ScriptedUpstream, home: Path
) -> None:
    """Its tool WebSearch asks the model in a request of its own, with the type of Anthropic."""

    def model(request: Any) -> str:
        prompt = str(request["messages"])
        if "Perform a web search" in prompt:
            return ANSWER if "https://tea.example.net" in prompt else SEARCH
        if ANSWER in prompt:
            return ANSWER
        call = "WebSearch(query='tea')"
        if "def WebSearch(" not in prompt:  # Claude Code loads it when it is asked for
            call = "ToolSearch(query='select:WebSearch', max_results=1)"
        return f"```tool_code\n{call}\n```"

    url = start(start_proxy, home)
    (home / "work").mkdir()
    upstream.default = model
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["WebSearch", "ToolSearch"]}}')
    ended = CLAUDE.run("What does tea cost?", url, home, home / "work")
    assert ANSWER in ended.stdout, f"{ended.stdout}\n{ended.stderr}"
    assert (home / "log").read_text() == "find tea\n"
