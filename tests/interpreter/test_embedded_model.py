"""The code interpreter in front of the embedded model, which cannot write programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": "2+2?"}],
            "tools": [{"type": "code_interpreter"}],
        },
    ),
    "responses": (
        "responses",
        {"input": "2+2?", "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
    ),
    "messages": (
        "messages",
        {
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "2+2?"}],
            "tools": [{"type": "code_execution_20250825", "name": "code_execution"}],
        },
    ),
}


@pytest.mark.parametrize("front", REQUESTS)
def test_a_request_for_code_is_refused_with_a_remedy(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream, front: str
) -> None:
    """It was half a minute of nonsense."""
    url, _ = start_app(local_model=True)
    path, body = REQUESTS[front]
    status, _, answer = send(f"{url}/v1/{path}", {"model": "m", **body})
    assert status == 400
    assert "--base-url URL" in answer["error"]["message"]
    assert not upstream.requests


def test_the_embedded_model_answers_although_the_interpreter_is_on(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    url, _ = start_app(local_model=True, interpreter="on")
    upstream.reply("4")
    body = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "4")
