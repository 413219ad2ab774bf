"""The embedded model can neither write programs nor see pictures: such requests are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

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


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
def test_an_image_is_refused_with_what_to_do(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream, tools: list[Any]
) -> None:
    """It was a 500 that named an address which the user does not know, and that clients tried again."""
    url, _ = start_app(local_model=True)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    content = [{"type": "text", "text": "What is this?"}, image]
    body = {"model": "m", "messages": [{"role": "user", "content": content}], "tools": tools}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    assert status == 400
    assert "reads text only" in answer["error"]["message"]
    assert "--base-url URL" in answer["error"]["message"]
    assert not upstream.requests
