"""The inspector of several workers: each shows the requests of all, to authorized viewers."""

from __future__ import annotations

import html
import json
import queue
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.core.errors import StoreUnavailable
from emulator.database import DatabaseFailed, open_database
from emulator.traces import Archive, Trace
from emulator.traces.archive import Row
from emulator.traces.summary import TraceSummary
from emulator.traces.transfer import dump_trace, load_trace
from tests.support.inspected import Inspected
from tests.support.processes import wait_until
from tests.support.programs import CHAIN, HITS, TOOLS, results
from tests.support.raw_http import fetch, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import SILENT, TwoWorkers, two_workers
from tests.support.tools import GET_WEATHER

VIEWS = ("pipeline", "program", "repairs", "timing", "stream", "copy")
REPAIRED = '```tool_code\nget_weather(town="Oslo")\n```'
EVERYTHING = '```tool_code\na = get_weather(location="Oslo")\nget_weather(location=a["next"])\n```'
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the processes are found in Linux' /proc"
)
Start = Callable[..., Inspected]


def page(one: TwoWorkers, worker: int, path: str, **headers: str) -> tuple[int, str]:
    with one.only(worker):
        status, _, text = send_text(f"{one.url}{path}", headers)
    return status, html.unescape(text)


def send_text(url: str, headers: dict[str, str]) -> tuple[int, Any, str]:
    status, received, raw = fetch(url, None, headers)
    return status, received, raw.decode()


@needs_proc
def test_a_request_of_one_worker_is_shown_by_another(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A program over two requests, each served by another worker, is one program."""
    upstream.reply(Reply(CHAIN, reasoning="Hm."))
    with two_workers(upstream, tmp_path, "--inspector", "open") as one:
        first, second = one.pids()
        messages: list[Any] = [{"role": "user", "content": "Go & find it."}]
        searched = one.chat(first, messages, TOOLS)
        messages += results(searched, HITS)
        one.chat(second, messages, TOOLS)
        found: list[str] = []

        def both() -> bool:
            found[:] = re.findall(r"/inspector/requests/(\w+)", page(one, first, "/")[1])
            return len(found) == 2

        one.process.wait_until(both)
        shown = {
            view: page(one, second, f"/inspector/requests/{found[1]}/{view}")[1] for view in VIEWS
        }
        assert "Go & find it." in shown["pipeline"]
        assert "Hm." in shown["pipeline"]
        assert "def book" in shown["pipeline"]
        assert "sandbox program" in shown["timing"]
        assert "Hm." in shown["stream"]
        assert "Go & find it." in shown["copy"]
        assert f'data-steps="{found[1]} {found[0]}"' in shown["program"]
        after = page(one, first, f"/inspector/requests/{found[0]}/program")[1]
        assert "Resumed without the model" in after
        assert re.findall(r"/inspector/requests/(\w+)", page(one, second, "/?q=%26%20find")[1])
        with one.only(second):
            _, _, cleared = send(f"{one.url}/inspector/clear", {})
        assert cleared == {"cleared": 2}
        assert "No requests yet." in page(one, first, "/")[1]


@needs_proc
def test_a_running_request_and_a_sign_in_are_known_to_all_workers(tmp_path: Path) -> None:
    keys = ["--client-keys", "ann-key-1234,bob-key-1234", "--inspector-key", "admin-key-1"]
    ann = {"authorization": "Bearer ann-key-1234"}
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, *keys) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        with one.only(first):
            status, headers, _ = send(f"{one.url}/inspector/sign-in", {"key": "ann-key-1234"})
            assert status == 200
            opened.enter_context(
                one.stream(first, headers={"authorization": "Bearer ann-key-1234"})
            )
        signed_in = {"cookie": headers["set-cookie"].split(";")[0]}
        bob = {"authorization": "Bearer bob-key-1234"}
        one.process.wait_until(
            lambda: "Hello" in page(one, second, _only(one, second, signed_in), **signed_in)[1]
        )
        assert page(one, second, "/")[0] == 401
        assert "No requests yet." in page(one, second, "/", **bob)[1]
        key = _only(one, second, ann)
        assert page(one, second, key, **bob)[0] == 404


def _only(one: TwoWorkers, worker: int, headers: dict[str, str]) -> str:
    """The path of the only request that is shown, or that of the list."""
    found = re.findall(
        r"/inspector/requests/\w+", page(one, worker, "/?show=running", **headers)[1]
    )
    return f"{found[0]}/stream" if found else "/"


def test_a_trace_looks_the_same_in_another_process(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    finished: queue.Queue[Trace] = queue.Queue()
    proxy.requests.traces.on_finish(finished.put)
    upstream.reply(Reply(REPAIRED, reasoning="Hm."), EVERYTHING)
    messages: list[Any] = [{"role": "user", "content": "\ud83d Weather \x00?"}]
    proxy.ask(messages=messages)
    trace = finished.get(timeout=60)
    again = load_trace(dump_trace(trace), trace.body)
    assert TraceSummary.of(again) == TraceSummary.of(trace)
    assert (again.stubs(), again.calls, again.times) == (trace.stubs(), trace.calls, trace.times)
    assert vars(again.wire) == vars(trace.wire)
    for one, other in zip(again.turns, trace.turns, strict=True):
        assert ("".join(one.reply), "".join(one.reasoning)) == (
            "".join(other.reply),
            "".join(other.reasoning),
        )
        assert (one.blocks, one.program, one.lines) == (other.blocks, other.program, other.lines)
        assert (one.wire.events, one.diagnostics) == (other.wire.events, other.diagnostics)
        assert [*one.messages] == [*other.messages]


def test_the_archive_has_the_bytes_that_were_received_and_sent(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    """The messages of each turn were written again, in another form than the upstream received."""
    proxy = inspect()
    upstream.reply(REPAIRED, EVERYTHING)
    messages = [{"role": "user", "content": "Weather?", "name": "ann"}]
    body = json.dumps({"model": "m", "messages": messages, "tools": [GET_WEATHER]}, indent=3)
    status, headers, _ = fetch(f"{proxy.url}/v1/chat/completions", body.encode())
    assert status == 200
    trace = proxy.requests.reader.get(headers["x-request-id"])
    assert trace is not None
    assert trace.body == body.encode()
    assert [json.loads(turn.sent) for turn in trace.turns] == upstream.requests
    assert len(trace.turns) == 2
    for turn in trace.turns:
        assert {**turn.fields, "messages": [*turn.messages]} == json.loads(turn.sent)


@pytest.mark.parametrize(
    "sent",
    [
        b'{"model" : "m", "messages":[ {"role":"user", "content":"\\n\\u00e9"} ], "stream":true}',
        b'{"messages":[],"seed":123456789012345678901234567890,"nested":%s}'
        % (b"[" * 200 + b"]" * 200),
    ],
)
def test_what_was_sent_is_copied_byte_for_byte(sent: bytes) -> None:
    trace = Trace("req_0", "POST", "/", body=b"\n\xff")
    trace.begin_turn("one", [], {}).sent = sent
    trace.begin_turn("two", [{"role": "user", "content": "It waits\nfor a slot."}], {"model": "m"})
    trace.begin_turn("three", (), {})
    again = load_trace(dump_trace(trace), trace.body)
    assert again.turns[0].sent == sent
    assert json.loads(sent) == {**again.turns[0].fields, "messages": again.turns[0].messages}
    assert [turn.messages for turn in again.turns[1:]] == [[*t.messages] for t in trace.turns[1:]]
    assert again.turns[1].fields == {"model": "m"}
    assert again.body == trace.body


@contextmanager
def opened(
    fails_at: str = "", now: Callable[[], float] = time.time, **options: bool
) -> Iterator[tuple[Archive, list[int]]]:
    """An archive, and the number of requests in each batch that it received."""
    batches: list[int] = []

    class Counting(Archive):
        def put(self, batch: Sequence[Row]) -> None:
            batches.append(len(batch))
            if fails_at in [summary.id for summary, _ in batch]:
                raise DatabaseFailed("the disk is full")
            super().put(batch)

    with closing(open_database(":memory:", now)) as database:
        yield Counting(database, **options), batches


@pytest.mark.parametrize("has_other_readers", [False, True])
def test_a_running_request_is_stored_for_other_workers_alone_and_ever_more_rarely(
    has_other_readers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone worker with 1,000 streams stored all of them each second, which stopped them for 0.1 s."""
    monkeypatch.setattr("emulator.traces.archive._REPORT_SECONDS", 0.01)
    monkeypatch.setattr("emulator.traces.archive._BATCH_SECONDS", 0.001)
    with opened(has_other_readers=has_other_readers) as (archive, batches):
        trace = Trace("req_0", "POST", "/v1/responses", body=b"words")
        archive.begin(trace)
        wait_until(lambda: trace.now() > 1)
        assert (len(batches) in range(3, 9)) if has_other_readers else not batches
        assert [row.state for row in archive.page({}, None).rows] == ["running"]
        archive.close()


def test_a_running_request_is_reported_before_it_would_be_shown_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emulator.traces.archive._REPORT_SECONDS", 0.01)
    monkeypatch.setattr("emulator.traces.archive._BATCH_SECONDS", 0.001)
    monkeypatch.setattr("emulator.traces.archive._LOST_SECONDS", 0.03)
    with opened(has_other_readers=True) as (archive, batches):
        archive.begin(Trace("req_0", "POST", "/v1/responses"))
        wait_until(lambda: len(batches) > 20)
        archive.close()


def put(archive: Archive, trace: Trace, *, whole: bool = True) -> None:
    archive.put([(TraceSummary.of(trace), dump_trace(trace) if whole else None)])


def test_requests_and_bytes_are_limited_and_lost_requests_are_found() -> None:
    now = [100.0]
    with opened(now=lambda: now[0]) as (archive, _):
        archive.max_traces, archive.max_bytes, archive.max_seconds = 2, 2**20, 3600
        for n in range(3):
            running = Trace(f"req_{n}", "POST", "/v1/responses", body=b"\xff words", began=now[0])
            put(archive, running)
            now[0] += 0.1
        running.end()
        put(archive, running)
        late = Trace("req_2", "POST", "/v1/responses", began=running.began)
        put(archive, late, whole=False)  # out of order
        listed = archive.page({"q": "words"}, None).rows
        assert [(row.id, row.state) for row in listed] == [
            ("req_2", "answered"),
            ("req_1", "running"),
        ]
        now[0] += 60
        assert [row.id for row in archive.page({"show": "failed"}, None).rows] == ["req_1"]
        put(archive, Trace("req_large", "POST", "/v1/responses", body=b"x" * 2**18, began=now[0]))
        count, size = archive.count_and_bytes(None)
        assert (count, size < 2**17) == (2, True)
        large = archive.get("req_large", None)
        assert large is not None
        assert (large.body, large.stripped) == (b"", True)
        assert archive.get("req_2", "somebody else") is None


def test_requests_are_sent_in_batches_and_immediately_for_a_reader() -> None:
    with opened() as (archive, batches):
        traces = [Trace(f"req_{n}", "POST", "/", body=b"\xff %d" % n) for n in range(5)]
        for trace in traces:
            trace.begin_turn("m", [{"role": "user", "content": trace.id}], {})
            archive.finish(trace)
        assert batches == []
        assert {row.id for row in archive.page({}, None).rows} == {trace.id for trace in traces}
        assert batches == [5]
        again = [archive.get(trace.id) for trace in traces]
        assert [one and (one.body, one.turns[0].messages[0]["content"]) for one in again] == [
            (trace.body, trace.id) for trace in traces
        ]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError, True),
        (RecursionError, True),
        (TypeError, True),
        (OverflowError, False),
        (RuntimeError, False),
    ],
)
def test_a_request_that_cannot_be_sent_does_not_stop_the_others(
    error: type[Exception], shown: bool
) -> None:
    """The sending thread ended with the error, and no later request of that worker was shown."""

    def fails() -> str:
        raise error

    with opened() as (archive, _):
        bad = Trace("req_bad", "POST", "/", mode="emulated", tools=("f",), stubs=fails)
        for n, traces in enumerate(
            ((bad, Trace("req_1", "POST", "/")), (Trace("req_2", "POST", "/"),))
        ):
            for trace in traces:
                archive.begin(trace)
                archive.finish(trace)
            wait_until(lambda last=n + 1: archive.get(f"req_{last}") is not None)
        found = {row.id for row in archive.page({}, None).rows}
        assert found == {"req_1", "req_2", *(["req_bad"] if shown else [])}


def test_a_store_that_failed_once_receives_the_next_requests() -> None:
    with opened(fails_at="req_0") as (archive, batches):
        for n in range(2):
            trace = Trace(f"req_{n}", "POST", "/")
            archive.begin(trace)
            archive.finish(trace)
            wait_until(lambda sent=n + 1: len(batches) == sent)
        wait_until(lambda: archive.get("req_1") is not None)
        assert [row.id for row in archive.page({}, None).rows] == ["req_1"]


def test_a_page_of_a_store_that_fails_says_so() -> None:
    with closing(open_database(":memory:")) as database:
        archive = Archive(database)
        database.run("DROP TABLE traces")
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            archive.page({}, None)


def test_a_worker_buffers_few_bytes_and_none_at_its_end() -> None:
    with opened() as (archive, batches):
        for n in range(3):
            archive.finish(Trace(f"req_{n}", "POST", "/", body=bytes(3 * 2**20)))
        assert sum(batches) == 2
        archive.close()
        assert sum(batches) == 3
        archive.finish(Trace("req_last", "POST", "/"))
        assert sum(batches) == 4


def test_a_running_worker_sends_without_a_reader() -> None:
    with opened() as (archive, batches):
        trace = Trace("req_0", "POST", "/")
        archive.begin(trace)
        archive.finish(trace)
        wait_until(lambda: archive.get("req_0") is not None)
        assert batches == [1]
