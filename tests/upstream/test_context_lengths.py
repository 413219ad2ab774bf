"""The window of a model is known, as its server has loaded it, and agents are told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app import create_app
from emulator.cli.terminal.agents import AGENTS, AgentConnection
from emulator.settings.settings import Settings
from tests.support.processes import wait_until
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

CHAT = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}


def listed(owner: str, **fields: Any) -> dict[str, Any]:
    row = {"id": "small", "object": "model", "created": 1, "owned_by": owner, **fields}
    return {"/v1/models": {"object": "list", "data": [row]}}


OLLAMA = {**listed("library"), "/api/version": {"version": "0.20"}}
LOADED = {
    "models": [{"name": "small", "model": "small", "context_length": 4096}, {"name": 7}, None]
}
LM_STUDIO = listed("organization_owner", max_context_length=131_072) | {
    "/api/v0/models": {"data": [{"id": "small", "loaded_context_length": 8192}]}
}


def length_at(url: str) -> int | None:
    [row] = send(f"{url}/v1/models")[2]["data"]
    length: int | None = row.get("context_length")
    return length


@pytest.mark.parametrize(
    ("answers", "length"),
    [
        (LM_STUDIO, 8192),
        (listed("vllm", max_model_len=32_768), 32_768),
        ({**OLLAMA, "/api/ps": LOADED}, 4096),
        ({**OLLAMA, "/api/ps": {"models": "none"}}, None),
        ({**OLLAMA, "/api/ps": {"models": [{"name": "small", "context_length": "4k"}]}}, None),
    ],
    ids=["LM Studio", "vLLM", "Ollama", "nothing loaded", "nonsense"],
)
def test_the_context_that_counts_is_that_with_which_the_model_was_loaded(
    upstream: ScriptedUpstream, answers: dict[str, Any], length: int | None
) -> None:
    upstream.at_root = answers
    app = create_app(Settings(base_url=upstream.base_url, database=":memory:"))
    services = app.extensions["emulator"]
    try:
        services.reachability.check()
        with serve(app) as url:
            assert length_at(url) == length
    finally:
        services.close()


def test_ollama_is_asked_after_the_first_answer_which_loads_the_model(
    upstream: ScriptedUpstream,
) -> None:
    """It cuts longer prompts silently: the commonest reason why tools do not work."""
    upstream.at_root = dict(OLLAMA)
    app = create_app(Settings(base_url=upstream.base_url, database=":memory:"))
    services = app.extensions["emulator"]
    try:
        services.reachability.check()
        with serve(app) as url:
            assert length_at(url) is None
            upstream.at_root["/api/ps"] = LOADED
            upstream.reply("Hi.")
            assert send(f"{url}/v1/chat/completions", CHAT)[0] == 200
            wait_until(lambda: services.upstreams.routes.of("small").context_length == 4096)
            # Tools are deferred by what was known at the start, or a conversation would change its prompt.
            assert services.upstreams.routes.of("small").listed_length == 0
            assert length_at(url) == 4096
    finally:
        services.close()


KNOWN = AgentConnection("http://127.0.0.1:9", "m", "k", 16_384)
UNKNOWN = AgentConnection("http://127.0.0.1:9", "m", "k")


def told(agent: str, connection: AgentConnection, own: dict[str, str]) -> str:
    """The files and variables of an agent as one text."""
    one = AGENTS[agent]
    return json.dumps([one.files_for(connection), one.variables_for(connection, own)])


TOLD = {
    "codex": "model_context_window = 16384",
    # It compacts 13,000 tokens before the end of its window.
    "claude": '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "29336"',
    "opencode": '"limit": {"context": 16384, "output": 4096}',
    "copilot": '"COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "14336"',
    "vibe": "max_context_length = 16384",
    "qwen": '"contextWindowSize": 16384',
    "pi": '"contextWindow": 16384',
}


def test_every_agent_that_has_a_setting_is_told_the_window() -> None:
    assert AGENTS.keys() - TOLD.keys() == {"cline"}


@pytest.mark.parametrize("agent", TOLD)
def test_an_agent_is_told_the_window_if_it_is_known(agent: str) -> None:
    assert TOLD[agent] in told(agent, KNOWN, {}).replace('\\"', '"')
    unknown = told(agent, UNKNOWN, {}).lower()
    assert [word for word in ("window", "context", "max_") if word in unknown] == []
    for connection in (KNOWN, UNKNOWN):
        for path, text in AGENTS[agent].files_for(connection).items():
            assert "your-" not in text
            if path.endswith(".json"):
                json.loads(text)


@pytest.mark.parametrize("agent", ["claude", "copilot"])
def test_a_window_that_the_user_has_set_stays(agent: str) -> None:
    """CLAUDE_CODE_AUTO_COMPACT_WINDOW was dropped."""
    window = dict.fromkeys(AGENTS[agent].window, "9000")
    own = {**window, "ANTHROPIC_BASE_URL": "http://elsewhere", "COPILOT_MODEL": "another"}
    for connection in (KNOWN, UNKNOWN):
        variables = AGENTS[agent].variables_for(connection, own)
        assert variables == AGENTS[agent].variables_for(UNKNOWN, {}) | window


@pytest.mark.parametrize("window", [2048, 4096, 8192, 15_000, 16_000, 16_384, 131_072, 1_000_000])
def test_claude_code_compacts_before_a_prompt_and_its_answer_exceed_the_window(
    window: int,
) -> None:
    """In windows of less than 16,000 tokens its prompts exceeded them first."""
    variables = AGENTS["claude"].variables_for(replace(KNOWN, window=window), {})
    own = int(variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"])
    answer = int(variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
    threshold = own - answer - 13_000
    assert threshold > 0
    assert threshold + answer <= window
    # It warns of less than 100,000 at each start.
    compacts_at = str(own) if own >= 100_000 else None
    assert variables.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW") == compacts_at
