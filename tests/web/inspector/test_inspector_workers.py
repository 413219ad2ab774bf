"""The inspector of several workers: each shows the requests of all, to authorized viewers."""

from __future__ import annotations

import html
import queue
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.core.errors import StoreUnavailable
from emulator.database import DatabaseFailed, open_database
from emulator.traces import Trace, TraceReader
from emulator.traces.sender import TraceSender
from emulator.traces.store import Batch, TraceStore
from emulator.traces.summary import TraceSummary
from emulator.traces.transfer import dump_trace, load_trace
from tests.support.inspected import Inspected
from tests.support.processes import wait_until
from tests.support.programs import CHAIN, HITS, TOOLS, results
from tests.support.raw_http import fetch, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import SILENT, TwoWorkers, two_workers

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


@contextmanager
def opened(
    fails_at: str = "", now: Callable[[], float] = time.time
) -> Iterator[tuple[TraceStore, list[int]]]:
    """A store, and the number of requests in each batch that it received."""
    batches: list[int] = []

    class Counting(TraceStore):
        def put(self, batch: Batch) -> None:
            batches.append(len(batch))
            if fails_at in [summary.id for summary, _ in batch]:
                raise DatabaseFailed("the disk is full")
            super().put(batch)

    with closing(open_database(":memory:", now)) as database:
        yield Counting(database), batches


def put(store: TraceStore, trace: Trace, *, whole: bool = True) -> None:
    store.put([(TraceSummary.of(trace), dump_trace(trace).decode() if whole else None)])


def test_requests_and_bytes_are_limited_and_lost_requests_are_found() -> None:
    now = [100.0]
    with opened(now=lambda: now[0]) as (store, _):
        store.max_traces, store.max_bytes, store.max_seconds = 2, 2**20, 3600
        for n in range(3):
            running = Trace(f"req_{n}", "POST", "/v1/responses", body=b"\xff words", began=now[0])
            put(store, running)
            now[0] += 0.1
        running.end()
        put(store, running)
        late = Trace("req_2", "POST", "/v1/responses", began=running.began)
        put(store, late, whole=False)  # out of order
        listed = store.page({"q": "words"}, None).rows
        assert [(row.id, row.state) for row in listed] == [
            ("req_2", "answered"),
            ("req_1", "running"),
        ]
        now[0] += 60
        assert [row.id for row in store.page({"show": "failed"}, None).rows] == ["req_1"]
        put(store, Trace("req_large", "POST", "/v1/responses", body=b"x" * 2**18, began=now[0]))
        count, size = store.count_and_bytes(None)
        assert (count, size < 2**17) == (2, True)
        large = store.get("req_large", None)
        assert large is not None
        assert (large.summary.body, large.text) == (b"", None)
        assert store.get("req_2", "somebody else") is None


def test_requests_are_sent_in_batches_and_immediately_for_a_reader() -> None:
    with opened() as (store, batches):
        sender = TraceSender(store)
        reader = TraceReader(store, sender.flush)
        traces = [Trace(f"req_{n}", "POST", "/", body=b"\xff %d" % n) for n in range(5)]
        for trace in traces:
            trace.begin_turn("m", [{"role": "user", "content": trace.id}], {})
            sender.finish(trace)
        assert batches == []
        assert {row.id for row in reader.page({}, None).rows} == {trace.id for trace in traces}
        assert batches == [5]
        again = [reader.get(trace.id) for trace in traces]
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

    with opened() as (store, _):
        sender, reader = TraceSender(store), TraceReader(store)
        bad = Trace("req_bad", "POST", "/", mode="emulated", tools=("f",), stubs=fails)
        for n, traces in enumerate(
            ((bad, Trace("req_1", "POST", "/")), (Trace("req_2", "POST", "/"),))
        ):
            for trace in traces:
                sender.begin(trace)
                sender.finish(trace)
            wait_until(lambda last=n + 1: reader.get(f"req_{last}") is not None)
        found = {row.id for row in reader.page({}, None).rows}
        assert found == {"req_1", "req_2", *(["req_bad"] if shown else [])}


def test_a_store_that_failed_once_receives_the_next_requests() -> None:
    with opened(fails_at="req_0") as (store, batches):
        sender, reader = TraceSender(store), TraceReader(store)
        for n in range(2):
            trace = Trace(f"req_{n}", "POST", "/")
            sender.begin(trace)
            sender.finish(trace)
            wait_until(lambda sent=n + 1: len(batches) == sent)
        wait_until(lambda: reader.get("req_1") is not None)
        assert [row.id for row in reader.page({}, None).rows] == ["req_1"]


def test_a_page_of_a_store_that_fails_says_so() -> None:
    with closing(open_database(":memory:")) as database:
        reader = TraceReader(TraceStore(database))
        database.run("DROP TABLE traces")
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            reader.page({}, None)


def test_a_worker_buffers_few_bytes_and_none_at_its_end() -> None:
    with opened() as (store, batches):
        sender = TraceSender(store)
        for n in range(3):
            sender.finish(Trace(f"req_{n}", "POST", "/", body=bytes(3 * 2**20)))
        assert sum(batches) == 2
        sender.close()
        assert sum(batches) == 3
        sender.finish(Trace("req_last", "POST", "/"))
        assert sum(batches) == 4


def test_a_running_worker_sends_without_a_reader() -> None:
    with opened() as (store, batches):
        sender = TraceSender(store)
        trace = Trace("req_0", "POST", "/")
        sender.begin(trace)
        sender.finish(trace)
        wait_until(lambda: TraceReader(store).get("req_0") is not None)
        assert batches == [1]
