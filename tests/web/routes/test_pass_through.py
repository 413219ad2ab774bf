"""Requests that only concern the upstream are passed through: by the official SDK, and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.other_endpoints import PIECES, SOUND, OtherEndpoints, other_endpoints
from tests.support.raw_http import fetch, send


@pytest.fixture
def other() -> Iterator[OtherEndpoints]:
    with other_endpoints() as server:
        yield server


@pytest.fixture
def passing(start_proxy: StartProxy, other: OtherEndpoints) -> str:
    return start_proxy(base_url=other.base_url)


@pytest.fixture
def sdk(passing: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{passing}/v1", api_key="client", max_retries=0) as client:
        yield client


def test_embeddings_come_from_the_upstream(sdk: openai.OpenAI, other: OtherEndpoints) -> None:
    answer = sdk.embeddings.create(model="e", input="Hi", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -1.0]
    [(method, path, headers, body)] = other.asked
    assert (method, path) == ("POST", "/v1/embeddings")
    assert headers["authorization"] == "Bearer upstream-key", "the client's key stays here"
    assert b'"input":"Hi"' in body.replace(b": ", b":")


def test_sounds_and_forms_are_passed_on_as_they_are(
    sdk: openai.OpenAI, other: OtherEndpoints
) -> None:
    assert sdk.audio.speech.create(model="t", voice="alloy", input="Hi").read() == SOUND
    file = BytesIO(SOUND)
    file.name = "a.mp3"
    assert sdk.audio.transcriptions.create(model="w", file=file).text == "hello"
    assert SOUND in other.asked[-1][3]


def test_a_stream_is_passed_on(sdk: openai.OpenAI) -> None:
    stream = sdk.completions.create(model="m", prompt="Count.", stream=True)
    assert [event.choices[0].text for event in stream] == [*PIECES]


def test_query_strings_and_rate_limit_headers_are_passed_on(
    passing: str, other: OtherEndpoints
) -> None:
    status, headers, _ = send(f"{passing}/v1/batches?limit=2&after=a%20b")
    assert (status, other.asked[0][1]) == (200, "/v1/batches?limit=2&after=a%20b")
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("path", "status", "said", "code"),
    [
        ("moderations", 404, "no such model", "y"),
        ("rerank", 404, "<h1>Not found</h1>", None),
        ("elsewhere", 502, "nothing (status 307)", "upstream_redirects"),
    ],
)
def test_a_refusal_says_which_upstream_was_asked(
    passing: str, other: OtherEndpoints, path: str, status: int, said: str, code: str | None
) -> None:
    answered, _, body = send(f"{passing}/v1/{path}", {"model": "m"})
    error = body["error"]
    assert (answered, error["code"]) == (status, code)
    assert error["message"] == f"The upstream {other.url}, asked for /{path}, says: {said}"


def test_an_unreachable_upstream_is_named(start_proxy: StartProxy) -> None:
    proxy = start_proxy(base_url="http://user:secret@127.0.0.1:1/v1")
    status, _, body = send(f"{proxy}/v1/embeddings", {})
    assert (status, body["error"]["code"]) == (502, "upstream_down")
    assert "http://127.0.0.1:1" in body["error"]["message"]
    assert "secret" not in body["error"]["message"]


SOON = {"retry-after-ms": "1"}


@pytest.mark.parametrize(
    ("body", "status", "headers", "times"),
    [
        (None, 500, SOON, 2),  # a GET changes nothing
        (None, 404, SOON, 1),
        ({}, 429, SOON, 2),
        ({}, 503, SOON, 2),
        ({}, 503, {}, 1),  # who knows what it has done
        ({}, 500, SOON, 1),
        ({}, 429, {"retry-after": "3600"}, 1),
    ],
)
def test_a_request_that_the_upstream_did_not_accept_is_sent_again(
    start_proxy: StartProxy,
    other: OtherEndpoints,
    body: Any,
    status: int,
    headers: dict[str, str],
    times: int,
) -> None:
    proxy = start_proxy(base_url=other.base_url, upstream_retries=2)
    other.refusals = [(status, headers)]
    answered, *_ = send(f"{proxy}/v1/batches", body)
    assert (answered, len(other.asked)) == (200 if times == 2 else status, times)


def test_the_breaker_pauses_a_failing_model_and_not_other_paths(
    start_proxy: StartProxy, other: OtherEndpoints
) -> None:
    proxy = start_proxy(base_url=other.base_url, upstream_retries=0, breaker_failures=2)
    other.refusals = [(503, {})] * 4
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    for path, body in (("chat/completions", chat), ("embeddings", {})) * 2:
        assert send(f"{proxy}/v1/{path}", body)[0] == 503
    for path, body in (("chat/completions", chat), ("embeddings", {})):
        status, _, answer = send(f"{proxy}/v1/{path}", body)
        assert (status, answer["error"]["code"]) == (503, "upstream_down")
    assert len(other.asked) == 4
    assert send(f"{proxy}/v1/batches", {})[0] == 200


@pytest.mark.parametrize(
    ("patterns", "path", "passed"),
    [
        ("embeddings,audio/*", "embeddings", True),
        ("embeddings,audio/*", "audio/speech", True),
        ("embeddings,audio/*", "batches", False),
        ((), "embeddings", False),
        ("*", "files/file-1/x", False),
        ("*", "../admin", False),
        ("*", "%2e%2e/admin", False),
        ("*", "embeddings/..", False),
        ("*", "a//b", False),
        ("*", "a%3Fb", False),
        ("*", "a%0d%0ab", False),
    ],
)
def test_the_setting_pass_through_names_the_forwarded_paths(
    start_proxy: StartProxy, other: OtherEndpoints, patterns: Any, path: str, passed: bool
) -> None:
    proxy = start_proxy(base_url=other.base_url, pass_through=patterns)
    status, *_ = fetch(f"{proxy}/v1/{path}", b"{}")  # urllib leaves dots in paths as they are
    assert (status == 200) == passed == bool(other.asked)
    assert passed or status in (400, 404)


def test_passed_through_requests_need_a_key(start_proxy: StartProxy, other: OtherEndpoints) -> None:
    proxy = start_proxy(base_url=other.base_url, client_keys="right")
    for key, expected in (("wrong", 401), ("right", 200)):
        headers = {"authorization": f"Bearer {key}"}
        status, _, _ = send(f"{proxy}/v1/embeddings", {"input": "Hi"}, headers)
        assert status == expected
    assert len(other.asked) == 1


def test_a_passed_through_body_over_the_limit_is_refused(
    start_proxy: StartProxy, other: OtherEndpoints
) -> None:
    proxy = start_proxy(base_url=other.base_url, max_body_bytes=1024)
    status, _, _ = send(f"{proxy}/v1/embeddings", {"input": "x" * 2000})
    assert (status, other.asked) == (413, [])
