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

from emulator.database.availability import RETRY_SECONDS
from tests.scale.object_store import ObjectStore
from tests.scale.replicas import Replicas, StartedWork, chat_at
from tests.support.postgres import Postgres
from tests.support.programs import TOOLS
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream


@contextmanager
def away(server: Postgres | ObjectStore) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def rested(server: Postgres) -> Iterator[None]:
    """A replica that has found the database away asks it once a second."""
    with away(server):
        yield
    time.sleep(RETRY_SECONDS + 0.5)


def refused(replicas: Replicas, replica: int, path: str, body: Any = None) -> Any:
    """An error that says when to come again, in OpenAI's shape and without an address in it."""
    status, headers, answer = send(f"{replicas.urls[replica]}{path}", body)
    assert status == 503, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["type"] in ("server_error", "sandbox_error")
    assert "127.0.0.1" not in answer["error"]["message"]
    return {**answer["error"], "headers": headers}


def test_all_work_continues_after_postgresql_is_restarted(
    replicas: Replicas, upstream: ScriptedUpstream, postgres_server: Postgres
) -> None:
    begun = StartedWork(replicas, upstream)
    clients = [
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) for url in replicas.urls
    ]
    file = clients[0].files.create(file=("a.csv", b"1,2\n"), purpose="user_data")
    with rested(postgres_server):
        for replica, client in enumerate(clients):
            refused(replicas, replica, begun.session.execute, {"code": "x"})
            refused(replicas, replica, "/v1/responses", begun.chain)
            for path in ("/v1/files", f"/v1/files/{file.id}/content", "/v1/containers"):
                assert refused(replicas, replica, path)["headers"]["retry-after"] == "1"
            with pytest.raises(openai.InternalServerError, match="database failed"):
                client.files.create(file=("b.csv", b"3"), purpose="user_data")
        upstream.reply("Plain.")
        plain = chat_at(replicas, 0, [{"role": "user", "content": "Hi"}], TOOLS)
        assert plain["content"] == "Plain."
    for client in clients:
        assert client.files.content(file.id).content == b"1,2\n"
        assert [each.filename for each in client.files.list()] == ["a.csv"]
    begun.assert_continues(partial(replicas.at, 1))


def test_a_running_cell_ends_normally_while_postgresql_is_restarted(
    replicas: Replicas, postgres_server: Postgres
) -> None:
    """Its replica has the container for longer than such a restart takes."""
    session = replicas.session("import time\nx = 41")
    code = "time.sleep(3)\nx += 1\nprint('ran')"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, code, at=0)
        time.sleep(1.0)  # for the cell to be running; without it the test tries less
        with away(postgres_server):
            pass
        ran = running.result(60)
    assert ran["stdout"] == "ran\n"
    assert session.run("print(x)", at=1)["stdout"] == "42\n"


@pytest.mark.parametrize("replicas", [["--files-dir", "BUCKET"]], indirect=True)
def test_file_requests_get_a_temporary_error_while_the_object_store_is_down(
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
