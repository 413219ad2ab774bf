"""Claude Code 2.1.197 as it comes: the last request of a session that wrote a file and ran it, its long texts
cut (tests/data/claude_code.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

BODY: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "claude_code.json").read_text()
)
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219"}


def test_claude_code_gets_the_next_call(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(
        "Once more.\n```tool_code\nprint(Bash(command='ls -l', description='list'))\n```"
    )
    body = {**BODY, "stream": False}
    status, _, message = send(f"{proxy}/v1/messages?beta=true", body, HEADERS)
    assert (status, message["stop_reason"]) == (200, "tool_use")
    [text, call] = message["content"]
    assert (text["text"].strip(), call["name"]) == ("Once more.", "Bash")
    assert call["input"] == {"command": "ls -l", "description": "list"}
    assert upstream.requests[0].keys() <= {
        *("model", "messages", "stream", "stream_options", "max_tokens", "reasoning_effort"),
    }


def test_the_prompt_contains_claude_codes_history_but_not_its_account(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("It printed: hello from claude code")
    send(f"{proxy}/v1/messages?beta=true", {**BODY, "stream": False}, HEADERS)
    sent = upstream.requests[0]["messages"]
    said = json.dumps(sent)
    assert "billing-header" not in said
    assert "device_id" not in said
    assert "hello from claude code" in sent[-1]["content"]
    # A system message of the conversation's stays where it was.
    [agents] = [n for n, one in enumerate(sent) if "- claude: Catch-all" in one["content"]]
    assert 0 < agents < len(sent) - 1


def test_the_prompt_is_no_larger_than_the_tools(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("Hello.", "Hello.")
    first = {**BODY, "stream": False, "messages": BODY["messages"][:1]}
    send(f"{proxy}/v1/messages", first, HEADERS)
    send(f"{proxy}/v1/messages", {**first, "tools": []}, HEADERS)
    with_tools, without = (sum(len(m["content"]) for m in r["messages"]) for r in upstream.requests)
    assert with_tools - without <= len(json.dumps(BODY["tools"]))
