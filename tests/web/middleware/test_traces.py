"""Traces: the same for every front, limited in size, and only of requests with a valid key."""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import openai
import pytest

from emulator.core.events import ToolCall
from emulator.core.protocol import ChatCompletionRequest
from emulator.database import DatabaseFailed, open_database
from emulator.traces import Archive, Trace, Traces, current, record_sent, timeline
from emulator.traces.summary import TraceSummary
from emulator.traces.trace import MAX_SENT_BYTES
from emulator.traces.transfer import dump_trace
from tests.support.inspected import stored
from tests.support.processes import wait_until
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
HELLO: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
Started = tuple[openai.OpenAI, "queue.Queue[Trace]", Archive]
Start = Callable[..., Started]


@pytest.fixture
def start(start_app: Callable[..., tuple[str, Any]]) -> Iterator[Start]:
    """`start(**settings)` returns a client, the traces as they finish, and the reader of the stored ones.

    A request finishes when its response was sent, which its client may see a moment earlier.
    """
    with ExitStack() as running:

        def start(**settings: Any) -> Started:
            url, services = start_app(**settings)
            finished: queue.Queue[Trace] = queue.Queue()
            services.requests.traces.on_finish(finished.put)
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="client-key", max_retries=0)
            return running.enter_context(client), finished, services.requests.reader

        yield start


def ended(finished: queue.Queue[Trace], count: int = 1) -> list[Trace]:
    return [finished.get(timeout=60) for _ in range(count)]


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER], **fields}
    return client.chat.completions.create(**body)


def test_a_trace_explains_a_call(start: Start, upstream: ScriptedUpstream) -> None:
    client, finished, _ = start()
    upstream.reply(Reply(CALL, reasoning="Hm.", chunks=3))
    ask(client)
    [trace] = ended(finished)
    [turn] = trace.turns
    assert (trace.model, trace.mode, trace.state, trace.status) == ("m", "emulated", "called", 200)
    assert "".join(turn.reply) == CALL
    assert "".join(turn.reasoning) == "Hm."
    assert [(block.dialect, block.source, block.statements) for block in turn.blocks] == [
        ("python", CALL, ((1, 'get_weather(location="Oslo")'),))
    ]
    [call] = trace.calls
    assert (call.name, call.arguments) == ("get_weather", {"location": "Oslo"})
    assert turn.lines == {call.id: 1}
    assert (turn.program, turn.verdict) == ('get_weather(location="Oslo")', "answered")
    assert "def get_weather" in trace.stubs()
    assert "def get_weather" in str(turn.messages)
    assert b"get_weather" in trace.body
    assert any(b"Hm." in data for _, data in turn.wire.events)


def test_a_trace_has_the_time_of_a_sandbox(start: Start, upstream: ScriptedUpstream) -> None:
    client, finished, _ = start()
    upstream.reply('```tool_code\nprint(get_weather(location=str("Oslo")))\n```')
    ask(client)
    [trace] = ended(finished)
    assert "sandbox program" in {span.name for span in timeline(trace)}


def test_a_trace_does_not_keep_the_parsed_request_alive(
    start: Start, upstream: ScriptedUpstream
) -> None:
    """The function that makes a trace's stubs used to reference the request, its messages and its tools."""
    client, finished, traces = start()
    upstream.reply(CALL)
    ask(client, model="of this test")
    ended(finished)

    def is_alive() -> bool:
        gc.collect()
        requests = [one for one in gc.get_objects() if type(one) is ChatCompletionRequest]
        return any(one.model == "of this test" for one in requests)

    wait_until(lambda: not is_alive())
    assert [trace.model for trace in stored(traces)] == ["of this test"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_repaired_reply_is_a_turn_with_its_diagnostics(
    start: Start, upstream: ScriptedUpstream, stream: bool
) -> None:
    client, finished, traces = start()
    upstream.reply('```tool_code\nget_weather(town="Oslo")\n```', CALL)
    answer = ask(client, stream=stream)
    if stream:
        assert [*answer]
    [trace] = ended(finished)
    assert [turn.verdict for turn in trace.turns] == ["invalid", "answered"]
    assert "town" in trace.turns[0].diagnostics
    assert len(trace.turns[1].messages) > len(trace.turns[0].messages)
    assert (trace.repairs, trace.call_count, trace.streamed) == (1, 1, stream)
    assert trace.wire.events
    [again] = stored(traces)
    assert (again.id, again.repairs, again.state) == (trace.id, 1, "called")


def test_a_resumed_program_is_recorded_with_its_results(
    start: Start, upstream: ScriptedUpstream
) -> None:
    client, finished, _ = start()
    upstream.reply(
        '```tool_code\na = get_weather(location="Oslo")\nget_weather(location=a["next"])\n```'
    )
    made = ask(client).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": '{"next": "Rome"}'}
        for call in made.tool_calls
    ]
    ask(client, messages=[*HELLO, made.to_dict(), *results])
    _, trace = ended(finished, 2)
    assert (trace.turns, trace.turns_saved) == ([], 1)
    assert trace.resumed is not None
    assert trace.resumed.lines == (1, 2)
    [before] = trace.resumed.calls
    assert (before.name, before.known, before.result) == ("get_weather", True, {"next": "Rome"})
    assert isinstance(trace.calls[0], ToolCall)


def test_a_failed_request_is_recorded_with_its_reason(
    start: Start, upstream: ScriptedUpstream
) -> None:
    client, finished, _ = start(upstream_retries=0)
    upstream.reply(Reply(status=400, body={"error": {"message": "no such model"}}))
    with pytest.raises(openai.BadRequestError):
        ask(client)
    with pytest.raises(openai.BadRequestError):
        ask(client, tool_choice="sometimes")
    refused, bad = ended(finished, 2)
    assert (refused.state, refused.status, refused.turns[0].error) == ("failed", 400, refused.error)
    assert "no such model" in refused.error
    assert (bad.state, bad.status, bad.turns) == ("failed", 400, [])


def test_an_answer_without_tools_is_recorded_as_it_was_relayed(
    start: Start, upstream: ScriptedUpstream
) -> None:
    client, finished, _ = start()
    upstream.reply("Hello!")
    client.chat.completions.create(model="m", messages=HELLO)
    [trace] = ended(finished)
    assert (trace.mode, trace.state, trace.tokens_in) == ("relayed", "answered", 7)


def test_neither_keys_nor_bodies_of_requests_without_a_key_are_recorded(
    start: Start, upstream: ScriptedUpstream
) -> None:
    client, finished, traces = start(client_keys=("client-key",))
    for _ in range(3):  # within a second: one row
        with pytest.raises(openai.AuthenticationError):
            ask(client.with_options(api_key="wrong"))
    [refused] = stored(traces)
    assert (refused.status, refused.code, refused.client) == (401, "invalid_api_key", "")
    assert (refused.body, refused.state) == (b"", "failed")
    upstream.reply(CALL)
    ask(client)
    [trace] = ended(finished)
    assert trace.client
    assert type(trace.client) is str
    assert "client-key" not in repr(trace)


def test_with_the_inspector_off_nothing_is_stored(start: Start, upstream: ScriptedUpstream) -> None:
    client, finished, traces = start(inspector="off")
    upstream.reply(CALL)
    ask(client)
    [trace] = ended(finished)
    assert stored(traces) == []
    assert (trace.state, trace.call_count, trace.wire.events) == ("called", 1, [])


def test_requests_are_not_stored_in_the_database_that_outlives_the_run(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.")
    url, services = start_app()
    assert send(f"{url}/v1/chat/completions", {"model": "m", "messages": HELLO})[0] == 200
    assert len(stored(services.requests.reader)) == 1
    with pytest.raises(DatabaseFailed):
        services.stores.database.all("SELECT id FROM traces")


def opened(max_traces: int, now: Callable[[], float] = time.time) -> tuple[Traces, Archive]:
    """Traces that are stored, at most 1 MiB and for a minute, and their archive."""
    traces = Traces(records_wire=True, now=now)
    archive = Archive(open_database(":memory:", now))
    archive.max_traces, archive.max_bytes, archive.max_seconds = max_traces, 2**20, 60
    traces.on_begin(archive.begin)
    traces.on_finish(archive.finish)
    return traces, archive


def finish(traces: Traces, key: str, body: bytes, client: str = "") -> None:
    traces.finish(traces.begin(key, "POST", "/v1/chat/completions", client, body))


def test_stored_traces_are_limited_in_number_bytes_and_age() -> None:
    now = [0.0]
    traces, reader = opened(3, lambda: now[0])
    for n in range(5):
        finish(traces, f"req_{n}", b"x")
    assert {trace.id for trace in stored(reader)} == {"req_4", "req_3", "req_2"}
    finish(traces, "req_large", b"x" * 2**19)
    large = reader.get("req_large")
    assert large is not None
    assert (large.stripped, large.body) == (True, b"")
    now[0] = 61.0
    assert stored(reader) == []


def test_the_bytes_of_all_traces_are_limited() -> None:
    traces, reader = opened(1000)
    for n in range(30):
        finish(traces, f"req_{n}", b"x" * 100_000)
    count, size = reader.count_and_bytes(None)
    assert size <= 2**20
    assert 5 < count < 11


def test_a_client_clears_only_its_own_traces() -> None:
    traces, reader = opened(10)
    for n, client in enumerate(("ann", "bob", "ann")):
        finish(traces, f"req_{n}", b"", client)
    assert reader.clear("ann") == 2
    assert [trace.client for trace in stored(reader)] == ["bob"]
    assert reader.get("req_1", "ann") is None


def test_a_running_request_is_shown_in_its_current_state() -> None:
    traces, reader = opened(10)
    trace = traces.begin("req_0", "POST", "/v1/chat/completions", "", b"words")
    trace.model = "m"
    [row] = reader.page({"q": "m"}, None).rows
    assert (row.id, row.state) == ("req_0", "running")
    trace.begin_turn("upstream", [{"role": "user", "content": "Hi"}], {})
    again = reader.get("req_0")
    assert again is not None
    assert (again.body, again.turns[0].messages) == (b"words", [{"role": "user", "content": "Hi"}])


def test_a_late_report_changes_nothing_of_a_request_that_has_ended() -> None:
    """A page asks for what runs while the worker stores what has ended."""
    with closing(open_database(":memory:")) as database:
        archive = Archive(database)
        trace = Trace("req_0", "POST", "/v1/chat/completions", body=b"words")
        late = TraceSummary.of(trace)
        archive.begin(trace)
        trace.end()
        archive.finish(trace)
        for summary in (late, TraceSummary.of(trace)):
            archive.page({}, None)
            archive.put([(summary, None)])
            again = archive.get("req_0")
            assert again is not None
            assert (again.state, again.stripped, again.body) == ("answered", False, b"words")


def test_a_report_without_contents_keeps_those_of_a_running_request() -> None:
    with closing(open_database(":memory:")) as database:
        archive = Archive(database)
        trace = Trace("req_0", "POST", "/v1/chat/completions", body=b"words")
        archive.put([(TraceSummary.of(trace), dump_trace(trace))])
        trace.model = "m"
        archive.put([(TraceSummary.of(trace), None)])
        [row] = archive.page({"q": "words"}, None).rows
        again = archive.get("req_0")
        assert again is not None
        assert (row.model, row.state, again.stripped) == ("m", "running", False)


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_request_with_the_id_of_another_clients_request_changes_nothing(
    has_ended: bool, is_whole: bool
) -> None:
    """It took the row over: the other client no longer saw its request."""
    with closing(open_database(":memory:")) as database:
        archive = Archive(database)
        mine = Trace("req_0", "POST", "/v1/chat/completions", "ann", b"mine")
        archive.put([(TraceSummary.of(mine), dump_trace(mine))])
        before = database.all("SELECT * FROM traces")
        other = Trace("req_0", "POST", "/v1/chat/completions", "bob", b"forged")
        if has_ended:
            other.end()
        archive.put([(TraceSummary.of(other), dump_trace(other) if is_whole else None)])
        assert database.all("SELECT * FROM traces") == before
        assert archive.get("req_0", "bob") is None
        assert archive.page({}, "bob").rows == []


def test_raw_events_are_recorded_up_to_a_limit(start: Start, upstream: ScriptedUpstream) -> None:
    client, finished, _ = start()
    upstream.reply("word " * 300_000)
    client.chat.completions.create(model="m", messages=HELLO)
    [trace] = ended(finished)
    assert trace.wire.size <= 2**20
    assert trace.wire.omitted_bytes > 0


def test_the_bodies_that_turns_sent_are_recorded_up_to_a_limit() -> None:
    """A loop of hosted calls sends a growing conversation up to 128 times."""
    trace = Trace("req_0", "POST", "/v1/chat/completions")
    token = current.set(trace)
    try:
        for _ in range(20):
            trace.begin_turn("m", [{"role": "user", "content": "Hi"}], {"model": "m"})
            record_sent(b"x" * 2**20)
    finally:
        current.reset(token)
    assert 0 < sum(len(turn.sent) for turn in trace.turns) <= MAX_SENT_BYTES
    assert b'"content":"Hi"' in trace.turns[-1].request


def test_only_requests_for_an_answer_are_recorded(start: Start) -> None:
    client, _, traces = start()
    send(str(client.base_url) + "containers", b"{}", {"content-type": "application/json"})
    assert stored(traces) == []
