"""The scripted upstream and the WSGI server: what other tests rely on and cannot check."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.serving import serve

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


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_a_silent_reply_is_noticed(
    upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(Reply("Hello", chunks=1, fault="silent", after=2))
    response = post(upstream, {"stream": stream})
    exchange = upstream.exchanges[0]
    if stream:
        received = b""
        while b'"e"' not in received:
            received += response.read1()
    assert not exchange.aborted.is_set()
    assert not exchange.ended.is_set()
    response.close()
    assert exchange.ended.wait(30)
    assert (exchange.aborted.is_set(), exchange.sent) == (True, 2 if stream else 0)
    assert upstream.aborted.is_set()


def test_a_served_app_streams_and_sees_its_client_leave() -> None:
    """Pieces arrive as they are made, and the app sees that its client disconnects."""
    closed = threading.Event()

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            while True:
                yield b"piece"
        finally:
            closed.set()

    with serve(app) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.read(10) == b"piecepiece"
        response.close()
        connection.close()
        assert closed.wait(30)
