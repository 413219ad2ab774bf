"""Responses that are made in the background: queued, polled, cancelled; through the official SDK."""

from __future__ import annotations

import threading
import time
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import Reply, ScriptedUpstream


def finished(client: openai.OpenAI, response: Any) -> Any:
    """Polls as OpenAI's guide does; pytest ends what never ends."""
    while response.status in ("queued", "in_progress"):
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


def test_a_response_is_made_while_nobody_waits(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    may_answer = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        may_answer.wait()
        return LONDON

    upstream.reply(answer, "It rains.")
    queued = client.responses.create(
        model="m", input="Weather?", tools=[GET_WEATHER], background=True
    )
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    with pytest.raises(openai.BadRequestError, match="still in progress"):
        client.responses.create(model="m", input="And?", previous_response_id=queued.id)
    may_answer.set()
    response = finished(client, queued)
    assert (response.id, response.status) == (queued.id, "completed")
    [call] = response.output
    assert call.name == "get_weather"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    after = client.responses.create(model="m", input=[result], previous_response_id=response.id)
    assert after.output_text == "It rains."
    told_again = client.responses.retrieve(queued.id, stream=True)
    assert [event.type for event in told_again][-1] == "response.completed"


def test_one_that_fails_says_so(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.reply(Reply(status=400, body={"error": {"message": "too long"}}))
    response = finished(client, client.responses.create(model="m", input="Hi", background=True))
    assert (response.status, response.error.message) == ("failed", "too long")
    with pytest.raises(openai.BadRequestError, match="finished"):
        client.responses.retrieve(response.id, stream=True)


def test_one_that_is_cancelled_asks_no_more_of_the_upstream(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(chunks=["Hello", " there"], fault="silent", after=1))
    response = client.responses.create(model="m", input="Hi", background=True)
    while client.responses.retrieve(response.id).status == "queued":
        time.sleep(0.02)
    assert client.responses.cancel(response.id).status == "cancelled"
    assert upstream.exchanges[0].ended.wait(10)
    assert upstream.exchanges[0].aborted.is_set()
    assert client.responses.retrieve(response.id).status == "cancelled"
    assert client.responses.cancel(response.id).status == "cancelled"


def test_another_client_can_neither_see_nor_cancel_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.")
    proxy = start_proxy(client_keys="one,two")
    one, two = (
        openai.OpenAI(base_url=f"{proxy}/v1", api_key=key, max_retries=0) for key in ("one", "two")
    )
    response = one.responses.create(model="m", input="Hi", background=True)
    with pytest.raises(openai.NotFoundError):
        two.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        two.responses.cancel(response.id)
    assert finished(one, response).output_text == "Hello."


def test_in_the_background_means_kept(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    proxy = start_proxy(store="/dev/null/nowhere")
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="no store"):
        client.responses.create(model="m", input="Hi", background=True)
    assert upstream.requests == []
