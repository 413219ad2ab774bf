"""Responses that are made in the background: queued, polled, cancelled; through the official SDK."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from emulator.fronts.responses import stored
from tests.conftest import StartProxy
from tests.support.processes import wait_until
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import DONE, Reply, ScriptedUpstream, delta


def finished(client: openai.OpenAI, response: Any) -> Any:
    """Polls as OpenAI's guide does; pytest ends what never ends."""
    while response.status in ("queued", "in_progress"):
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


def test_a_background_response_is_made_without_a_waiting_client(
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


def test_a_failed_background_response_has_its_error(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(status=400, body={"error": {"message": "too long"}}))
    response = finished(client, client.responses.create(model="m", input="Hi", background=True))
    assert (response.status, response.error.message) == ("failed", "too long")
    with pytest.raises(openai.BadRequestError, match="finished"):
        client.responses.retrieve(response.id, stream=True)


def test_cancelling_a_background_response_closes_the_upstream(
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


def test_another_client_can_neither_see_nor_cancel_a_background_response(
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


def test_a_background_response_needs_a_database(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(database="none")
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="stores none"):
        client.responses.create(model="m", input="Hi", background=True)
    assert upstream.requests == []


SILENT = Reply(chunks=["Hello", " there"], fault="silent", after=1)


def two_replicas(start_app: Callable[..., tuple[str, Any]]) -> list[tuple[openai.OpenAI, Any]]:
    started = [start_app() for _ in range(2)]
    return [
        (openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0), services)
        for url, services in started
    ]


def test_a_response_cancelled_at_another_replica_stays_cancelled_everywhere(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    """The cancel answered "cancelled", the next GET "in_progress"."""
    upstream.reply(SILENT)
    (one, _), (other, _) = two_replicas(start_app)
    made = one.responses.create(model="m", input="Hi", background=True)
    wait_until(lambda: other.responses.retrieve(made.id).status == "in_progress")
    assert other.responses.cancel(made.id).status == "cancelled"
    for client in (other, one):
        assert client.responses.retrieve(made.id).status == "cancelled"
    assert upstream.exchanges[0].ended.wait(30), "its process stops the work when it notices"
    for client in (other, one):
        assert client.responses.retrieve(made.id).status == "cancelled"


def test_a_background_response_fails_when_its_process_dies(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    """It stayed in progress for an hour."""
    upstream.reply(SILENT)
    (one, _), (other, services) = two_replicas(start_app)
    made = one.responses.create(model="m", input="Hi", background=True)
    wait_until(lambda: other.responses.retrieve(made.id).status == "in_progress")
    services.stores.database.run("DELETE FROM leases")  # as nobody renews them
    failed = other.responses.retrieve(made.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "has ended" in failed.error.message
    assert other.responses.cancel(made.id).status == "failed"
    assert other.responses.retrieve(made.id).status == "failed"


@pytest.mark.parametrize(
    ("letters", "status"), [(2_000, "completed"), (30_000, "failed")], ids=["events", "text"]
)
def test_a_background_response_too_large_to_store_does_not_stay_in_progress(
    client: openai.OpenAI,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    letters: int,
    status: str,
) -> None:
    """140,000 deltas of one character were. Only the stream cannot be resumed, if the text fits."""
    monkeypatch.setattr(stored, "MAX_VALUE_BYTES", 25_000)
    # Each with an id of its own: pieces of one frame that arrive together become one delta.
    apart = [delta("x").replace(b'"x"', b'"x%d"' % n, 1) for n in range(2_000)]
    apart += [delta(finish="stop"), DONE]
    upstream.reply(Reply(frames=apart) if letters == 2_000 else Reply("x" * letters, chunks=1))
    made = client.responses.create(model="m", input="Hi", background=True)
    wait_until(lambda: client.responses.retrieve(made.id).status not in ("queued", "in_progress"))
    found = client.responses.retrieve(made.id)
    assert found.status == status
    if status == "completed":
        assert len(found.output_text) == letters
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id, stream=True)
    else:
        assert found.error is not None
        assert "too large" in found.error.message


def test_a_background_request_too_large_to_store_is_refused(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    with pytest.raises(openai.InternalServerError, match="cannot be stored"):
        client.responses.create(model="m", input="x" * (4 * 2**20), background=True)
    assert upstream.requests == []
