"""/v1/conversations and responses made in them, through the official SDK."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import openai
import pytest

from emulator.core.errors import BadRequest
from emulator.database import Leases, open_database
from emulator.fronts.responses.conversations import open_conversations
from tests.conftest import StartProxy
from tests.support.raw_http import fetch, send
from tests.support.responses_tools import GET_WEATHER, LONDON
from tests.support.scripted import Reply, ScriptedUpstream

ADA: Any = {"type": "message", "role": "user", "content": "I am Ada."}


def texts(upstream: ScriptedUpstream) -> list[str]:
    return [message["content"] for message in upstream.requests[-1]["messages"]]


def test_a_conversation_is_made_changed_and_deleted(client: openai.OpenAI) -> None:
    made = client.conversations.create(items=[ADA], metadata={"a": "b"})
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"a": "c"}).metadata == {"a": "c"}
    added = client.conversations.items.create(made.id, items=[{**ADA, "content": "Hi."}])
    listed = client.conversations.items.list(made.id, order="asc").data
    assert [item.content[0].text for item in listed] == ["I am Ada.", "Hi."]  # type: ignore[union-attr]
    assert client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id).id
    client.conversations.items.delete(added.data[0].id, conversation_id=made.id)
    assert len(client.conversations.items.list(made.id).data) == 1
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


@pytest.mark.parametrize("options", [{}, {"store": False}, {"stream": True}])
def test_a_response_continues_its_conversation_and_adds_its_turn(
    client: openai.OpenAI, upstream: ScriptedUpstream, options: Any
) -> None:
    made = client.conversations.create(items=[ADA])
    upstream.reply("Hello.", "You are Ada.")
    for question in ("Hi.", "Who am I?"):
        answer: Any = client.responses.create(
            model="m", input=question, conversation=made.id, **options
        )
        if options.get("stream"):
            *_, last = answer
            answer = last.response
        assert answer.conversation.id == made.id
    assert "\n".join(texts(upstream)).splitlines()[-1] == "Who am I?"
    assert "Hello." in texts(upstream)
    assert len(client.conversations.items.list(made.id).data) == 5


def test_a_conversation_keeps_calls_and_their_results(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    made = client.conversations.create()
    upstream.reply(LONDON, "It rains.")
    ask: Any = {"model": "m", "tools": [GET_WEATHER], "conversation": {"id": made.id}}
    [call] = client.responses.create(input="Weather?", **ask).output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}  # type: ignore[union-attr]
    assert client.responses.create(input=[result], **ask).output_text == "It rains."
    assert "get_weather(location='London')" in "".join(texts(upstream)).replace('"', "'")


def test_a_failed_turn_adds_nothing(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    made = client.conversations.create(items=[ADA])
    upstream.reply(Reply(status=400))
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="m", input="Hi.", conversation=made.id)
    assert len(client.conversations.items.list(made.id).data) == 1


def test_invalid_uses_of_a_conversation_are_refused(start_proxy: StartProxy) -> None:
    proxy = start_proxy(client_keys="one,two")
    one, two = (
        openai.OpenAI(base_url=f"{proxy}/v1", api_key=key, max_retries=0) for key in ("one", "two")
    )
    made = one.conversations.create()
    with pytest.raises(openai.NotFoundError):
        two.conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        two.responses.create(model="m", input="Hi.", conversation=made.id)
    with pytest.raises(openai.BadRequestError, match="not both"):
        one.responses.create(
            model="m", input="Hi.", conversation=made.id, previous_response_id="resp_1"
        )
    with pytest.raises(openai.BadRequestError, match="too large"):
        one.conversations.items.create(made.id, items=[{**ADA, "content": "x" * 5_000_000}])
    with pytest.raises(openai.BadRequestError, match="items"):
        one.conversations.create(items=[{"type": "nonsense"}])  # type: ignore[list-item]


GARBAGE: list[bytes] = [
    b"", b"\x00\xff", b"null", b"7", b"[]", b"{}", b'"x"', b"[[[", b"NaN", b"{" * 3000,
    b'{"id": "conv_0", "created_at": 0, "metadata": {}, "items": [{}]}',
    b'{"id": "conv_0", "created_at": 0, "metadata": {}, "items": [{"id": 1, "type": "message"}]}',
    b'{"begun": {}, "response": {"output": [{}], "previous_response_id": null}, "input": [], "rows": []}',
]  # fmt: skip


def mutations(value: Any) -> Iterator[Any]:
    """``value`` with one part replaced or missing."""
    yield from (None, 7, "x", [], {}, [{}], {"id": 1})
    if isinstance(value, list):
        yield from (
            [*value[:n], new, *value[n + 1 :]] for n, v in enumerate(value) for new in mutations(v)
        )
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield {key: other for key, other in value.items() if key != name}
            yield from ({**value, name: new} for new in mutations(inner))


def test_garbage_in_the_store_is_not_found_and_never_a_failure_of_the_proxy(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Another program may write to the database."""
    path = tmp_path / "garbage.sqlite"
    url = f"{start_proxy(database=str(path))}/v1"
    upstream.default = "Hello."
    made = send(f"{url}/conversations", {"items": [ADA]})[2]
    item = send(f"{url}/conversations/{made['id']}/items")[2]["data"][0]["id"]
    answer = send(f"{url}/responses", {"model": "m", "input": "Hi"})[2]
    reference = {"type": "item_reference", "id": answer["output"][0]["id"]}
    one, other = f"{url}/conversations/{made['id']}", f"{url}/responses/{answer['id']}"
    asked: list[tuple[str, Any]] = [
        (one, None), (f"{one}/items", None), (f"{one}/items/{item}", None), (one, {"metadata": {"a": "b"}}),
        (f"{one}/items", {"items": [ADA]}), (other, None), (f"{other}/input_items", None),
        (f"{other}?stream=true", None), (f"{other}/cancel", {}),
        *((f"{url}/responses", {"model": "m", "input": "Hi", **more}) for more in (
            {"conversation": made["id"]}, {"previous_response_id": answer["id"]}, {"input": [reference]})),
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as store:
        kept = store.execute("SELECT rowid, kind, value FROM documents").fetchall()
        broken = [dict.fromkeys((key for key, *_ in kept), garbage) for garbage in GARBAGE]
        broken += [
            {key: json.dumps(new).encode()}
            for key, kind, value in kept
            if kind in ("conversation", "response", "item")
            for new in random.Random(28).choices([*mutations(json.loads(value))], k=40)
        ]
        for values in broken:
            for address, body in asked:
                change = "UPDATE documents SET value = ? WHERE rowid = ?"
                store.executemany(change, [(value, key) for key, _, value in kept])
                store.executemany(change, [(value, key) for key, value in values.items()])
                store.commit()
                status, _, text = fetch(address, body)
                assert status in (200, 400, 404, 503), (address, body, values, text)
                assert b"The proxy failed" not in text, (address, body, values, text)


def test_one_response_at_a_time_works_on_a_conversation(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """Both succeeded, and each knew nothing of the other's turn. OpenAI answers the second with this code."""
    made = client.conversations.create(items=[ADA])
    asked, refused = Event(), Event()

    def slow(_: Any) -> str:
        asked.set()
        assert refused.wait(40)
        return "Hello."

    def ask() -> Any:
        return client.responses.create(model="m", input="Hi.", conversation=made.id)

    upstream.reply(slow, "Hello again.")
    with ThreadPoolExecutor(1) as other:
        first = other.submit(ask)
        assert asked.wait(20)
        with pytest.raises(openai.BadRequestError) as error:
            ask()
        refused.set()
        assert first.result().output_text == "Hello."
    assert (error.value.code, error.value.param) == ("conversation_locked", "conversation")
    assert ask().output_text == "Hello again."
    assert len(client.conversations.items.list(made.id).data) == 5


def test_a_turn_after_another_history_of_the_same_length_is_refused(tmp_path: Path) -> None:
    """While a request waited, one item was deleted and another added: only the number was compared."""
    one, other = ({"id": key, "type": "message"} for key in ("msg_1", "msg_2"))
    with closing(open_database(str(tmp_path / "store.sqlite"))) as database:
        conversations = open_conversations(database, Leases(database), 60)
        made = conversations.create("ann", [one], {})
        with conversations.turn("ann", made.id, made.items):
            pass
        conversations.remove("ann", made.id, "msg_1")
        conversations.add("ann", made.id, [other])
        turn = conversations.turn("ann", made.id, made.items)
        with pytest.raises(BadRequest, match="Another request"), turn:
            pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("first", "again", "turns"),
    [
        ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}, 1),
        ({"Idempotency-Key": "a"}, {"Idempotency-Key": "a"}, 1),
        ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "0"}, 2),
        ({}, {}, 2),
    ],
)
def test_a_repeated_response_adds_its_turn_to_the_conversation_once(
    proxy: str, upstream: ScriptedUpstream, first: Any, again: Any, turns: int, stream: bool
) -> None:
    """The client did not get the first answer: it sends the same request again."""
    _, _, made = send(f"{proxy}/v1/conversations", {})
    body = {"model": "m", "input": "Yes.", "conversation": made["id"], "stream": stream}
    upstream.reply(*[f"Done {n}." for n in range(turns)])
    answers = [fetch(f"{proxy}/v1/responses", body, headers) for headers in (first, again)]
    assert [status for status, _, _ in answers] == [200, 200]
    assert (answers[0][2] == answers[1][2]) == (turns == 1)
    _, _, listed = send(f"{proxy}/v1/conversations/{made['id']}/items")
    assert len(listed["data"]) == 2 * turns
    assert len(upstream.requests) == turns
