"""Several workers on one port: each continues the work of the others, also of a killed one."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from emulator.core.client_keys import hashed
from tests.support.places import needs_bubblewrap
from tests.support.postgres import Postgres
from tests.support.processes import answers, members, proxy, wait_until
from tests.support.programs import CHAIN, HITS, INTERPRETER, PRICE, TOOLS, results
from tests.support.raw_http import connect, post_bytes, read_until, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import HELLO, SILENT, TwoWorkers, two_workers

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the processes are found in Linux' /proc"
)

CELL = "```tool_code\nx = 6\nprice = get_price(about='a')\nprint(x * price)\n```"


@needs_bubblewrap
def test_another_worker_continues_the_work_of_the_first(
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

        # A cell that waits continues at the other worker, which cannot run it again.
        cell += results(priced, "2")
        assert one.chat(second, cell, [INTERPRETER, PRICE])["content"].startswith("Twelve.")
        for n, worker in enumerate((second, first, second)):
            counted = one.ask(worker, execute, {"code": "x += 1; print(x)"})
            assert (counted["stdout"], counted["notes"]) == (f"{42 + n}\n", [])
        one.kill(first)
        program += results(searched, HITS)
        booked = one.chat(second, program, TOOLS)
        assert booked["tool_calls"][0]["function"]["name"] == "book"
        listed = one.ask(second, f"/v1/containers/{container}/files")["data"]
        assert [file["path"] for file in listed] == ["/mnt/data/a.txt"]
        chain = {"model": "m", "input": "And you?", "previous_response_id": said["id"]}
        one.ask(second, "/v1/responses", chain)
        asked = [json.dumps(body["messages"]) for body in upstream.requests]
        assert len(asked) == 5, "the program continued without the model"
        assert "12" in asked[3]
        assert "Good day." in asked[4]
        # The kernel ended with the worker that had started it, and the next cell says so.
        failed = one.ask(second, execute, {"code": "print(x)"})
        assert "NameError" in failed["stderr"]
        assert any("was restarted" in note for note in failed["notes"])
        assert one.ask(second, execute, {"code": "1"})["notes"] == []


def test_a_run_without_a_file_outlives_its_worker_and_leaves_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a single worker had in its memory was lost with it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    upstream.reply(CHAIN)
    with proxy(upstream.base_url, tmp_path / "log", "--database", ":memory:") as (process, url):
        one = TwoWorkers(process, url)
        [worker] = one.pids()
        program: list[Any] = [{"role": "user", "content": "Go."}]
        program += results(one.chat(worker, program, TOOLS), HITS)
        os.kill(worker, signal.SIGKILL)
        process.wait_until(lambda: one.pids() not in ([], [worker]) and answers(f"{url}/healthz"))
        [worker] = one.pids()
        booked = one.chat(worker, program, TOOLS)
        assert booked["tool_calls"][0]["function"]["name"] == "book"
        assert [*temporary.glob("emulator-run-*")] != []
        process.interrupt()
        assert process.exit_code() == 0
    assert [*temporary.iterdir()] == []


@needs_bubblewrap
@pytest.mark.parametrize("options", [[], ["--database", "none"]], ids=["stored", "not stored"])
def test_a_kernel_that_another_worker_uses_makes_room_for_a_new_one(
    upstream: ScriptedUpstream, tmp_path: Path, options: list[str]
) -> None:
    """It counts where it was started, also when that worker does not use it any more. With ``--database
    none`` each worker had a kernel of its own for the same container."""
    with two_workers(upstream, tmp_path, "--max-kernels", "2", *options) as one:
        first, second = one.pids()
        containers = [one.ask(first, "/v1/containers", {"name": "c"})["id"] for _ in range(3)]
        for container in containers:
            for n, worker in enumerate((first, second)):
                execute = f"/v1/containers/{container}/execute"
                code = "x = globals().get('x', 0) + 1\nprint(x)"
                assert one.ask(worker, execute, {"code": code})["stdout"] == f"{n + 1}\n"
        ran = one.ask(
            first, f"/v1/containers/{containers[0]}/execute", {"code": "print('x' in globals())"}
        )
        assert ran["stdout"] == "False\n"
        assert any("was restarted" in note for note in ran["notes"])


@needs_bubblewrap
def test_a_forged_row_signals_no_process(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """Whoever can write to the database must not be able to signal processes of this machine."""
    with two_workers(upstream, tmp_path) as one:
        first, second = one.pids()
        container = one.ask(first, "/v1/containers", {"name": "c"})["id"]
        execute = f"/v1/containers/{container}/execute"
        one.ask(first, execute, {"code": "x = 41"})
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as database, database:
            find = "SELECT key, value FROM documents WHERE kind = 'kernel'"
            [(key, value)] = database.execute(find).fetchall()
            assert key == container
            forged = re.sub(rb'"pid":"\d+"', b'"pid":"%d"' % first, value)
            assert forged != value
            database.execute("UPDATE documents SET value = ? WHERE kind = 'kernel'", (forged,))
        said = one.ask(second, execute, {"code": "print('fresh')"})
        assert said["stdout"] == "fresh\n"
        assert any("was restarted" in note for note in said["notes"])
        one.ask(second, f"/v1/containers/{container}", method="DELETE")
        assert one.pids() == [first, second]


@pytest.mark.nightly
def test_a_background_response_is_polled_and_cancelled_at_any_worker(tmp_path: Path) -> None:
    """The response of a killed worker is reported as failed; it stayed in progress for an hour."""
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


def test_all_workers_share_limits_and_counts(tmp_path: Path) -> None:
    limits = ["--client-requests-per-minute", "4", "--client-open-requests", "2"]
    with (
        ScriptedUpstream(default=SILENT) as upstream,
        two_workers(upstream, tmp_path, *limits) as one,
        ExitStack() as opened,
    ):
        first, second = one.pids()
        for worker in (first, second):
            opened.enter_context(one.stream(worker))
        assert one.refusal(first) == "too_many_open_requests"
        assert "emulator_open_requests 2.0" in one.metrics()
        opened.close()
        one.process.wait_until(lambda: one.refusal(second) is None)
        assert one.refusal(first) is None
        assert one.refusal(second) == "rate_limit_exceeded"
        counted = 'emulator_requests_total{path="/v1/chat/completions",status="200"} 2.0'
        assert counted in one.metrics()


@pytest.mark.nightly
def test_a_replacement_that_cannot_start_does_not_end_the_proxy(tmp_path: Path) -> None:
    """The master ended, and with it the streams of the workers that served."""
    keys = tmp_path / "keys.toml"
    keys.write_text(f'["alice"]\nsha256 = "{hashed(b"key")}"\n')
    headers = {"authorization": "Bearer key"}
    with (
        ScriptedUpstream(default="Good day.") as upstream,
        two_workers(upstream, tmp_path, "--client-keys-file", str(keys)) as one,
    ):
        first, second = one.pids()
        keys.write_text("[broken")
        os.kill(first, signal.SIGKILL)
        one.process.wait_until(lambda: one.process.output.count("could not start") > 1)
        assert second in one.pids()
        assert send(f"{one.url}/v1/chat/completions", HELLO, headers)[0] == 200
        keys.write_text(f'["alice"]\nsha256 = "{hashed(b"key")}"\n')
        one.process.wait_until(lambda: one.are(2))


def test_a_killed_workers_requests_are_closed_and_its_counts_stay(
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
        assert one.refusal(second) == "too_many_open_requests"
        one.kill(first)  # its place is free when nobody has renewed it for some seconds
        one.process.wait_until(lambda: one.refusal(second) != "too_many_open_requests")
        assert one.refusal(second) == "rate_limit_exceeded"


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
def test_no_process_outlives_the_shutdown(tmp_path: Path) -> None:
    with ScriptedUpstream() as upstream, two_workers(upstream, tmp_path) as one:
        first, second = one.pids()
        container = one.ask(first, "/v1/containers", {"name": "c"})["id"]
        execute = f"/v1/containers/{container}/execute"
        for worker in (first, second):
            one.ask(worker, execute, {"code": "x = 41"})
        one.process.kill(signal.SIGTERM)
        wait_until(lambda: not members(one.process.group))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_worker_starts_while_the_database_is_away_and_the_other_ones_streams_continue(
    upstream: ScriptedUpstream, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    """It ended the whole proxy, with every stream of the other worker."""
    upstream.default = "Hello."
    file, options = tmp_path / "store.sqlite", []
    if database == "postgresql":
        server: Postgres = request.getfixturevalue("postgres_server")
        options = ["--database", server.database()]
        request.addfinalizer(server.start)
    with two_workers(upstream, tmp_path, *options) as one:
        first, second = one.pids()
        upstream.reply(Reply(chunks=["Hello", *"abcdef", " end"], delay=1.5))
        streamed = post_bytes("/v1/chat/completions", {**HELLO, "stream": True})
        with ExitStack() as opened:
            with one.only(first):
                stream = opened.enter_context(connect(one.url, streamed))
                read_until(stream, b"Hello")
            if database == "postgresql":
                server.stop()
            else:
                other = opened.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
                other.execute("BEGIN EXCLUSIVE")
            one.kill(second)
            assert first in one.pids()
            read_until(stream, b"[DONE]")
            [fresh] = {*one.pids()} - {first}
            with one.only(fresh):
                ready, _, answer = send(f"{one.url}/readyz")
                is_read = database == "sqlite"  # readers do not wait for a writer
                assert ready == (200 if is_read else 503), answer
                assert send(f"{one.url}/v1/chat/completions", HELLO)[0] == 200
            if database == "postgresql":
                server.start()
            else:
                other.execute("ROLLBACK")
            stored = "/v1/responses"
            with one.only(fresh):
                wait_until(lambda: send(f"{one.url}/readyz")[0] == 200)
                wait_until(lambda: send(f"{one.url}/v1/conversations", {})[0] == 200)
                created = send(f"{one.url}{stored}", {"model": "m", "input": "Hi"})[2]["id"]
            with one.only(first):
                wait_until(lambda: send(f"{one.url}{stored}/{created}")[0] == 200)
