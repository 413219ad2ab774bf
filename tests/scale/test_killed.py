"""A replica is killed (-9) during its work: how the other one continues."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any

import httpx2
import openai
import pytest

from emulator.database import LEASE_SECONDS
from tests.scale.replicas import (
    Replicas,
    ask_interrupted,
    chat_at,
)
from tests.support.processes import proxy, wait_until
from tests.support.programs import INTERPRETER, PRICE, results
from tests.support.scripted import Reply, ScriptedUpstream

SLOW = Reply(text="word " * 400, chunks=5, delay=0.1)
"""Long enough to be found in the middle of."""


def test_a_background_response_is_polled_and_cancelled_at_the_other_replica(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Quick.", SLOW)
    asked = {"model": "m", "input": "Hi", "background": True}
    quick = replicas.at(0, "/v1/responses", asked)["id"]
    wait_until(lambda: replicas.at(1, f"/v1/responses/{quick}")["status"] == "completed")
    slow = replicas.at(0, "/v1/responses", asked)["id"]
    wait_until(lambda: replicas.at(1, f"/v1/responses/{slow}")["status"] == "in_progress")
    assert replicas.at(1, f"/v1/responses/{slow}/cancel", {})["status"] == "cancelled"
    assert replicas.at(0, f"/v1/responses/{slow}")["status"] == "cancelled"


def test_a_background_response_of_a_killed_replica_has_failed(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """No replica continues it: the model would be asked twice. A client that polls sees that it failed."""
    upstream.reply(SLOW, "Quick.")
    asked = {"model": "m", "input": "Hi", "background": True}
    slow = replicas.at(0, "/v1/responses", asked)["id"]
    wait_until(lambda: replicas.at(1, f"/v1/responses/{slow}")["status"] == "in_progress")
    replicas.kill(0)
    wait_until(lambda: replicas.at(1, f"/v1/responses/{slow}")["status"] == "failed")
    assert LEASE_SECONDS < 60, "wait_until waits as long"
    assert "has ended" in replicas.at(1, f"/v1/responses/{slow}")["error"]["message"]
    again = replicas.ask("/v1/responses", asked)["id"]
    wait_until(lambda: replicas.ask(f"/v1/responses/{again}")["status"] == "completed")


def test_a_dead_replicas_answer_is_streamed_again_at_the_other(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """As for a client whose stream broke although the answer was complete."""
    upstream.reply("In the background.", "At once.")
    asked = {"model": "m", "input": "Hi"}
    made = replicas.at(0, "/v1/responses", {**asked, "background": True})["id"]
    wait_until(lambda: replicas.at(0, f"/v1/responses/{made}")["status"] == "completed")
    clients = [openai.OpenAI(base_url=f"{url}/v1", api_key="k") for url in replicas.urls]
    with clients[0].responses.create(model="m", input="Hi", stream=True) as stream:
        seen = [event.model_dump() for event in stream]
    replicas.kill(0)
    [streamed] = {event["response"]["id"] for event in seen if "response" in event}
    with clients[1].responses.retrieve(streamed, stream=True) as again:
        assert [event.model_dump() for event in again] == seen
    with clients[1].responses.retrieve(streamed, stream=True, starting_after=3) as again:
        assert [event.model_dump() for event in again] == seen[4:]
    with clients[1].responses.retrieve(made, stream=True) as again:
        *_, last = again
    assert last.type == "response.completed"
    assert last.response.output_text == "In the background."


@pytest.mark.parametrize("background", [False, True])
def test_a_client_repeats_a_request_whose_stream_broke_with_its_replica(
    replicas: Replicas, upstream: ScriptedUpstream, background: bool
) -> None:
    """No part of it is kept as a whole answer: the conversation is as it was before."""
    upstream.reply("One.", SLOW, "Two.")
    client = openai.OpenAI(base_url=f"{replicas.urls[0]}/v1", api_key="k", max_retries=0)
    talk = replicas.at(0, "/v1/conversations", {})["id"]
    replicas.at(0, "/v1/responses", {"model": "m", "input": "a", "conversation": talk})
    seen = []
    asked = {"model": "m", "input": "b", "conversation": talk, "background": background}
    with (
        suppress(openai.OpenAIError, httpx2.HTTPError),
        client.responses.create(**asked, stream=True) as stream,
    ):
        for event in stream:
            seen.append(event.type)
            if len(seen) == 8:
                replicas.kill(0)
    assert len(seen) >= 8
    assert "response.completed" not in seen
    replicas.ask("/v1/responses", {"model": "m", "input": "b", "conversation": talk})
    told = json.dumps(upstream.requests[-1]["messages"])
    assert told.count('"b"') == 1
    assert "word" not in told
    items = replicas.ask(f"/v1/conversations/{talk}/items")["data"]
    assert len(items) == 4


def test_a_resumed_cell_whose_replica_is_killed_is_not_run_twice(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """The cell had its results and ran: its effects stay, and the next request is an ordinary turn."""
    cell = (
        "```tool_code\nimport time\ntries = globals().get('tries', 0) + 1\n"
        "price = get_price(about='a')\nbought = True\nwhile True: time.sleep(0.1)\n```"
    )
    upstream.reply(cell, "I do not know.", "```tool_code\nprint(tries, bought)\n```", "Once.")
    messages: list[Any] = [{"role": "user", "content": "Buy."}]
    messages += results(chat_at(replicas, 1, messages, [INTERPRETER, PRICE]), "2")
    asked = {"model": "m", "messages": messages, "tools": [INTERPRETER, PRICE]}
    url = f"{replicas.urls[0]}/v1/chat/completions"
    broken = threading.Thread(target=ask_interrupted, args=(url, asked))
    broken.start()
    time.sleep(1.5)  # for the cell to be running; without it the test tries less
    replicas.kill(0)
    broken.join()
    answer = chat_at(replicas, 1, messages, [INTERPRETER, PRICE])
    assert answer["content"].startswith("I do not know.")
    assert len(upstream.requests) == 2
    [container] = replicas.at(1, "/v1/containers")["data"]
    ran = replicas.at(
        1, f"/v1/containers/{container['id']}/execute", {"code": "print(tries, bought)"}
    )
    assert (ran["stdout"], ran["notes"]) == ("1 True\n", [])


def test_a_waiting_cell_resumes_at_the_other_replica_when_its_own_is_killed(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """The first replica is in the middle of one cell and has another that waits: it is the second's now."""
    upstream.reply(
        "```tool_code\nprint('asking')\nprice = get_price(about='a')\nprint(6 * price)\n```",
        "Twelve.",
    )
    messages: list[Any] = [{"role": "user", "content": "How much?"}]
    priced = chat_at(replicas, 0, messages, [INTERPRETER, PRICE])
    busy = replicas.session("import time\nx = 41")
    broken = busy.run_interrupted("x += 1\nwhile True: time.sleep(0.1)")
    messages += results(priced, "2")
    going_on: list[Any] = []
    resumed = threading.Thread(
        target=lambda: going_on.append(chat_at(replicas, 1, messages, [INTERPRETER, PRICE]))
    )
    resumed.start()
    replicas.kill(0)
    resumed.join()
    broken.join()
    assert going_on[0]["content"].startswith("Twelve.")
    assert "12" in json.dumps(upstream.requests[-1]["messages"])
    assert busy.run("print(x)", at=1)["stdout"] == "42\n"


@pytest.mark.parametrize("store", ["folder", "bucket"])
def test_a_file_that_a_dead_replica_took_is_read_at_the_other(
    request: pytest.FixtureRequest, store: str, upstream: ScriptedUpstream
) -> None:
    database = request.getfixturevalue("postgres_server").database()
    tmp_path = request.getfixturevalue("tmp_path")
    files = str(tmp_path / "mounted") if store == "folder" else request.getfixturevalue("bucket")
    shared = ["--database", database, "--files-dir", files]
    content = b"1,2\n" * 100_000
    with (
        proxy(upstream.base_url, tmp_path / "one.log", *shared) as (first, one),
        proxy(upstream.base_url, tmp_path / "two.log", *shared) as (_, two),
    ):
        file = openai.OpenAI(base_url=f"{one}/v1", api_key="k").files.create(
            file=("a.csv", content), purpose="user_data"
        )
        first.kill()
        client = openai.OpenAI(base_url=f"{two}/v1", api_key="k")
        assert client.files.content(file.id).content == content
        container = client.containers.create(name="c", file_ids=[file.id])
        [copied] = client.containers.files.list(container.id)
        read = client.containers.files.content.retrieve(copied.id, container_id=container.id)
        assert read.content == content
        client.files.delete(file.id)
        assert list(client.files.list()) == []
