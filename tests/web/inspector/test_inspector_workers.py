"""The inspector of several workers: what one has served another shows, to whom it may."""

from __future__ import annotations

import html
import json
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import ExecutionFailed
from emulator.shared import rpc
from emulator.shared.rpc import Handler, RpcClient
from emulator.traces import Trace, TraceReader
from emulator.traces.sender import TraceSender
from emulator.traces.store import TraceStore
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

        one.kill(one.keeper())
        assert page(one, second, "/", **signed_in)[0] == 401
        # A request that still runs is reported to the new keeper.
        one.process.wait_until(lambda: _only(one, second, ann) == key)


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


def call(keeper: dict[str, Handler], name: str, *arguments: Any) -> Any:
    """Call the keeper as over its socket: arguments and result are JSON."""
    return json.loads(json.dumps(keeper[f"traces.{name}"](*json.loads(json.dumps(arguments)))))


def put(keeper: dict[str, Handler], trace: Trace, *, whole: bool = True) -> None:
    text = dump_trace(trace).decode() if whole else None
    keeper["traces.put"]([[TraceSummary.of(trace).to_json(), text]])


def test_the_keeper_limits_requests_and_bytes_and_finds_lost_requests() -> None:
    now = [100.0]
    keeper = TraceStore(2, 2**20, 3600, lambda: now[0]).handlers()
    for n in range(3):
        running = Trace(f"req_{n}", "POST", "/v1/responses", body=b"\xff words", began=now[0])
        put(keeper, running)
    running.end()
    put(keeper, running)
    put(keeper, Trace("req_2", "POST", "/v1/responses", began=now[0]), whole=False)  # out of order
    listed = call(keeper, "page", {"q": "words"}, None)["rows"]
    assert [(row["id"], row["state"]) for row in listed] == [
        ("req_2", "answered"),
        ("req_1", "running"),
    ]
    now[0] += 60
    listed = call(keeper, "page", {"show": "failed"}, None)["rows"]
    assert [row["id"] for row in listed] == ["req_1"]
    large = Trace("req_large", "POST", "/v1/responses", body=b"x" * 2**18, began=now[0])
    put(keeper, large)
    count, size = call(keeper, "count_and_bytes", None)
    assert (count, size < 2**17) == (2, True)
    fields, text = call(keeper, "get", "req_large", None)
    assert (fields["body"], text) == ("", None)
    assert call(keeper, "get", "req_2", "somebody else") is None


def test_without_a_keeper_a_page_says_so(tmp_path: Path) -> None:
    nobody = RpcClient(tmp_path / "nobody").call
    reader = TraceReader(nobody)
    with pytest.raises(ExecutionFailed, match="is unavailable"):
        reader.page({}, None)
    sender = TraceSender(nobody, 2**20)
    sender.finish(Trace("req_0", "POST", "/"))
    sender.close()  # the trace is lost, and nothing fails


@contextmanager
def running_keeper(folder: Path, fails_at: str = "") -> Iterator[tuple[RpcClient, list[int]]]:
    """A keeper in this process, and the number of requests in each message that it received."""
    messages: list[int] = []
    answers = TraceStore(100, 2**30, 3600).handlers()

    def put(batch: Any) -> None:
        messages.append(len(batch))
        assert fails_at not in [row["id"] for row, *_ in batch]
        answers["traces.put"](batch)

    with rpc.listen(folder / "keeper") as listener:
        arguments = (listener, {**answers, "traces.put": put})
        serving = threading.Thread(target=rpc.serve, args=arguments, daemon=True)
        serving.start()
        yield RpcClient(folder / "keeper"), messages
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_requests_are_sent_in_batches_and_immediately_for_a_reader(tmp_path: Path) -> None:
    with running_keeper(tmp_path) as (keeper, messages):
        sender = TraceSender(keeper.call, 2**30)
        reader = TraceReader(keeper.call, sender.flush)
        traces = [Trace(f"req_{n}", "POST", "/", body=b"\xff %d" % n) for n in range(5)]
        for trace in traces:
            trace.begin_turn("m", [{"role": "user", "content": trace.id}], {})
            sender.finish(trace)
        assert messages == []
        assert {row.id: row.body for row in reader.page({}, None).rows} == dict.fromkeys(
            [trace.id for trace in traces], b""
        )
        assert messages == [5]
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
    tmp_path: Path, error: type[Exception], shown: bool
) -> None:
    """The thread that tells ended with it, and no later request of that worker was shown."""

    def fails() -> str:
        raise error

    with running_keeper(tmp_path) as (keeper, _):
        sender, reader = TraceSender(keeper.call, 2**30), TraceReader(keeper.call)
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


def test_a_keeper_that_failed_once_receives_the_next_requests(tmp_path: Path) -> None:
    with running_keeper(tmp_path, fails_at="req_0") as (keeper, messages):
        sender, reader = TraceSender(keeper.call, 2**30), TraceReader(keeper.call)
        for n in range(2):
            trace = Trace(f"req_{n}", "POST", "/")
            sender.begin(trace)
            sender.finish(trace)
            wait_until(lambda sent=n + 1: len(messages) == sent)
        wait_until(lambda: reader.get("req_1") is not None)
        assert [row.id for row in reader.page({}, None).rows] == ["req_1"]


def test_a_worker_buffers_few_bytes_and_none_at_its_end(tmp_path: Path) -> None:
    with running_keeper(tmp_path) as (keeper, messages):
        sender = TraceSender(keeper.call, 2**30)
        for n in range(3):
            sender.finish(Trace(f"req_{n}", "POST", "/", body=bytes(3 * 2**20)))
        assert sum(messages) == 2
        sender.close()
        assert sum(messages) == 3
        sender.finish(Trace("req_last", "POST", "/"))
        assert sum(messages) == 4


def test_a_running_worker_sends_without_a_reader(tmp_path: Path) -> None:
    with running_keeper(tmp_path) as (keeper, messages):
        sender = TraceSender(keeper.call, 2**30)
        trace = Trace("req_0", "POST", "/")
        sender.begin(trace)
        sender.finish(trace)
        wait_until(lambda: TraceReader(keeper.call).get("req_0") is not None)
        assert messages == [1]
