"""Open Responses' compliance suite: its requests, and what it looks at in the answers.

After src/lib/compliance-tests.ts and schema/components/schemas/ResponseResource.json of
github.com/openresponses/openresponses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import simple_websocket

from tests.support.responses_client import EVENT, as_published, ask, ask_stream, check_events, fetch
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]

REQUIRED = frozenset(
    """id object created_at completed_at status incomplete_details model previous_response_id instructions
    output error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty
    frequency_penalty top_logprobs temperature reasoning usage max_output_tokens max_tool_calls store
    background service_tier metadata safety_identifier prompt_cache_key""".split()
)
NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
IN_A_TOOL = frozenset({"type", "name", "description", "parameters", "strict"})

HEART = "data:image/png;base64,iVBORw0KGgo="
PICTURE = [
    {"type": "input_text", "text": "What is this?"},
    {"type": "input_image", "image_url": HEART},
]


def said(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


ROWS = [
    pytest.param([said("user", "Say hello.")], (), "message", id="basic text"),
    pytest.param([said("system", "Be a pirate."), said("user", "Hi.")], (), "message", id="system"),
    pytest.param([said("user", "Weather?")], (GET_WEATHER,), "function_call", id="tool calling"),
    pytest.param([said("user", PICTURE)], (), "message", id="image"),
    pytest.param(
        [said("user", "I am Ada."), said("assistant", "Hello."), said("user", "Who am I?")],
        (),
        "message",
        id="several turns",
    ),
    pytest.param(
        [
            said("assistant", "I look it up.") | {"phase": "commentary"},
            said("assistant", "It is four.") | {"phase": "final_answer"},
            said("user", "Repeat only the number."),
        ],
        (),
        "message",
        id="phases",
    ),
]
LAST = {"response.completed", "response.failed", "response.incomplete", "error"}


class Connection:
    """A WebSocket for one message after the other."""

    def __init__(self, socket: simple_websocket.Client) -> None:
        self._socket = socket

    def ask(self, body: Json) -> list[Json]:
        """The events of one answer, or an error alone."""
        self._socket.send(json.dumps({"type": "response.create", **body}))
        events: list[Json] = []
        while not events or events[-1]["type"] not in LAST:
            received = self._socket.receive(timeout=10)
            assert received is not None, events
            events.append(json.loads(received))
        for event in events:
            if "response" in event:
                EVENT.validate(as_published(event))
        return events


@contextmanager
def connected(proxy: str) -> Iterator[Connection]:
    address = f"{proxy.replace('http', 'ws')}/v1/responses"
    socket = simple_websocket.Client(address, headers={"authorization": "Bearer k"})
    try:
        yield Connection(socket)
    finally:
        socket.close()


@pytest.mark.parametrize(("given", "tools", "kind"), ROWS)
@pytest.mark.parametrize("transport", ["plain", "stream", "WebSocket"])
def test_the_compliance_suite_passes(
    proxy: str,
    upstream: ScriptedUpstream,
    given: list[Json],
    tools: tuple[Json, ...],
    kind: str,
    transport: str,
) -> None:
    upstream.reply(LONDON if tools else "Hello there, you.")
    body: Json = {"model": "m", "input": given}
    if tools:
        body["tools"] = [{**tool, "strict": None} for tool in tools]
    if transport == "plain":
        responses = [ask(proxy, body)]
    else:
        if transport == "stream":
            events = ask_stream(proxy, body)
        else:
            with connected(proxy) as connection:
                events = connection.ask(body)
        responses = [event["response"] for event in events if "response" in event]
        check_events(events)
    assert (responses[-1]["status"], responses[-1]["output"][0]["type"]) == ("completed", kind)
    for response in responses:
        assert response.keys() >= REQUIRED
        assert all(isinstance(response[name], int | float) for name in NUMBERS)
        assert all(tool.keys() >= IN_A_TOOL for tool in response["tools"])
    assert all(response["usage"] is None for response in responses[:-1])
    assert responses[-1]["usage"].keys() >= {"input_tokens", "output_tokens", "total_tokens"}


def test_an_unstored_response_is_continued_on_its_own_websocket_only(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("OK.", "Cobalt.", "OK again.")
    body: Json = {"model": "m", "store": False}
    with connected(proxy) as first:
        key = check_events(first.ask({**body, "input": "The word is cobalt."}))["id"]
        asked = {**body, "previous_response_id": key, "input": "What is the word?"}
        continued = check_events(first.ask(asked))
    assert "The word is cobalt." in json.dumps(upstream.requests[1]["messages"])
    with connected(proxy) as second:
        [failed] = second.ask({**asked, "previous_response_id": continued["id"]})
        assert (failed["type"], failed["error"]["code"]) == ("error", "previous_response_not_found")
        assert check_events(second.ask({**body, "input": "Anew."}))["status"] == "completed"


ORPHAN = [{"type": "function_call_output", "call_id": "call_of_nobody", "output": "4"}]


def test_a_failed_continuation_ends_the_conversation_of_its_websocket(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("OK.", "Anew.")
    body: Json = {"model": "m", "store": False}
    with connected(proxy) as socket:
        key = check_events(socket.ask({**body, "input": "The word is ember."}))["id"]
        continued = {**body, "previous_response_id": key}
        [refused] = socket.ask({**continued, "input": ORPHAN})
        assert "call_of_nobody" in refused["error"]["message"]
        [failed] = socket.ask({**continued, "input": "What is the word?"})
        assert failed["error"]["code"] == "previous_response_not_found"
        assert check_events(socket.ask({**body, "input": "Hi."}))["status"] == "completed"
    assert len(upstream.requests) == 2


def test_an_output_needs_its_call_if_the_response_before_it_is_named(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """A client that sends the whole conversation may have cut it: its model sees the output."""
    upstream.reply("OK.", "Four.")
    before = ask(proxy, {"model": "m", "input": "Hi."})["id"]
    continued = {"model": "m", "previous_response_id": before, "input": ORPHAN}
    status, data = fetch(f"{proxy}/v1/responses", continued)
    assert (status, json.loads(data)["error"]["param"]) == (400, "input")
    ask(proxy, {"model": "m", "input": [said("user", "Hi."), *ORPHAN]})
    assert "4" in str(upstream.requests[1]["messages"][-1])
