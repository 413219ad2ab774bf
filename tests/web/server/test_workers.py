"""Several workers behind one port: what one has begun, another goes on with, also if the first is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import needs_bubblewrap
from tests.support.processes import members, wait_until
from tests.support.programs import CHAIN, HITS, INTERPRETER, PRICE, TOOLS, results
from tests.support.raw_http import connect, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import HELLO, SILENT, two_workers

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the processes are found in Linux' /proc"
)

CELL = "```tool_code\nx = 6\nprice = get_price(about='a')\nprint(x * price)\n```"


@needs_bubblewrap
def test_what_one_worker_has_begun_another_goes_on_with_when_it_is_killed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A program and a cell that wait, a container's variables and files, a chain of responses."""
    upstream.reply(CHAIN, CELL, "Good day.", "Twelve.", "It is good.")
    with two_workers(upstream, tmp_path) as one:
        first, second = one.pids()
        program: list[Any] = [{"role": "user", "content": "Go."}]
        searched = one.chat(first, program, TOOLS)
        cell: list[Any] = [{"role": "user", "content": "How much?"}]
        priced = one.chat(first, cell, [INTERPRETER, PRICE])
        said = one.ask(first, "/v1/responses", {"model": "m", "input": "Hi"})
        container = one.ask(first, "/v1/containers", {"name": "c"})["id"]
        execute = f"/v1/containers/{container}/execute"
        one.ask(first, execute, {"code": "x = 41\nopen('/mnt/data/a.txt', 'w').write('kept')"})

        one.kill(first)
        assert second in one.pids()

        program += results(searched, HITS)
        booked = one.chat(second, program, TOOLS)
        assert booked["tool_calls"][0]["function"]["name"] == "book"
        assert one.ask(second, execute, {"code": "print(x + 1)"})["stdout"] == "42\n"
        listed = one.ask(second, f"/v1/containers/{container}/files")["data"]
        assert [file["path"] for file in listed] == ["/mnt/data/a.txt"]
        cell += results(priced, "2")
        assert one.chat(second, cell, [INTERPRETER, PRICE])["content"].startswith("Twelve.")
        chain = {"model": "m", "input": "And you?", "previous_response_id": said["id"]}
        one.ask(second, "/v1/responses", chain)
        asked = [json.dumps(body["messages"]) for body in upstream.requests]
        assert len(asked) == 5, "the program went on without the model"
        assert "12" in asked[3]
        assert "Good day." in asked[4]


@pytest.mark.nightly
def test_a_background_response_is_polled_and_cancelled_at_any_worker(tmp_path: Path) -> None:
    """One that was made by a worker that is killed is told as failed; it was in progress for an hour."""
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path) as one,
    ):
        first, second = one.pids()
        ask = {"model": "m", "input": "Hi", "background": True}
        cancelled, lost = (one.ask(first, "/v1/responses", ask)["id"] for _ in range(2))
        polled = one.ask(second, f"/v1/responses/{cancelled}")
        assert polled["status"] in ("queued", "in_progress")
        one.process.wait_until(lambda: len(upstream.requests) == 2)  # else there is none to abort
        with one.connected(second) as ask_second:
            ask_second("POST", f"/v1/responses/{cancelled}/cancel")
            one.process.wait_until(
                lambda: ask_second("GET", f"/v1/responses/{cancelled}")["status"] == "cancelled"
            )
            one.process.wait_until(upstream.aborted.is_set)

            one.kill(first)
            one.process.wait_until(
                lambda: ask_second("GET", f"/v1/responses/{lost}")["status"] == "failed"
            )


@pytest.mark.nightly
def test_new_connections_go_to_the_worker_that_has_fewer(tmp_path: Path) -> None:
    with (
        ScriptedUpstream(default="Hi.") as upstream,
        two_workers(upstream, tmp_path) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        for _ in range(20):
            opened.enter_context(one.connected(first))

        def sockets(worker: int) -> int:
            found = 0
            for file in Path(f"/proc/{worker}/fd").iterdir():
                with suppress(FileNotFoundError):  # it has been closed meanwhile
                    found += "socket:" in str(file.readlink())
            return found

        lead = sockets(first) - sockets(second)
        assert lead > 10
        # By chance alone each would get half of these, and the lead would stay.
        for _ in range(100):
            get = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"
            connection = opened.enter_context(connect(one.url, get))
            assert connection.recv(65536)
            lead = sockets(first) - sockets(second)
            if lead < 2:
                break
        assert lead < 2


@pytest.mark.nightly
@needs_bubblewrap
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two cores are shared out")
def test_where_each_core_has_a_worker_it_stays_there_and_kernels_go_where_they_like(
    tmp_path: Path,
) -> None:
    """Whoever comes in the place of one that is killed takes its core."""
    before = os.sched_getaffinity(0)
    two = set(sorted(before)[:2])
    os.sched_setaffinity(0, two)
    try:
        with (
            ScriptedUpstream(default=CHAIN) as upstream,
            two_workers(upstream, tmp_path) as one,
        ):
            for _ in range(2):
                pids = one.pids()
                assert [os.sched_getaffinity(pid) for pid in pids] != [two, two]
                assert set.union(*(os.sched_getaffinity(pid) for pid in pids)) == two
                assert all(_threads_stay(pid) for pid in pids)
                one.kill(pids[0])
            assert os.sched_getaffinity(one.keeper()) == two
            container = one.ask(one.pids()[0], "/v1/containers", {"name": "c"})["id"]
            one.ask(one.pids()[0], f"/v1/containers/{container}/execute", {"code": "x = 1"})
            one.process.wait_until(lambda: {*_kernels(one.process.group)} == {frozenset(two)})
    finally:
        os.sched_setaffinity(0, before)


def _threads_stay(pid: int) -> bool:
    own = os.sched_getaffinity(pid)
    threads = Path(f"/proc/{pid}/task").iterdir()
    return len(own) == 1 and all(os.sched_getaffinity(int(one.name)) == own for one in threads)


def _kernels(group: int) -> Iterator[frozenset[int]]:
    """The cores of each process of a kernel."""
    for pid in members(group):
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n":
                yield frozenset(os.sched_getaffinity(pid))


def test_limits_and_counts_are_those_of_all_workers_together(tmp_path: Path) -> None:
    limits = ["--client-requests-per-minute", "4", "--client-open-requests", "2"]
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, *limits) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        for worker in (first, second):
            opened.enter_context(one.stream(worker))
        assert one.looks(first) == (429, "too_many_open_requests")
        assert "emulator_open_requests 2.0" in one.metrics()
        opened.close()
        one.process.wait_until(lambda: one.looks(second)[0] == 200)
        assert one.looks(first)[0] == 200
        assert one.looks(second) == (429, "rate_limit_exceeded")
        counted = 'emulator_requests_total{path="/v1/chat/completions",status="200"} 2.0'
        assert counted in one.metrics()


@pytest.mark.nightly
def test_a_killed_worker_has_no_open_requests_and_what_it_had_counted_counts(
    tmp_path: Path,
) -> None:
    limits = ["--client-requests-per-minute", "2", "--client-open-requests", "1"]
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, *limits) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        opened.enter_context(one.stream(first))
        assert one.looks(second) == (429, "too_many_open_requests")
        one.kill(first)
        assert one.looks(second)[0] == 200
        assert one.looks(second) == (429, "rate_limit_exceeded")


def test_requests_beyond_what_all_workers_serve_together_are_refused(tmp_path: Path) -> None:
    """And those of a worker that is killed make room."""
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, "--threads", "2", "--waiting-requests", "0") as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        for _ in range(2):
            opened.enter_context(one.stream(first))
        assert one.looks(second) == (503, "overloaded")
        one.kill(first)
        opened.enter_context(one.stream(second))


@pytest.mark.nightly
def test_an_upstream_gets_no_more_requests_from_two_workers_than_from_one(tmp_path: Path) -> None:
    """Whose place is that of a worker which is killed gives it up."""
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, "--upstream-requests", "1", "--ping-seconds", "0.2") as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        opened.enter_context(one.stream(first))
        opened.enter_context(one.stream(second, until=b": ping"))
        assert len(upstream.requests) == 1
        one.kill(first)
        one.process.wait_until(lambda: len(upstream.requests) == 2)


@pytest.mark.nightly
@needs_bubblewrap
def test_kernels_are_counted_by_all_workers_together(tmp_path: Path) -> None:
    """Each had as many as `max_kernels`. That of a worker which is killed counts no more."""
    endless = "Hello.\n```tool_code\nwhile True:\n    pass\n```"
    options = "--max-kernels 1 --program-seconds 600".split()
    with (
        ScriptedUpstream(default="```tool_code\nprint(1)\n```").reply(endless) as upstream,
        two_workers(upstream, tmp_path, *options) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        opened.enter_context(one.stream(first, body={"tools": [INTERPRETER]}))
        asked = {**HELLO, "tools": [INTERPRETER]}

        def status() -> int:
            with one.only(second):
                return send(f"{one.url}/v1/chat/completions", asked)[0]

        one.process.wait_until(lambda: status() == 503)
        one.kill(first)
        assert status() == 200


@pytest.mark.nightly
def test_an_upstream_that_is_down_for_one_worker_is_left_alone_by_all(tmp_path: Path) -> None:
    options = ("--breaker-failures", "1", "--breaker-seconds", "600", "--upstream-retries", "0")
    with (
        ScriptedUpstream(default=Reply(status=503)) as upstream,
        two_workers(upstream, tmp_path, *options) as one,
    ):
        codes = []
        for worker in one.pids():
            with one.only(worker):
                _, _, answer = send(f"{one.url}/v1/chat/completions", HELLO)
            codes.append(answer["error"]["code"])
        assert codes[0] != "upstream_down"
        assert codes[1:] == ["upstream_down"]
        assert len(upstream.requests) == 1


@pytest.mark.nightly
@needs_bubblewrap
def test_kernels_outlive_all_workers_and_nothing_outlives_the_end(tmp_path: Path) -> None:
    with ScriptedUpstream() as upstream, two_workers(upstream, tmp_path) as one:
        before = one.pids()
        container = one.ask(before[0], "/v1/containers", {"name": "c"})["id"]
        execute = f"/v1/containers/{container}/execute"
        one.ask(before[0], execute, {"code": "x = 41"})
        for pid in before:
            one.kill(pid)
        after = one.pids()
        assert one.ask(after[1], execute, {"code": "print(x + 1)"})["stdout"] == "42\n"

        one.kill(one.keeper())
        failed = one.ask(after[0], execute, {"code": "print(x)"})
        assert "NameError" in failed["stderr"]
        assert any("was restarted" in note for note in failed["notes"])
        assert one.ask(after[1], execute, {"code": "1"})["notes"] == []

        one.process.kill(signal.SIGTERM)
        wait_until(lambda: not members(one.process.group))
