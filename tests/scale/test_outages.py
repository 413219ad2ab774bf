"""What replicas share is restarted while they serve: errors in OpenAI's shape, then all as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import openai
import pytest

from emulator.storage.key_value import PAUSE_SECONDS
from tests.scale.object_store import ObjectStore
from tests.scale.replicas import Replicas, StartedWork, chat_at, was_restarted
from tests.support.postgres import Postgres
from tests.support.processes import RedisServer
from tests.support.programs import CHAIN, HITS, TOOLS, results
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream


@contextmanager
def away(server: RedisServer | Postgres | ObjectStore) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def rested(server: RedisServer) -> Iterator[None]:
    """A replica that has found Redis away does not ask for a while."""
    with away(server):
        yield
    time.sleep(PAUSE_SECONDS + 0.5)


def refused(replicas: Replicas, replica: int, path: str, body: Any = None) -> Any:
    """An error that says when to come again, in OpenAI's shape and without an address in it."""
    status, headers, answer = send(f"{replicas.urls[replica]}{path}", body)
    assert status == 503, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["type"] in ("server_error", "sandbox_error")
    assert "127.0.0.1" not in answer["error"]["message"]
    return {**answer["error"], "headers": headers}


def test_redis_is_restarted_and_everything_goes_on_where_it_was(
    replicas: Replicas, upstream: ScriptedUpstream, redis: RedisServer
) -> None:
    begun = StartedWork(replicas, upstream)
    with rested(redis):
        for replica in (0, 1):
            error = refused(replicas, replica, begun.session.execute, {"code": "x"})
            assert error["code"] == "overloaded"
            refused(replicas, replica, "/v1/responses", begun.chain)
        upstream.reply("Plain.")
        plain = chat_at(replicas, 0, [{"role": "user", "content": "Hi"}], TOOLS)
        assert plain["content"] == "Plain."
    begun.assert_continues(partial(replicas.at, 1))


def test_a_cell_that_runs_while_redis_is_restarted_ends_as_it_would_have(
    replicas: Replicas, redis: RedisServer
) -> None:
    """Its replica has the container for longer than such a restart takes."""
    session = replicas.session("import time\nx = 41")
    code = "time.sleep(3)\nx += 1\nprint('ran')\nopen('a.txt', 'w').write('kept')"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, code, at=0)
        time.sleep(1.0)  # for the cell to be running; without it the test tries less
        with rested(redis):
            pass
        ran = running.result(60)
    assert ran["stdout"] == "ran\n"
    assert [file["path"] for file in ran["files"]] == ["/mnt/data/a.txt"]
    assert session.run("print(x)", at=1)["stdout"] == "42\n"


def test_postgresql_is_restarted_and_files_are_there_again_without_a_restart_of_the_proxy(
    replicas: Replicas, upstream: ScriptedUpstream, database: Postgres
) -> None:
    upstream.reply("Plain.")
    clients = [
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) for url in replicas.urls
    ]
    file = clients[0].files.create(file=("a.csv", b"1,2\n"), purpose="user_data")
    session = replicas.session("x = 41")

    with away(database):
        for replica, client in enumerate(clients):
            for path in ("/v1/files", f"/v1/files/{file.id}/content", "/v1/containers"):
                assert refused(replicas, replica, path)["headers"]["retry-after"] == "1"
            refused(replicas, replica, session.execute, {"code": "x"})
            with pytest.raises(openai.InternalServerError, match="are unavailable now"):
                client.files.create(file=("b.csv", b"3"), purpose="user_data")
        assert (
            chat_at(replicas, 0, [{"role": "user", "content": "Hi"}], TOOLS)["content"] == "Plain."
        )

    for client in clients:
        assert client.files.content(file.id).content == b"1,2\n"
        assert [each.filename for each in client.files.list()] == ["a.csv"]
    assert session.run("print(x + 1)", at=1)["stdout"] == "42\n"


def test_a_cell_that_runs_while_postgresql_is_restarted_keeps_its_variables_and_output(
    replicas: Replicas, database: Postgres
) -> None:
    session = replicas.session("import time\nx = 41")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, "time.sleep(4)\nx += 1\nprint('ran')", at=0)
        time.sleep(1.0)
        with away(database):
            pass
        assert running.result(60)["stdout"] == "ran\n"
    assert session.run("print(x)", at=1)["stdout"] == "42\n"


@pytest.mark.parametrize("replicas", [["--files-dir", "BUCKET"]], indirect=True)
def test_while_the_object_store_is_away_files_are_refused_for_now(
    replicas: Replicas, object_store: ObjectStore
) -> None:
    client = openai.OpenAI(base_url=f"{replicas.urls[0]}/v1", api_key="k", max_retries=0)
    file = client.files.create(file=("a.csv", b"1,2\n"), purpose="user_data")
    with away(object_store):
        for replica in (0, 1):
            refused(replicas, replica, f"/v1/files/{file.id}/content")
        with pytest.raises(openai.InternalServerError, match="object store takes no file") as full:
            client.files.create(file=("b.csv", b"3"), purpose="user_data")
        assert full.value.status_code == 503
        assert [each.id for each in client.files.list()] == [file.id]
    # This store comes back without its buckets: what it had is not there, and that is no outage.
    object_store.make(os.environ["BUCKET"])
    again = client.files.create(file=("b.csv", b"3"), purpose="user_data")
    assert client.files.content(again.id).content == b"3"
    with pytest.raises(openai.InternalServerError) as gone:
        client.files.content(file.id)
    assert gone.value.status_code == 507


def test_a_redis_that_has_lost_everything_costs_turns_and_sessions_and_nothing_else(
    replicas: Replicas, upstream: ScriptedUpstream, redis: RedisServer
) -> None:
    import redis as redis_package

    upstream.reply(CHAIN, "A turn of the model's.", "Good day.", "Anew.")
    program: list[Any] = [{"role": "user", "content": "Go."}]
    program += results(chat_at(replicas, 0, program, TOOLS), HITS)
    session = replicas.session("x = 41\nopen('a.txt', 'w').write('kept')")

    with redis_package.Redis.from_url(redis.url) as client:
        client.flushall()

    assert chat_at(replicas, 1, program, TOOLS)["content"] == "A turn of the model's."
    ran = session.run("print(open('a.txt').read())\nx", at=1)
    assert ran["stdout"] == "kept\n"
    assert "NameError" in ran["stderr"]
    assert was_restarted(ran)
    ran = session.run("x = 1\nprint(x)", at=0)
    assert (ran["stdout"], ran["notes"]) == ("1\n", [])
    assert session.run("print(x)", at=1)["stdout"] == "1\n"
