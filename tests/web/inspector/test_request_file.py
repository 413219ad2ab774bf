"""A request as a file for an issue: what it has, and that no key is in it, wherever one was planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.inspected import HELLO, Inspected
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

KEY = 'key-"of"-the-upstream\\1'
CALL = '```tool_code\nget_weather(location="Oslo")\n```'


def exported(proxy: Inspected, key: str) -> tuple[Any, str]:
    status, headers, text = proxy.get(f"/inspector/requests/{key}/file")
    assert (status, headers["content-disposition"]) == (200, f'attachment; filename="{key}.json"')
    return json.loads(text), text


def test_the_file_has_prompts_replies_calls_and_notes(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply("```tool_code\nget_wether(location='Oslo')\n```", CALL)
    values, _ = exported(proxy, proxy.ask())
    assert [note["kind"] for note in values["notes"]] == ["unknown-name"]
    assert values["calls"][0]["arguments"] == {"location": "Oslo"}
    assert [turn["verdict"] for turn in values["turns"]] == ["invalid", "answered"]
    assert values["turns"][1]["reply"] == CALL
    assert "Weather in Oslo?" in values["turns"][0]["messages"][-1]["text"]
    assert "def get_weather" in values["functions"]


PLANTED: dict[str, dict[str, Any]] = {
    "a field that nobody knows": {"body": {"their_key": KEY}},
    "a message": {"body": {"messages": [{"role": "user", "content": f"My key is {KEY}."}]}},
    "JSON in a message": {
        "body": {"messages": [{"role": "user", "content": json.dumps({"key": KEY})}]}
    },
    "a query": {"path": "/v1/chat/completions?api_key=sk-0123456789abcdef0123"},
    "a header": {"headers": {"x-their-key": "sk-0123456789abcdef0123"}},
    "an authorization of MCP": {
        "body": {
            "tools": [
                GET_WEATHER,
                {
                    "type": "mcp",
                    "server_label": "s",
                    "server_url": "https://ann:secret-of-ann@example.org/mcp",
                    "authorization": "sk-0123456789abcdef0123",
                },
            ]
        }
    },
    "an error of the upstream": {
        "reply": Reply(status=400, body={"error": {"message": f"wrong key {KEY}"}})
    },
    "an error of the upstream, as JSON": {"reply": Reply(status=400, body=json.dumps({"no": KEY}))},
    "a reply": {"reply": f"The key is {KEY} or {json.dumps(KEY)}."},
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_no_key_is_in_the_file(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream, planted: dict[str, Any]
) -> None:
    proxy = inspect(api_key=KEY, upstream_retries=0)
    upstream.reply(planted.get("reply", "Hello."))
    body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER], **planted.get("body", {})}
    path = planted.get("path", "/v1/chat/completions")
    _, headers, _ = proxy.post(path, body, **planted.get("headers", {}))
    _, text = exported(proxy, headers["x-request-id"])
    for key in (KEY, json.dumps(KEY)[1:-1], json.dumps(KEY, ensure_ascii=False)[1:-1]):
        assert key not in text and json.dumps(key)[1:-1] not in text
    assert "sk-0123456789" not in text and "secret-of-ann" not in text
