"""Two replicas behind nginx, each request at the other one than the last, and one of them killed.

All that they share is real: PostgreSQL, a folder, a Jupyter Kernel Gateway.
"""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest

from tests.scale.replicas import (
    CELL,
    TOKEN,
    Replicas,
    StartedWork,
    chat_at,
    was_restarted,
)
from tests.support.processes import members, wait_until
from tests.support.programs import CHAIN, HITS, INTERPRETER, PRICE, TOOLS, results
from tests.support.scripted import ScriptedUpstream


def test_a_program_resumes_at_the_other_replica_without_the_model(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    searched = replicas.chat(messages, TOOLS)
    messages += results(searched, HITS)
    assert replicas.chat(messages, TOOLS)["tool_calls"][0]["function"]["name"] == "book"
    assert replicas.alternated()
    assert len(upstream.requests) == 1


def test_all_replicas_share_conversations_and_chains_of_responses(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    upstream.reply("One.", "Two.", "Three.", "Four.")
    talk = replicas.ask("/v1/conversations", {})["id"]
    for text in ("a", "b"):
        replicas.ask("/v1/responses", {"model": "m", "input": text, "conversation": talk})
    items = replicas.ask(f"/v1/conversations/{talk}/items")["data"]
    assert len(items) == 4
    first = replicas.ask("/v1/responses", {"model": "m", "input": "c"})["id"]
    replicas.ask("/v1/responses", {"model": "m", "input": "d", "previous_response_id": first})
    assert "Three." in json.dumps(upstream.requests[-1]["messages"])
    assert replicas.alternated()


@pytest.mark.parametrize("replicas", [[], ["--files-dir", "BUCKET"]], indirect=True)
def test_a_file_uploaded_to_one_replica_is_read_listed_and_deleted_at_the_other(
    replicas: Replicas,
) -> None:
    uploads = [openai.OpenAI(base_url=f"{url}/v1", api_key="k") for url in replicas.urls]
    file = uploads[0].files.create(file=("a.csv", b"1,2\n"), purpose="user_data")
    assert uploads[1].files.content(file.id).content == b"1,2\n"
    container = uploads[1].containers.create(name="c", file_ids=[file.id])
    code = {"code": "print(open('a.csv').read())"}
    ran = replicas.ask(f"/v1/containers/{container.id}/execute", code)
    assert ran["stdout"] == "1,2\n\n"
    code = {"code": "print(open('b.csv', 'w').write('3'))"}
    [written] = replicas.ask(f"/v1/containers/{container.id}/execute", code)["files"]
    read = [
        c.containers.files.content.retrieve(written["id"], container_id=container.id)
        for c in uploads
    ]
    assert [each.content for each in read] == [b"3", b"3"]
    uploads[1].files.delete(file.id)
    assert list(uploads[0].files.list()) == []


def test_a_containers_variables_and_files_exist_at_each_replica(replicas: Replicas) -> None:
    session = replicas.session()
    before = replicas.kernels()
    ran = session.run("x = []\nopen('a.txt', 'w').write('kept')")
    assert [file["path"] for file in ran["files"]] == ["/mnt/data/a.txt"]
    for n in range(6):
        ran = session.run(f"x.append({n})\nprint(x)")
        assert (ran["stdout"], ran["notes"], ran["files"]) == (f"{[*range(n + 1)]}\n", [], [])
    assert replicas.alternated()
    assert len(replicas.kernels() - before) == 1
    replicas.ask(session.path, method="DELETE")
    wait_until(lambda: replicas.kernels() <= before)


def test_cells_sent_to_both_replicas_at_the_same_time_run_in_sequence(
    replicas: Replicas,
) -> None:
    session = replicas.session("import time\nx = 0")
    with ThreadPoolExecutor(6) as pool:
        code = "y = x\ntime.sleep(0.2)\nx = y + 1"
        list(pool.map(lambda n: session.run(code, at=n % 2), range(6)))
    assert session.run("print(x)", at=1)["stdout"] == "6\n"


def test_a_waiting_cell_resumes_at_the_other_replica_without_a_second_run(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """The output before the call is shown, and the cell is not run again from its top."""
    upstream.reply(CELL, "Twelve.")
    messages: list[Any] = [{"role": "user", "content": "How much?"}]
    priced = replicas.chat(messages, [INTERPRETER, PRICE])
    messages += results(priced, "2")
    assert replicas.chat(messages, [INTERPRETER, PRICE])["content"].startswith("Twelve.")
    assert replicas.alternated()
    told = json.dumps(upstream.requests[-1]["messages"])
    assert "asking\\\\n12" in told or "asking\\n12" in told, told


def test_nothing_is_lost_when_a_replica_is_killed(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """Nor of a cell that was running what it had assigned."""
    begun = StartedWork(replicas, upstream)
    busy = replicas.session("import time\nx = 41")
    broken = busy.run_interrupted("x += 1\nwhile True: time.sleep(0.1)")
    replicas.kill(0)
    broken.join()
    begun.assert_continues(replicas.ask)
    interrupted = busy.run("print(x)")
    assert (interrupted["stdout"], interrupted["notes"]) == ("42\n", [])


def test_a_kernel_outlives_a_replica_that_shuts_down(replicas: Replicas) -> None:
    session = replicas.session("x = 41")
    replicas.processes[0].kill(signal.SIGTERM)
    assert session.run("print(x + 1)", at=1)["stdout"] == "42\n"


def test_a_kernel_that_the_gateway_ended_is_replaced_with_a_note(
    replicas: Replicas,
) -> None:
    before = replicas.kernels()
    session = replicas.session("x = 41\nopen('a.txt', 'w').write('kept')")
    (kernel,) = replicas.kernels() - before
    httpx2.delete(
        f"{replicas.gateway}/api/kernels/{kernel}", headers={"authorization": f"token {TOKEN}"}
    )
    ran = session.run("print(open('a.txt').read())\nx", at=1)
    assert "NameError" in ran["stderr"]
    assert ran["stdout"] == "kept\n"
    assert was_restarted(ran)


@pytest.mark.parametrize("replicas", [["--sandbox", "none"]], indirect=True)
def test_kernels_that_end_with_their_replica_are_replaced_with_a_note(
    replicas: Replicas, upstream: ScriptedUpstream
) -> None:
    """At the other replica: the files, a new session, and a waiting cell is an ordinary turn."""
    session = replicas.session("x = 41\nopen('a.txt', 'w').write('kept')")
    for replica in (1, 0):
        ran = session.run("print(open('a.txt').read())\nx", at=replica)
        assert "NameError" in ran["stderr"]
        assert ran["stdout"] == "kept\n"
        assert was_restarted(ran)
    upstream.reply(CELL, "I do not know.")
    cell: list[Any] = [{"role": "user", "content": "How much?"}]
    cell += results(chat_at(replicas, 0, cell, [INTERPRETER, PRICE]), "2")
    answer = chat_at(replicas, 1, cell, [INTERPRETER, PRICE])
    assert answer["content"].startswith("I do not know.")


@pytest.mark.parametrize("replicas", [["--workers", "2"]], indirect=True)
def test_replicas_with_several_workers_share_kernels_too(replicas: Replicas) -> None:
    session = replicas.session()
    session.run("x = []")
    for n in range(4):
        ran = session.run(f"x.append({n})\nprint(x)")
        assert ran["stdout"] == f"{[*range(n + 1)]}\n"
    assert replicas.alternated()
    for process in replicas.processes:
        process.kill(signal.SIGTERM)
        wait_until(lambda group=process.group: not members(group))  # type: ignore[misc]
