"""Retries, the circuit breaker and the limit of requests at once, by their own clocks and through HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from emulator.core.errors import UpstreamFailed
from emulator.upstream.breaker import Breaker
from emulator.upstream.retries import Retries
from tests.conftest import StartProxy
from tests.support.other_endpoints import PIECES, OtherEndpoints, other_endpoints
from tests.support.raw_http import fetch, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def failed(status: int, **headers: str) -> UpstreamFailed:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return UpstreamFailed("no", status=status, headers=named)


@pytest.mark.parametrize(
    ("attempt", "error", "low", "high"),
    [
        (0, failed(503), 0.25, 0.5),
        (1, failed(500), 0.5, 1.0),
        (9, failed(429), 4.0, 8.0),
        (0, failed(429, retry_after="3"), 3.0, 3.3),
        (0, failed(429, retry_after_ms="500", retry_after="9"), 0.5, 0.55),
        (0, failed(503, retry_after="Thu, 01 Jan 1970 00:01:45 GMT"), 5.0, 5.5),
        (0, failed(503, retry_after="Thu, 01 Jan 1970 00:00:01 GMT"), 0.25, 0.5),
        (0, failed(503, retry_after="soon"), 0.25, 0.5),
        (0, failed(400, x_should_retry="true"), 0.25, 0.5),
    ],
)
def test_a_retry_follows_the_upstreams_advice_or_waits_longer_each_time(
    attempt: int, error: UpstreamFailed, low: float, high: float
) -> None:
    pauses = [
        Retries(10, now=lambda: 100.0, chance=lambda: chance).pause(attempt, error)  # noqa: B023
        for chance in (0.0, 1.0)
    ]
    assert sorted(round(pause or 0, 6) for pause in pauses) == [low, high]


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (2, failed(503)),
        (0, failed(400)),
        (0, failed(401)),
        (0, failed(508)),
        (0, failed(503, x_should_retry="false")),
        (0, failed(429, retry_after="3600")),
        (0, failed(429, retry_after="inf")),
    ],
)
def test_an_error_that_is_permanent_or_must_wait_long_is_not_retried(
    attempt: int, error: UpstreamFailed
) -> None:
    assert Retries(2).pause(attempt, error) is None


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_request_try() -> None:
    clock = [0.0]
    breaker = Breaker(2, 5, now=lambda: clock[0])

    def open_now() -> bool:
        try:
            breaker.check()
        except UpstreamFailed as error:
            refusals.append((error.status, error.code, error.headers["retry-after"]))
            return True
        return False

    refusals: list[tuple[int, str | None, str]] = []
    breaker.failed(failed(503))
    breaker.failed(failed(429))  # an answer: the upstream is there
    breaker.failed(failed(502))
    assert not open_now()
    breaker.failed(failed(504))
    assert open_now()
    clock[0] = 4.9
    assert open_now()
    clock[0] = 5.0
    assert not open_now(), "one request tries"
    assert open_now(), "the others are refused until its outcome is known"
    breaker.failed(failed(503))
    clock[0] = 9.9
    assert open_now()
    clock[0] = 10.0
    assert not open_now()
    breaker.succeeded()
    assert not open_now()
    assert refusals[0] == (503, "upstream_down", "5")
    assert refusals[1] == (503, "upstream_down", "1")


def test_requests_to_an_upstream_that_is_down_are_paused(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstream_retries=0, breaker_failures=2)
    upstream.reply(Reply(status=503), Reply(status=502))
    for status in (503, 502):
        assert send(f"{proxy}/v1/chat/completions", HELLO)[0] == status
    status, headers, answer = send(f"{proxy}/v1/chat/completions", HELLO)
    assert (status, answer["error"]["code"]) == (503, "upstream_down")
    assert f"({upstream.base_url}/chat/completions)" in answer["error"]["message"]
    assert 1 <= int(headers["retry-after"]) <= 5
    assert len(upstream.requests) == 2


def test_a_request_is_sent_again_after_retry_after(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstream_retries=2)
    upstream.reply(Reply(status=429, headers={"retry-after-ms": "10"}), Reply(status=503), "Hi.")
    assert send(f"{proxy}/v1/chat/completions", HELLO)[0] == 200
    assert len(upstream.requests) == 3


def test_retries_end_at_the_answers_deadline(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The advised half minute exceeds the five seconds of the answer, so the client gets the error now."""
    proxy = start_proxy(upstream_retries=2, answer_seconds=5)
    upstream.reply(Reply(status=429, headers={"retry-after": "30"}))
    status, headers, _ = send(f"{proxy}/v1/chat/completions", HELLO)
    assert (status, headers["retry-after"]) == (429, "30")
    assert len(upstream.requests) == 1


def test_an_upstream_gets_no_more_concurrent_requests_than_its_limit(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstream_requests=1)
    first_is_in, may_reply = threading.Event(), threading.Event()
    together: list[int] = []
    inside = [0]

    def reply(_: dict[str, Any]) -> str:
        inside[0] += 1
        together.append(inside[0])
        first_is_in.set()
        may_reply.wait(60)
        inside[0] -= 1
        return "Hi."

    upstream.default = reply
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(send(f"{proxy}/v1/chat/completions", HELLO)[0])
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert first_is_in.wait(60)
    may_reply.set()
    for thread in threads:
        thread.join()
    assert (statuses, together) == ([200, 200, 200], [1, 1, 1])


@pytest.mark.parametrize("tools", ["emulate", "native"])
def test_waiting_for_a_full_upstream_ends_at_the_answers_deadline(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: str
) -> None:
    """A reply that is still being read holds its slot."""
    proxy = start_proxy(upstream_requests=1, answer_seconds=1, tools=tools)
    upstream.reply("first", fault="silent", after=1)
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    messages: Any = HELLO["messages"]
    offered: Any = [GET_WEATHER]
    with client.chat.completions.create(model="m", messages=messages, tools=offered, stream=True):
        status, _, answer = send(f"{proxy}/v1/chat/completions", HELLO)
    assert (status, answer["error"]["code"]) == (503, "overloaded")


@pytest.fixture
def other() -> Iterator[OtherEndpoints]:
    with other_endpoints() as server:
        yield server
        server.may_end.set()


EMBED = {"model": "e", "input": "Hi"}


def test_a_passed_on_request_holds_its_slot_until_its_body_is_read(
    start_proxy: StartProxy, other: OtherEndpoints
) -> None:
    proxy = start_proxy(base_url=other.base_url, upstream_requests=1, answer_seconds=1)
    other.may_end.clear()
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0) as client:
        stream = client.completions.create(model="m", prompt="Count.", stream=True)
        assert next(stream).choices[0].text == PIECES[0]
        status, _, answer = send(f"{proxy}/v1/embeddings", EMBED)
        assert (status, answer["error"]["code"]) == (503, "overloaded")
        other.may_end.set()
        assert [event.choices[0].text for event in stream] == [*PIECES[1:]]
    assert send(f"{proxy}/v1/embeddings", EMBED)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "refusals"),
    [("HEAD", "embeddings", []), ("POST", "embeddings", [(400, {})]), ("POST", "a?b/..", [])],
)
def test_a_response_that_is_not_read_or_refused_releases_its_slot(
    start_proxy: StartProxy, other: OtherEndpoints, method: str, path: str, refusals: Any
) -> None:
    proxy = start_proxy(base_url=other.base_url, upstream_requests=1, answer_seconds=1)
    other.refusals = refusals
    fetch(f"{proxy}/v1/{path}", method=method)
    assert send(f"{proxy}/v1/embeddings", EMBED)[0] == 200


def test_the_breaker_of_a_model_leaves_other_models_alone(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstream_retries=0, breaker_failures=1)
    upstream.reply(Reply(status=503), "Hello.")
    statuses = [
        send(f"{proxy}/v1/chat/completions", {**HELLO, "model": model})[0]
        for model in ("down", "down", "up")
    ]
    assert statuses == [503, 503, 200]
    assert len(upstream.requests) == 2


def test_the_breaker_of_a_clients_key_leaves_other_keys_alone(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstream_retries=0, breaker_failures=1, pass_client_key=True)
    upstream.reply(Reply(status=503), "Hello.")
    statuses = [
        send(f"{proxy}/v1/chat/completions", HELLO, {"authorization": f"Bearer {key}"})[0]
        for key in ("key-of-one", "key-of-one", "key-of-another")
    ]
    assert statuses == [503, 503, 200]
