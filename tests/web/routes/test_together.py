"""Events that arrive together are sent together; a single event is sent immediately."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import connect, post_bytes, read_until
from tests.support.scripted import DONE, OK, Reply, ScriptedUpstream, delta, sse

GO_ON = threading.Semaphore(0)
WORDS = delta("One ") + delta("two ") + delta("three")
THOUGHT = sse({"id": "x", "choices": [{"index": 0, "delta": {"reasoning_content": "two "}}]})
DIFFERENT = delta("One ") + THOUGHT + delta("three")
REPLIES: dict[str, tuple[bytes | None, ...]] = {
    "words": (OK + WORDS, None, delta(finish="stop") + DONE),
    "different": (OK + DIFFERENT, None, delta(finish="stop") + DONE),
    "then garbage": (OK + WORDS + b"data: {oh\n\n", None),
    "then a failure": (OK + WORDS + sse({"error": {"message": "it broke"}}), None),
    "alone": (OK + delta("One "), None, delta("two "), None, delta("three"), None, DONE),
}
"""Pieces, each written at once; None is to wait until the client has read what came."""


def written(pieces: Sequence[bytes | None]) -> Iterator[bytes]:
    for piece in pieces:
        if piece is None:
            GO_ON.acquire(timeout=30)
        else:
            yield piece


@pytest.fixture
def base_url() -> Iterator[str]:
    with ScriptedUpstream(
        default=lambda body: Reply(raw=written(REPLIES[body["model"]]))
    ) as upstream:
        yield upstream.base_url


def ask(proxy: str, model: str) -> socket.socket:
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": model, "stream": True, "messages": messages}
    return connect(proxy, post_bytes("/v1/chat/completions", body, {"connection": "close"}))


@pytest.mark.parametrize(("model", "events"), [("words", 1), ("different", 3)])
def test_what_arrived_together_is_sent_together_immediately_and_words_as_one_event(
    start_proxy: StartProxy, base_url: str, model: str, events: int
) -> None:
    with ask(start_proxy(base_url=base_url), model) as connection:
        data = read_until(connection, b"three")
        assert data.count(b"data: ") == events
        assert b"\r\n" not in data[data.index(b"One") : data.index(b"three")], "one chunk"
        GO_ON.release()
        read_until(connection, b"[DONE]")


def test_an_event_is_sent_before_the_next_one_arrives(
    start_proxy: StartProxy, base_url: str
) -> None:
    with ask(start_proxy(base_url=base_url, upstream_retries=0), "alone") as connection:
        for words in (b"One", b"two", b"three"):
            data = read_until(connection, words)
            assert data.count(b"data: ") == 1
            GO_ON.release()
        read_until(connection, b"[DONE]")


@pytest.mark.parametrize("model", ["then garbage", "then a failure"])
def test_events_before_an_error_are_sent_before_it(
    start_proxy: StartProxy, base_url: str, model: str
) -> None:
    with ask(start_proxy(base_url=base_url, upstream_retries=0), model) as connection:
        data = read_until(connection, b"upstream_error")
        GO_ON.release()
    assert [words in data for words in (b"One", b"two", b"three")] == [True] * 3
    assert data.index(b"three") < data.index(b"upstream_error")
