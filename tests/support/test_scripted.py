"""The scripted upstream: what other tests rely on and cannot check."""

from __future__ import annotations

import http.client
import json
from typing import Any

import openai
import pytest

from tests.support.scripted import Reply, ScriptedUpstream

USER: Any = [{"role": "user", "content": "What's the weather in London?"}]


def post(upstream: ScriptedUpstream, body: Any) -> http.client.HTTPResponse:
    """Send a POST; the response is unread."""
    connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse()


def test_an_unscripted_request_fails_loudly_and_is_not_asked_again() -> None:
    def broken(body: dict[str, Any]) -> str:
        return str(body["absent"])

    with ScriptedUpstream(broken) as upstream:
        client = openai.OpenAI(base_url=upstream.base_url, api_key="key")
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="ScriptedUpstream"):
                client.chat.completions.create(model="m", messages=USER)
        assert upstream.failures == [
            "ScriptedUpstream: the reply to request 1 raised KeyError('absent')",
            "ScriptedUpstream: no reply is queued for request 2",
        ]


@pytest.mark.parametrize("after", [0, 2, 5, 9])
def test_a_drop_resets_the_connection_after_the_given_number_of_deltas(
    upstream: ScriptedUpstream, after: int
) -> None:
    upstream.reply(Reply("Hello", chunks=1, fault="drop", after=after))
    response = post(upstream, {"stream": True})
    received = b""
    with pytest.raises(ConnectionResetError):
        while piece := response.read1():
            received += piece
    assert received.count(b'"content": ') - received.count(b'"content": ""') == min(after, 5)
    assert b'finish_reason": "stop' not in received
    assert not upstream.aborted.is_set()
