"""/v1/responses through the official SDK: create, stream, parse, and what is kept between requests."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from emulator.core.errors import BadRequest
from emulator.database import open_database
from emulator.fronts.responses.stored import StoredResponses
from tests.conftest import StartProxy
from tests.support.responses_client import fetch, read_stream
from tests.support.responses_tools import GET_WEATHER, LONDON, SHELL
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]

NOTHING = "resp_" + "0" * 24


def function(name: str, *arguments: str) -> Any:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "name": name, "parameters": parameters, "strict": True}


def dump(items: Any) -> list[Json]:
    return [item.to_dict() for item in items]


def told(upstream: ScriptedUpstream) -> list[Json]:
    return upstream.requests[-1]["messages"]


# Answers


class City(BaseModel):
    name: str
    people: int


def test_an_answer_is_parsed_into_the_clients_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.default = '{"name": "Oslo", "people": "700000"}'
    answer = client.responses.parse(model="m", input="Which city?", text_format=City)
    assert answer.output_parsed == City(name="Oslo", people=700_000)
    with client.responses.stream(model="m", input="Which city?", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == answer.output_parsed


def test_a_stream_shows_words_and_arguments_as_they_come(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(f"Let me see.\n{LONDON}", chunks=1)
    with client.responses.stream(model="m", input="Weather?", tools=[GET_WEATHER]) as stream:
        shown = [
            event.snapshot
            for event in stream
            if event.type
            in ("response.output_text.delta", "response.function_call_arguments.delta")
        ]
        final = stream.get_final_response()
    assert shown[-2:] == ["Let me see.", '{"location":"London"}']
    assert shown == sorted(shown[:-1], key=len) + shown[-1:]
    message, call = final.output
    assert (message.type, call.type) == ("message", "function_call")
    assert final.output_text == "Let me see."


def test_the_upstreams_refusal_keeps_its_status_in_a_stream_too(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(status=429), Reply(status=429), Reply(status=429))
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="m", input="Hi", stream=True)


def test_a_failure_in_a_stream_is_its_last_event(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("It rains cats.", chunks=3, fault="error_event", after=2))
    *_, last = client.responses.create(model="m", input="Hi", stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert "scripted failure mid-stream" in last.response.error.message
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(last.response.id)


def test_the_sdk_can_read_a_stream_with_a_late_failure(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """It came as the first event, and the SDK raised that it had expected ``response.created``."""
    upstream.reply(Reply(status=400, body={"error": {"message": "too long"}}, first_delay=0.5))
    url = start_proxy(ping_seconds=0.05)
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="Hi") as stream,
    ):
        events = list(stream)
    pings = len(events) - 2
    kinds = ["response.created", *["response.in_progress"] * pings, "response.failed"]
    assert [event.type for event in events] == kinds
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert "too long" in str(events[-1])


def test_a_failure_without_a_stream_is_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("It rains cats.", chunks=3, fault="error_event", after=2))
    with pytest.raises(openai.InternalServerError, match="scripted failure"):
        client.responses.create(model="m", input="Hi")


def test_a_bare_address_serves_responses_too(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("Hi.")
    assert fetch(f"{proxy}/responses", {"model": "m", "input": "Hi"})[0] == 200


def test_the_upstream_is_closed_when_the_client_disconnects(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("It rains cats.", chunks=3, fault="silent", after=2))
    stream = client.responses.create(model="m", input="Hi", stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    stream.close()
    assert upstream.exchanges[-1].aborted.wait(20)


# Conversations


def test_a_response_continues_a_previous_response(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("It rains.", reasoning="Look."), "In Oslo.", "Yes.")
    first = client.responses.create(model="m", instructions="Be brief.", input="Weather?")
    second = client.responses.create(
        model="m", previous_response_id=first.id, input=[{"role": "user", "content": "Where?"}]
    )
    third = client.responses.create(
        model="m", instructions="Shout.", previous_response_id=second.id, input="Sure?"
    )
    assert (second.previous_response_id, third.previous_response_id) == (first.id, second.id)
    assert told(upstream) == [
        {"role": "system", "content": "Shout."},  # instructions are not handed down
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": "Sure?"},
    ]


def test_a_conversation_may_branch_at_any_response(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("One.", "Two.", "Three.")
    first = client.responses.create(model="m", input="1?")
    client.responses.create(model="m", previous_response_id=first.id, input="2?")
    client.responses.create(model="m", previous_response_id=first.id, input="3?")
    assert [message["content"] for message in told(upstream)] == ["1?", "One.", "3?"]


PROGRAM = """```tool_code
flights = search(to="Paris")
best = min(flights, key=lambda flight: flight["price"])
book(flight=best["id"])
```"""


@pytest.mark.parametrize("way", ["previous response", "whole history", "references"])
def test_a_program_resumes_with_the_output_of_its_call_without_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream, way: str
) -> None:
    tools = [function("search", "to"), function("book", "flight")]
    upstream.reply(PROGRAM)
    asked: list[Any] = [{"role": "user", "content": "Book the cheapest flight to Paris."}]
    first = client.responses.create(model="m", input=asked, tools=tools)
    [search] = first.output
    assert search.type == "function_call" and search.name == "search"
    found = json.dumps([{"id": "A1", "price": 90}, {"id": "B2", "price": 70}])
    result = {"type": "function_call_output", "call_id": search.call_id, "output": found}
    further: dict[str, Any] = {
        "previous response": {"previous_response_id": first.id, "input": [result]},
        "whole history": {"input": [*asked, *dump(first.output), result]},
        "references": {
            "input": [*asked, {"type": "item_reference", "id": search.id}, result],
        },
    }[way]
    raw = client.responses.with_raw_response.create(model="m", tools=tools, **further)
    second = raw.parse()
    [book] = second.output
    assert book.type == "function_call"
    assert (book.name, json.loads(book.arguments)) == ("book", {"flight": "B2"})
    assert raw.headers["x-emulator-turns-saved"] == "1"
    assert len(upstream.requests) == 1

    upstream.reply("Booked.")
    booked = {"type": "function_call_output", "call_id": book.call_id, "output": "ok"}
    third = client.responses.create(
        model="m", tools=tools, previous_response_id=second.id, input=[booked]
    )
    assert third.output_text == "Booked."
    assert len(upstream.requests) == 2


def test_calls_interleaved_with_their_outputs_belong_to_one_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """A loop over the calls that appends each with its output had the program's results apart."""
    tools = [function("get_one"), function("get_two"), function("add", "a", "b")]
    upstream.reply("```tool_code\na = get_one()\nb = get_two()\nadd(a=str(a), b=str(b))\n```")
    items: list[Any] = [{"role": "user", "content": "Add them."}]
    for n, call in enumerate(client.responses.create(model="m", input=items, tools=tools).output):
        assert call.type == "function_call"
        items.append(call.to_dict())
        output = {"type": "function_call_output", "call_id": call.call_id, "output": str(n)}
        items.append(output)
    [add] = client.responses.create(model="m", input=items, tools=tools).output
    assert add.type == "function_call"
    assert json.loads(add.arguments) == {"a": "0", "b": "1"}
    assert len(upstream.requests) == 1


def test_a_custom_tools_output_reaches_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nshell('ls')\n```", "A file.")
    tools: Any = [SHELL]
    first = client.responses.create(model="m", input="What is here?", tools=tools)
    [call] = first.output
    assert call.type == "custom_tool_call" and call.input == "ls"
    output: Any = {
        "type": "custom_tool_call_output",
        "call_id": call.call_id,
        "output": [{"type": "input_text", "text": "notes.txt"}],
    }
    last = client.responses.create(
        model="m", previous_response_id=first.id, input=[output], tools=tools
    )
    assert last.output_text == "A file."
    assert "notes.txt" in told(upstream)[-1]["content"]


# What is kept


def test_a_response_is_found_again_until_it_is_deleted(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    *_, last = client.responses.create(model="m", input="Hello", stream=True)
    made = last.response
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    with client.responses.stream(response_id=made.id) as stream:
        assert stream.get_final_response().output_text == "Hi."
    client.responses.delete(made.id)
    item: Any = {"type": "item_reference", "id": made.output[0].id}
    for look in (
        lambda: client.responses.retrieve(made.id),
        lambda: client.responses.input_items.list(made.id),
        lambda: client.responses.delete(made.id),
        lambda: client.responses.create(model="m", input=[item]),
    ):
        with pytest.raises(openai.NotFoundError):
            look()
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input="And?", previous_response_id=made.id)
    assert (caught.value.code, caught.value.param) == (
        "previous_response_not_found",
        "previous_response_id",
    )


def test_deleting_a_response_removes_it_from_the_store(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    file = tmp_path / "kept.sqlite"
    url = start_proxy(database=str(file)) + "/v1/responses"
    upstream.reply(Reply("Hi.", reasoning="A greeting."))
    with openai.OpenAI(base_url=url.removesuffix("/responses"), api_key="k") as client:
        with client.responses.stream(model="m", input="Hello") as stream:
            made = stream.get_final_response()
        kinds = (
            "SELECT kind FROM documents WHERE kind IN ('response', 'item', 'stream') ORDER BY kind"
        )
        with closing(sqlite3.connect(file)) as connection:
            found = [kind for (kind,) in connection.execute(kinds)]
            assert found == ["item", "item", "response", "stream"]
            client.responses.delete(made.id)
            assert connection.execute(kinds).fetchall() == []


def test_a_response_that_was_not_streamed_has_no_events(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """As with OpenAI. Every delta was a row: a response took seven times its size."""
    upstream.reply("Hi.")
    made = client.responses.create(model="m", input="Hello")
    with pytest.raises(openai.NotFoundError, match="not stored"):
        client.responses.retrieve(made.id, stream=True)


def test_a_response_with_store_false_is_not_stored(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    made = client.responses.create(model="m", input="Hello", store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_input_items_are_listed_page_by_page(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    items: Any = [{"role": "user", "content": f"{n}"} for n in range(5)]
    items.append({"role": "assistant", "content": "I see."})
    items.append({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
    items.append({"type": "function_call_output", "call_id": "c", "output": "done"})
    made = client.responses.create(model="m", input=items)
    listed = [*client.responses.input_items.list(made.id, limit=3, order="asc")]
    types = ["message"] * 6 + ["function_call", "function_call_output"]
    assert [item.type for item in listed] == types
    ids = [item.id for item in listed]
    assert len(set(ids)) == 8
    assert [item.id for item in client.responses.input_items.list(made.id)] == ids[::-1]
    page = client.responses.input_items.list(made.id, after=ids[5], limit=1)
    assert ([item.id for item in page.data], page.has_more) == ([ids[4]], True)
    assert [item.to_dict() for item in listed[4:6]] == [
        {
            "id": ids[4],
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "4"}],
        },
        {
            "id": ids[5],
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "I see.", "annotations": [], "logprobs": []}
            ],
        },
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=10000000000000000000001", "limit"),
        ("limit=many", "limit"),
        ("order=up", "order"),
        ("after=msg_nowhere", "after"),
    ],
)
def test_an_invalid_page_is_refused(
    proxy: str, upstream: ScriptedUpstream, query: str, param: str
) -> None:
    upstream.reply("Hi.")
    made = json.loads(fetch(f"{proxy}/v1/responses", {"model": "m", "input": "Hi"})[1])
    status, data = fetch(f"{proxy}/v1/responses/{made['id']}/input_items?{query}")
    assert (status, json.loads(data)["error"]["param"]) == (400, param)


def test_only_background_responses_can_be_cancelled(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hi.")
    made = client.responses.create(model="m", input="Hello")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel(NOTHING)


def test_no_client_sees_another_clients_responses(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(client_keys="mine,yours") + "/v1/responses"
    upstream.reply("Hi.")
    made = json.loads(fetch(url, {"model": "m", "input": "Hello"}, key="mine")[1])
    reference = {"type": "item_reference", "id": made["output"][0]["id"]}
    theirs: list[tuple[str, Json | None, str | None]] = [
        (f"{url}/{made['id']}", None, "GET"),
        (f"{url}/{made['id']}?stream=true", None, "GET"),
        (f"{url}/{made['id']}/input_items", None, "GET"),
        (f"{url}/{made['id']}/cancel", None, "POST"),
        (f"{url}/{made['id']}", None, "DELETE"),
        (url, {"model": "m", "input": [reference]}, "POST"),
        (url, {"model": "m", "input": "?", "previous_response_id": made["id"]}, "POST"),
    ]
    statuses = [fetch(*one[:2], method=one[2], key="yours")[0] for one in theirs]
    assert statuses == [404, 404, 404, 404, 404, 404, 400]
    assert fetch(f"{url}/{made['id']}", key="mine")[0] == 200


def test_stored_responses_survive_a_restart(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    store = str(tmp_path / "kept.sqlite")
    upstream.reply("It rains.", "In Oslo.")
    before, after = (start_proxy(database=store) + "/v1/responses" for _ in range(2))
    events = read_stream(fetch(before, {"model": "m", "input": "Weather?", "stream": True})[1])
    made = events[-1]["response"]
    assert json.loads(fetch(f"{after}/{made['id']}")[1]) == made
    fetch(after, {"model": "m", "input": "Where?", "previous_response_id": made["id"]})
    assert [m["content"] for m in told(upstream)] == ["Weather?", "It rains.", "Where?"]


@pytest.mark.parametrize("programs", ["on", "off"])
def test_responses_are_stored_whether_or_not_programs_are(
    start_proxy: StartProxy, upstream: ScriptedUpstream, programs: str
) -> None:
    url = start_proxy(programs=programs) + "/v1/responses"
    upstream.reply("Hi.")
    made = json.loads(fetch(url, {"model": "m", "input": "Hello"})[1])
    assert fetch(f"{url}/{made['id']}")[0] == 200


def test_a_response_expires(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    url = start_proxy(response_seconds=1e-9) + "/v1/responses"
    upstream.reply("Hi.")
    made = json.loads(fetch(url, {"model": "m", "input": "Hello"})[1])
    assert fetch(f"{url}/{made['id']}")[0] == 404


def test_without_a_store_requests_are_answered_but_not_stored(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(database="none") + "/v1/responses"
    upstream.reply("Hi.")
    status, data = fetch(url, {"model": "m", "input": "Hello"})
    assert status == 200
    made = json.loads(data)
    assert made["store"] is False
    assert fetch(f"{url}/{made['id']}")[0] == 404
    status, data = fetch(url, {"model": "m", "input": "?", "previous_response_id": made["id"]})
    assert (status, json.loads(data)["error"]["code"]) == (400, "previous_response_not_found")


def test_a_response_too_large_to_store_is_answered_but_not_stored(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy() + "/v1/responses"
    upstream.reply("Hi.")
    status, data = fetch(url, {"model": "m", "input": "x" * (4 * 2**20)})
    assert (status, json.loads(data)["store"]) == (200, False)
    assert fetch(f"{url}/{json.loads(data)['id']}")[0] == 404


def test_a_store_that_fails_does_not_fail_new_answers(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    file = tmp_path / "kept.sqlite"
    url = start_proxy(database=str(file)) + "/v1/responses"
    upstream.reply("Hi.", "Hi again.", "Hi again.")
    made = json.loads(fetch(url, {"model": "m", "input": "Hello"})[1])
    assert made["store"] is True
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE documents")
    status, data = fetch(url, {"model": "m", "input": "Hello"})
    assert (status, json.loads(data)["store"]) == (200, False)
    streamed = fetch(url, {"model": "m", "input": "Hello", "stream": True})[1]
    last = streamed.rpartition(b"data: ")[2]
    assert json.loads(last)["response"]["store"] is False
    assert "not_stored" in json.loads(fetch(url.replace("/v1/responses", "/readyz"))[1])
    assert fetch(f"{url}/{made['id']}")[0] == 503
    further = {"model": "m", "input": "?", "previous_response_id": made["id"]}
    assert fetch(url, further)[0] == 503


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b'{"response": {}}'])
def test_a_stored_response_that_cannot_be_read_is_not_found(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path, value: bytes
) -> None:
    file = tmp_path / "kept.sqlite"
    url = start_proxy(database=str(file)) + "/v1/responses"
    upstream.reply("Hi.")
    made = json.loads(fetch(url, {"model": "m", "input": "Hello"})[1])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE documents SET value = ?", (value,))
    assert fetch(f"{url}/{made['id']}")[0] == 404


@pytest.mark.parametrize(
    ("limits", "readable"),
    [({"max_read": 3}, 3), ({"max_read_bytes": 2500}, 2), ({}, 9)],
    ids=["responses", "bytes", "none reached"],
)
def test_a_chain_of_previous_responses_is_read_up_to_a_limit(
    limits: dict[str, int], readable: int
) -> None:
    with closing(open_database(":memory:")) as database:
        kept = StoredResponses(database, 60, **limits)
        items = [{"type": "message", "id": f"msg_{n}", "padding": "x" * 900} for n in range(9)]
        for n, item in enumerate(items):
            previous = f"resp_{n - 1}" if n else None
            response = {"id": f"resp_{n}", "output": [item], "previous_response_id": previous}
            response |= {
                "status": "completed",
                "created_at": 0,
                "completed_at": 0,
                "background": False,
            }
            kept.save("", response, input_items=[])
        references = [{"type": "item_reference", "id": item["id"]} for item in items]
        for n in range(9):
            whole = items[: n + 1]
            # An item that is referred to twice is read once.
            again = [*references[: n + 1], references[0]]
            if n < readable:
                assert kept.history("", f"resp_{n}") == whole
                assert kept.resolved("", again) == [*whole, items[0]]
            else:
                with pytest.raises(BadRequest, match="is too long"):
                    kept.history("", f"resp_{n}")
                with pytest.raises(BadRequest, match="is too long"):
                    kept.resolved("", again)
