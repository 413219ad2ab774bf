"""`--log-bodies`: what the client sent, what the model was sent, and what it replied."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from emulator.core import logs
from tests.conftest import StartProxy
from tests.support.processes import wait_until
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, request_body
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
NATIVE = Reply(
    tool_calls=[{"name": "get_weather", "arguments": {"location": "Oslo"}}],
    finish_reason="tool_calls",
)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("info")
    yield stream
    monkeypatch.undo()
    logs.configure("warning")


def events(log: io.StringIO) -> list[dict[str, Any]]:
    wait_until(lambda: '"event": "request"' in log.getvalue())
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("inspector", ["on", "off"])
@pytest.mark.parametrize("tools", ["emulate", "native"])
def test_each_body_is_one_event_with_the_requests_id(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    log: io.StringIO,
    api: Any,
    stream: bool,
    inspector: str,
    tools: str,
) -> None:
    upstream.reply(NATIVE if tools == "native" else CALL)
    url = start_proxy(log_bodies=True, inspector=inspector, tools=tools)
    body = request_body(api, GET_WEATHER, stream=stream)
    status, headers, _ = fetch(f"{url}{PATHS[api]}", body)
    assert status == 200
    logged = events(log)
    by_name = {
        name: [one for one in logged if one["event"] == name]
        for name in ("request body", "prompt", "reply")
    }
    assert {name: len(found) for name, found in by_name.items()} == dict.fromkeys(by_name, 1)
    for [event] in by_name.values():
        assert event["request_id"] == headers["x-request-id"]
    [asked], [prompt], [reply] = by_name.values()
    assert "How is the weather?" in asked["body"]
    assert json.loads(prompt["body"])["messages"] == upstream.requests[0]["messages"]
    assert "get_weather" in reply["body"] and "Oslo" in reply["body"]


def test_each_turn_has_its_own_events_and_without_the_setting_there_are_none(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: io.StringIO
) -> None:
    upstream.reply('```tool_code\nget_weather(locaton="Oslo")\n```', CALL, CALL)
    body = request_body("chat", GET_WEATHER, stream=False)
    fetch(f"{start_proxy(log_bodies=True)}{PATHS['chat']}", body)
    turns = [(one["event"], one["turn"]) for one in events(log) if "turn" in one]
    assert turns == [("prompt", 1), ("reply", 1), ("prompt", 2), ("reply", 2)]
    size = len(log.getvalue())
    fetch(f"{start_proxy()}{PATHS['chat']}", body)
    wait_until(lambda: log.getvalue().count('"event": "request"') == 2)
    assert "How is the weather?" not in log.getvalue()[size:]
