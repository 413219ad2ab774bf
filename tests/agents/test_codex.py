"""What only Codex does: it compacts through the proxy, and gives up on a stream without events."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agents import AGENTS, DOCUMENTED_URL, SECONDS, run_within
from tests.conftest import StartProxy
from tests.support.environments import node_programs
from tests.support.scripted import Reply, ScriptedUpstream

[CODEX] = (agent for agent in AGENTS if agent.title == "Codex CLI")
IDLE = {"stream_idle_timeout_ms": 3000, "stream_max_retries": 0, "request_max_retries": 0}
"""Of its provider."""

pytestmark = pytest.mark.skipif(not CODEX.environment.installed, reason="Codex is not installed")


def codex(
    home: Path, url: str, *arguments: str, name: str = "Tool Use API Emulator", **settings: Any
) -> subprocess.CompletedProcess[str]:
    """Run `codex exec` with the configuration of docs/agents.md, and with these settings of the provider."""
    [(path, text)] = CODEX.files.items()
    text = re.sub(r'(?m)^name = ".*"$', f'name = "{name}"', text.replace(DOCUMENTED_URL, url))
    more = "".join(f"{setting} = {value}\n" for setting, value in settings.items())
    (home / path).parent.mkdir(exist_ok=True)
    (home / path).write_text(text + more)
    (home / "work").mkdir(exist_ok=True)
    programs = [CODEX.environment.programs, node_programs(), "/usr/bin", "/bin"]
    command = ["codex", "exec", *arguments[:-1], "--skip-git-repo-check", arguments[-1]]
    environment = {"HOME": str(home), "PATH": os.pathsep.join(map(str, programs)), "TERM": "dumb"}
    ended = run_within(SECONDS, command, cwd=home / "work", env=environment)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended


def test_codex_continues_after_the_proxy_compacted_its_conversation(
    start_proxy: StartProxy, upstream: ScriptedUpstream, home: Path
) -> None:
    """It ended with "remote compaction v2 expected exactly one compaction output item, got 0"."""
    url = start_proxy()
    much = {"prompt_tokens": 900_000, "completion_tokens": 3, "total_tokens": 900_003}
    upstream.reply(Reply("Hello there.", usage=much), "They said hello.", "You said hello.")
    codex(home, url, "Say hello.", name="OpenAI")
    ended = codex(home, url, "resume", "--last", "What did I say?", name="OpenAI")
    assert "You said hello." in ended.stdout
    prompts = ["\n\n".join(one["content"] for one in r["messages"]) for r in upstream.requests]
    assert "Hello there." in prompts[1] and "Summarize" in prompts[1]
    assert "Hello there." not in prompts[2]
    assert prompts[2].endswith(
        "Say hello.\n\nSummary of the conversation so far:\n\nThey said hello.\n\nWhat did I say?"
    )


def test_codex_ends_its_task_over_two_compactions(
    start_proxy: StartProxy, upstream: ScriptedUpstream, home: Path
) -> None:
    url = start_proxy()
    much = {"prompt_tokens": 900_000, "completion_tokens": 3, "total_tokens": 900_003}
    call = "```tool_code\nexec_command(cmd='echo $((1200 + 34))')\n```"
    upstream.reply(Reply("Hello there.", usage=much), "First summary.")
    upstream.reply(call, Reply("It is 1234.", usage=much), "Second summary.", "It was 1234.")
    codex(home, url, "Say hello.", name="OpenAI")
    codex(home, url, "resume", "--last", "Add 1200 and 34.", name="OpenAI")
    ended = codex(home, url, "resume", "--last", "What was it?", name="OpenAI")
    assert "It was 1234." in ended.stdout
    prompts = ["\n\n".join(one["content"] for one in r["messages"]) for r in upstream.requests]
    assert "Summarize" in prompts[4] and "First summary." in prompts[4]
    assert "1234" in prompts[4] and "It is 1234." in prompts[4]
    assert "Second summary." in prompts[5] and "First summary." not in prompts[5]


CALL = ["```tool_code\n", "exec_command(cmd='echo $((1200 + 34))')", "\n```"]


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([Reply("It is 1234.", first_delay=6)], id="before the upstream answers"),
        pytest.param([Reply(chunks=["It is ", "1234."], delay=6)], id="between words"),
        pytest.param([Reply(chunks=CALL, delay=6), "It is 1234."], id="while a call is written"),
    ],
)
def test_codex_waits_for_a_slow_model(
    start_proxy: StartProxy, upstream: ScriptedUpstream, home: Path, replies: list[Any]
) -> None:
    """It ended with "idle timeout waiting for SSE", in spite of comments."""
    upstream.reply(*replies)
    ended = codex(home, start_proxy(ping_seconds=1), "Add 34 to 1200.", **IDLE)
    assert "It is 1234." in ended.stdout
    assert len(upstream.requests) == len(replies)
