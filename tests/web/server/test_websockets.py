"""Responses over a WebSocket, at a real server: the events of HTTP, one JSON object a message."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import simple_websocket
from openai.resources.responses.responses import ResponsesConnection

from tests.support.processes import Process, members, proxy, wait_until
from tests.support.raw_http import connect, read_page, read_until, send
from tests.support.responses_client import check_events
from tests.support.responses_tools import GET_WEATHER
from tests.support.scripted import Reply, ScriptedUpstream

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
LAST = ("response.completed", "response.failed", "response.incomplete", "error")
Open = Callable[..., simple_websocket.Client]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ScriptedUpstream, Process, str]]:
    log = tmp_path_factory.mktemp("websockets") / "log"
    options = ("--database", ":memory:", "--max-body-bytes", "100000", "--ping-seconds", "0.5")
    with ScriptedUpstream() as upstream, proxy(upstream.base_url, log, *options) as (process, url):
        yield upstream, process, url


@pytest.fixture
def scripted(server: tuple[ScriptedUpstream, Process, str]) -> ScriptedUpstream:
    server[0].exchanges.clear()
    server[0].default = None
    return server[0]


@pytest.fixture
def opened(server: tuple[ScriptedUpstream, Process, str]) -> Iterator[Open]:
    with ExitStack() as stack:

        def connected(url: str = server[2], **headers: str) -> simple_websocket.Client:
            address = f"{url.replace('http', 'ws')}/v1/responses"
            client = simple_websocket.Client(address, headers=headers)
            stack.callback(_close, client)
            return client

        yield connected


def _close(client: simple_websocket.Client) -> None:
    if client.connected:
        client.close()


def ask(
    client: simple_websocket.Client, *, until: Collection[str] = LAST, **fields: Any
) -> list[dict[str, Any]]:
    """The events of one answer, to its last or an error."""
    client.send(json.dumps({"type": "response.create", "model": "m", **fields}))
    return receive_until(client, until)


def receive_until(client: simple_websocket.Client, last: Collection[str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in last:
        received = client.receive(timeout=10)
        assert received is not None, events
        events.append(json.loads(received))
    return events


def test_the_events_are_those_of_http_and_a_connection_answers_many_times(
    opened: Open, scripted: ScriptedUpstream
) -> None:
    scripted.reply(CALL, "Mild.")
    client = opened()
    events = ask(client, input="Oslo?", tools=[GET_WEATHER], store=False)
    first = check_events(events)
    [call] = first["output"]
    assert call["name"] == "get_weather"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
    # A response that is not stored can be continued on its own connection.
    events = ask(
        client, input=[result], tools=[GET_WEATHER], store=False, previous_response_id=first["id"]
    )
    second = check_events(events)
    assert second["output"][0]["content"][0]["text"] == "Mild."
    said = scripted.requests[1]["messages"]
    assert "Oslo?" in str(said) and "4" in said[-1]["content"]


def test_a_stored_response_is_continued_anywhere(
    opened: Open, scripted: ScriptedUpstream, server: tuple[ScriptedUpstream, Process, str]
) -> None:
    scripted.reply("I am Ada.", "Ada.", "Ada again.")
    first = check_events(ask(opened(), input="Who are you?"))
    second = check_events(ask(opened(), input="Again?", previous_response_id=first["id"]))
    body = {"model": "m", "input": "And?", "previous_response_id": second["id"]}
    assert send(f"{server[2]}/v1/responses", body)[0] == 200
    assert [m["content"] for m in scripted.requests[2]["messages"]] == [
        *("Who are you?", "I am Ada.", "Again?", "Ada.", "And?")
    ]


def test_a_conversation_is_prepared_without_an_answer(
    opened: Open, scripted: ScriptedUpstream
) -> None:
    scripted.reply("Yes.")
    client = opened()
    prepared = ask(client, input="Hello.", generate=False)
    assert [event["type"] for event in prepared] == ["response.created", "response.completed"]
    assert scripted.requests == []
    key = prepared[-1]["response"]["id"]
    check_events(ask(client, input="There?", previous_response_id=key))
    assert [m["content"] for m in scripted.requests[0]["messages"]] == ["Hello.", "There?"]


def test_stored_and_unstored_responses_continue_each_other(
    opened: Open, scripted: ScriptedUpstream
) -> None:
    scripted.reply("1.", "2.", "3.", "4.", "5.")
    client = opened()
    key = None
    for n, store in enumerate((True, False, False, True, False)):
        events = ask(client, input=f"{n}?", store=store, previous_response_id=key)
        key = check_events(events)["id"]
    said = [m["content"] for m in scripted.requests[-1]["messages"]]
    assert said == ["0?", "1.", "1?", "2.", "2?", "3.", "3?", "4.", "4?"]


WRONG: dict[str, tuple[Any, int, str]] = {
    "no JSON": ("{", 400, "not valid JSON"),
    "no object": ("[1]", 400, "must be a JSON object"),
    "no words": ('{"type": "response.steer", "previous_response_id": "resp_x"}', 400, "input"),
    "another type": ('{"type": "response.cancel"}', 400, "response.create"),
    "no model": ('{"type": "response.create", "input": "Hi"}', 400, "model"),
    "another's response": (
        '{"type": "response.create", "model": "m", "input": "x", "previous_response_id": "resp_x"}',
        *(400, "resp_x"),
    ),
    "a wrong tool": (
        '{"type": "response.create", "model": "m", "input": "x", "tools": [{}]}',
        400,
        "tools",
    ),
}


@pytest.fixture
def connected(server: tuple[ScriptedUpstream, Process, str]) -> Iterator[ResponsesConnection]:
    client = openai.OpenAI(base_url=f"{server[2]}/v1", api_key="k", max_retries=0)
    with client, client.responses.connect() as connection:
        yield connection


def receive_lanes(connection: ResponsesConnection, number: int) -> dict[str, list[Any]]:
    """The events by lane until ``number`` answers have ended, the lane without a name under ""."""
    lanes: dict[str, list[Any]] = {}
    while sum(events[-1].type in LAST for events in lanes.values()) < number:
        event = connection.recv()
        lanes.setdefault(event.stream_id or "", []).append(event)
    return lanes


def test_lanes_answer_at_the_same_time_and_their_events_have_their_name(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    """Lanes were answered one after the other, their events had no `stream_id`, and it reached the server."""
    scripted.default = Reply(chunks=["word ", "x"], fault="silent", after=1)
    for name in ("a", "b", "\u00e9 " * 32):
        connected.response.create(model="m", input=f"{name}?", stream_id=name)
    connected.response.create(model="m", input="None?")
    begun: dict[str, str] = {}
    while len(begun) < 4:
        event = connected.recv()
        if event.type == "response.output_text.delta":
            begun[event.stream_id or ""] = event.delta
    assert begun.keys() == {"a", "b", "\u00e9 " * 32, ""}
    assert all("stream_id" not in request for request in scripted.requests)


def test_creates_of_a_lane_are_answered_in_order(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    scripted.reply(*(Reply(f"{n}.", chunks=1, delay=0.02) for n in range(6)))
    for n in range(6):
        connected.response.create(model="m", input=f"{n}?", stream_id="a")
    events = [connected.recv()]
    while sum(event.type == "response.completed" for event in events) < 6:
        events.append(connected.recv())
    assert {event.stream_id for event in events} == {"a"}
    responses = [event.response for event in events if event.type == "response.completed"]
    assert [response.output_text for response in responses] == [f"{n}." for n in range(6)]
    ids = [event.response.id for event in events if event.type == "response.created"]
    assert ids == [response.id for response in responses]


def test_a_lane_continues_what_another_lane_has_not_stored(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    scripted.reply("Ada.")
    connected.response.create(model="m", input="Who?", stream_id="a", store=False)
    key = receive_lanes(connected, 1)["a"][-1].response.id
    scripted.default = "Again."
    for name in ("a", "b", "c"):
        fields: Any = {"previous_response_id": key, "stream_id": name, "store": False}
        connected.response.create(model="m", input=f"{name}?", **fields)
    assert receive_lanes(connected, 3).keys() == {"a", "b", "c"}
    said = [[m["content"] for m in r["messages"]] for r in scripted.requests[1:]]
    assert sorted(said) == [["Who?", "Ada.", f"{name}?"] for name in ("a", "b", "c")]


def test_steering_fails_immediately_and_returns_the_words(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    """The error came after the answer had ended, without the words."""
    scripted.reply(Reply(chunks=["word ", "x"], fault="silent", after=1))
    connected.response.create(model="m", input="Hi", stream_id="a")
    while (event := connected.recv()).type != "response.created":
        pass
    words = "Be brief."
    for target, lane in ((event.response.id, "a"), ("resp_x", None)):
        connected.response.steer(input=words, previous_response_id=target)
        while (failed := connected.recv()).type != "response.steer.failed":
            assert failed.type != "response.completed"
        assert (failed.error.code, failed.stream_id) == ("steering_not_supported", lane)
        assert failed.steer.to_dict() == {"input": words, "previous_response_id": target}


def test_ten_thousand_lanes_are_eight_and_errors_with_their_names(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    scripted.default = Reply(chunks=["word ", "x"], fault="silent", after=1)

    def create_many() -> None:
        for n in range(10_000):
            connected.response.create(model="m", input="Hi", stream_id=f"lane {n}")

    refused: set[str | None] = set()
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(create_many)
        while len(refused) < 9_992:
            event: Any = connected.recv()
            if event.type == "error":
                assert (event.status, event.error.code) == (429, "too_many_lanes")
                refused.add(event.stream_id)
        sent.result()
    assert refused == {f"lane {n}" for n in range(8, 10_000)}
    assert len(scripted.requests) <= 8


def test_a_lane_that_has_ended_leaves_its_place_to_the_next_one(
    connected: ResponsesConnection, scripted: ScriptedUpstream
) -> None:
    scripted.default = "Hi."
    for n in range(40):
        for lane in range(8):
            connected.response.create(model="m", input="Hi", stream_id=f"{n}.{lane}")
        kinds = {events[-1].type for events in receive_lanes(connected, 8).values()}
        assert kinds == {"response.completed"}


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\u202e", 7, ["a"]])
def test_a_name_of_a_lane_has_printable_characters(opened: Open, name: object) -> None:
    [event] = ask(opened(), input="Hi", stream_id=name)
    assert (event["status"], event["error"]["param"]) == (400, "stream_id")
    assert "stream_id" not in event


def test_an_invalid_message_is_an_error_and_the_connection_stays_open(
    opened: Open, scripted: ScriptedUpstream
) -> None:
    client = opened()
    for message, status, words in WRONG.values():
        client.send(message)
        event = json.loads(client.receive(timeout=10))
        assert (event["type"], event["status"]) == ("error", status)
        assert words in event["error"]["message"]
    scripted.reply(Reply(status=400), "Fine.")
    assert ask(client, input="Hi")[-1]["status"] == 400
    assert check_events(ask(client, input="Hi"))["output"]


def test_a_silent_upstream_is_pinged_with_events(opened: Open, scripted: ScriptedUpstream) -> None:
    scripted.reply(Reply("Hello there.", chunks=6, delay=1.5))
    kinds = [event["type"] for event in ask(opened(), input="Hi")]
    assert kinds.count("response.in_progress") > 1
    assert kinds[-1] == "response.completed"


@pytest.mark.parametrize("leaves", ["by the protocol", "without a word"])
def test_a_closed_connection_ends_its_work_within_a_second(
    opened: Open,
    scripted: ScriptedUpstream,
    server: tuple[ScriptedUpstream, Process, str],
    leaves: str,
) -> None:
    scripted.reply(Reply(chunks=["word ", "x"], fault="silent", after=1))
    client = opened()
    client.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
    while "word" not in str(client.receive(timeout=10)):
        pass
    if leaves == "by the protocol":
        client.close()
    else:
        client.sock.shutdown(socket.SHUT_RDWR)
    assert scripted.exchanges[-1].ended.wait(2)
    wait_until(lambda: "emulator_open_requests 0.0" in read_page(f"{server[2]}/metrics"))


def test_connections_that_vanish_disturb_no_new_ones(
    scripted: ScriptedUpstream, server: tuple[ScriptedUpstream, Process, str]
) -> None:
    """The thread that reads closed the socket, and the next connection got its descriptor: the worker's loop
    took both for one, and ended with all its streams."""
    scripted.default = Reply(chunks=["word ", "x"], fault="silent", after=1)
    address = f"{server[2].replace('http', 'ws')}/v1/responses"
    before = server[1].output

    def vanish_often(number: int) -> None:
        for n in range(40):
            client = simple_websocket.Client(address)
            if n % 2:
                client.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
                while "word" not in str(client.receive(timeout=30)):
                    pass
            if number % 2:
                client.close()
            else:
                client.sock.shutdown(socket.SHUT_RDWR)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(vanish_often, range(4)))
    wait_until(lambda: "emulator_open_requests 0.0" in read_page(f"{server[2]}/metrics"))
    log = server[1].output.removeprefix(before)
    assert '"level": "error"' not in log
    assert '"status": 499' not in log


def test_a_message_that_is_too_big_and_a_flood_close_the_connection(
    opened: Open, scripted: ScriptedUpstream
) -> None:
    client = opened()
    client.send("x" * 200_000)
    with pytest.raises(simple_websocket.ConnectionClosed):
        client.receive(timeout=10)
    assert client.close_reason == 1009
    scripted.default = Reply(chunks=["word ", "x"], fault="silent", after=1)
    client = opened()
    with pytest.raises((simple_websocket.ConnectionClosed, OSError)):
        while True:
            client.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
            client.receive(timeout=0)


def test_keys_limits_and_origins_are_checked_as_over_http(
    upstream: ScriptedUpstream, opened: Open, tmp_path: Path
) -> None:
    upstream.reply("One.", "Two.", Reply(chunks=["word ", "x"], delay=2))
    options = (
        "--database",
        ":memory:",
        "--client-keys",
        "ann",
        "--client-requests-per-minute",
        "4",
    )
    options += ("--client-open-requests", "1")
    with proxy(upstream.base_url, tmp_path / "log", *options) as (process, url):
        status, _, _ = send(f"{url}/v1/models")
        assert status == 401
        client = opened(url, authorization="Bearer ann")
        assert ask(client, input="Hi")[-1]["type"] == "response.completed"
        assert ask(client, input="Hi")[-1]["type"] == "response.completed"
        ask(client, input="Hi", stream_id="a", until=("response.output_text.delta",))
        refused = [ask(client, input="Hi", stream_id="b")[-1]]
        receive_until(client, LAST)
        refused.append(ask(client, input="Hi", stream_id="c")[-1])
        assert [(one["type"], one["status"], one["stream_id"]) for one in refused] == [
            ("error", 429, "b"),
            ("error", 429, "c"),
        ]
        codes = [one["error"]["code"] for one in refused]
        assert codes == ["too_many_open_requests", "rate_limit_exceeded"]
        client.close()
        assert "request failed" not in process.output


def handshake(url: str, awaited: bytes, *lines: str) -> None:
    """Send a handshake with these fields; client libraries make none that is wrong."""
    fields = ("Host: localhost", "Connection: Upgrade", "Upgrade: websocket", *lines)
    head = "\r\n".join(["GET /v1/responses HTTP/1.1", *fields, "", ""])
    with connect(url, head.encode()) as connection:
        assert awaited in read_until(connection, awaited)


def test_an_invalid_handshake_and_a_page_of_another_origin_are_refused(
    server: tuple[ScriptedUpstream, Process, str],
) -> None:
    version, key = "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    handshake(server[2], b"handshake is not valid", version)
    handshake(server[2], b"origin_not_allowed", version, key, "Origin: https://x.example")
    handshake(server[2], b" 101 ", version, key)
    assert send(f"{server[2]}/v1/responses")[0] == 405


def test_a_connection_has_two_threads(
    opened: Open, scripted: ScriptedUpstream, server: tuple[ScriptedUpstream, Process, str]
) -> None:
    def threads() -> int:
        return sum(len([*Path(f"/proc/{pid}/task").iterdir()]) for pid in members(server[1].group))

    scripted.default = "Hi."
    warm = [opened() for _ in range(5)]
    for client in warm:
        ask(client, input="Hi")
    before = threads()
    more = [opened() for _ in range(5)]
    for client in more:
        ask(client, input="Hi")
    assert threads() - before <= 2 * len(more)
