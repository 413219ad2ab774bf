"""Slow clients, too many of them, and clients that ask too much: the real server process.

Operators' routes answer all the while, and every client within its limits is served.
"""

from __future__ import annotations

import select
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import connect, post_bytes, read_page, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.web.middleware.test_client_keys import keys_file

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
STREAM = CHAT | {"stream": True}
OPERATORS = ("/healthz", "/readyz", "/metrics")
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
)


def request(body: Any) -> bytes:
    return post_bytes("/v1/chat/completions", body)


class Crowd:
    """Connections to one server, closed at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.open = ExitStack()

    def say(self, data: bytes) -> socket.socket:
        return self.open.enter_context(connect(self.url, data))


def heard(connection: socket.socket, words: bytes = b"") -> bytes:
    """What comes until ``words`` do, or to the end."""
    data = b""
    while not words or words not in data:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        data += piece
    return data


def answers(url: str) -> bool:
    """Whether all that operators ask is answered."""
    return all(read_page(url + path) for path in OPERATORS)


@pytest.fixture
def silent() -> Iterator[ScriptedUpstream]:
    """An upstream that says one word and then nothing more."""
    with ScriptedUpstream(default=Reply(chunks=["word", "x"], fault="silent", after=1)) as server:
        yield server


def test_operators_are_answered_while_every_thread_holds_a_stream(
    silent: ScriptedUpstream, tmp_path: Path
) -> None:
    """The next requests wait, later ones get a 503 with Retry-After, and a stream's end frees a slot."""
    options = ("--threads", "32", "--database", ":memory:")
    options += ("--ping-seconds", "0.2")  # a client that has left is seen at the next one
    with proxy(silent.base_url, tmp_path / "log", *options) as (_, url):
        crowd = Crowd(url)
        with crowd.open:
            streams = [crowd.say(request(STREAM)) for _ in range(32)]
            for stream in streams:
                assert b"word" in heard(stream, b"word")
            waiting = [crowd.say(request(STREAM)) for _ in range(2)]
            wait_until(lambda: "emulator_waiting_requests 2.0" in read_page(f"{url}/metrics"))
            status, headers, body = send(f"{url}/v1/files")
            assert (status, body["error"]["code"]) == (503, "overloaded")
            assert headers["retry-after"] == "1"
            assert answers(url)
            for stream in streams:
                stream.close()
            for stream in waiting:
                assert b"word" in heard(stream, b"word")


SLOW: dict[str, bytes] = {
    "nothing": b"",
    "half a head": HEAD,
    "a head without a body": HEAD + b"content-length: 1000\r\n\r\n",
    "half a body": HEAD + b"content-length: 1000\r\n\r\n" + b" " * 500,
    "a chunked body without an end": HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\n    \r\n",
    "half a request behind a whole one": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /he",
}


def test_operators_are_answered_while_slow_clients_hold_every_connection(
    silent: ScriptedUpstream, tmp_path: Path
) -> None:
    """More connections than the server has threads, and none of them ever finishes its request."""
    options = ("--threads", "3", "--database", ":memory:")
    with proxy(silent.base_url, tmp_path / "log", *options) as (_, url):
        for slow in SLOW.values():
            crowd = Crowd(url)
            with crowd.open:
                for _ in range(120):
                    crowd.say(slow)
                assert answers(url), slow


@pytest.mark.parametrize("clients", [["ann"], ["ann", "eve", "joe", "sue"]])
def test_half_bodies_of_clients_leave_threads_for_the_others(
    silent: ScriptedUpstream, tmp_path: Path, clients: list[str]
) -> None:
    """With a valid key, 300 of them held all 64 threads: everybody got a 503 until their deadline. Then two
    keys did."""
    options = ("--threads", "64", "--client-seconds", "600")
    options += (
        "--client-keys-file",
        str(keys_file(tmp_path, bob="", **dict.fromkeys(clients, ""))),
    )
    halves = [
        HEAD + f"authorization: Bearer {name}\r\ncontent-length: 9000\r\n\r\n{{".encode()
        for name in clients
    ]
    with proxy(silent.base_url, tmp_path / "log", "--database", ":memory:", *options) as (_, url):
        crowd = Crowd(url)
        with crowd.open:
            for half in halves * (300 // len(halves)):
                crowd.say(half)
            bob = {"authorization": "Bearer bob"}
            wait_until(lambda: send(f"{url}/v1/files", headers=bob)[0] == 200)
            ann = {"authorization": "Bearer ann"}
            status, headers, answer = send(f"{url}/v1/responses", {"model": "m"}, ann)
            refused = {(429, "too_many_open_requests"), (503, "overloaded")}
            assert (status, answer["error"]["code"]) in refused
            assert headers["retry-after"] == "1"


def test_slow_clients_are_disconnected_and_others_served(
    silent: ScriptedUpstream, tmp_path: Path
) -> None:
    options = ("--threads", "2", "--client-seconds", "1")
    with proxy(silent.base_url, tmp_path / "log", "--database", ":memory:", *options) as (_, url):
        crowd = Crowd(url)
        with crowd.open:
            connections = [crowd.say(slow) for slow in SLOW.values() for _ in range(4)]
            for connection in connections:
                heard(connection)  # comes to its end: the server has closed it
            wait_until(lambda: send(f"{url}/v1/files")[0] == 200)


def test_a_slowly_sent_head_does_not_keep_its_connection_alive(
    silent: ScriptedUpstream, tmp_path: Path
) -> None:
    options = ("--threads", "2", "--client-seconds", "1", "--database", ":memory:")
    with proxy(silent.base_url, tmp_path / "log", *options) as (_, url):
        crowd = Crowd(url)
        with crowd.open:
            connection = crowd.say(HEAD)
            ended = threading.Event()

            def drip() -> None:
                while not ended.wait(0.1):
                    try:
                        connection.sendall(b"a: b\r\n")
                    except OSError:
                        return

            thread = threading.Thread(target=drip)
            thread.start()
            heard(connection)  # reaches its end anyway
            ended.set()
            thread.join()


def test_a_head_may_arrive_in_pieces_and_requests_may_be_pipelined(
    silent: ScriptedUpstream, tmp_path: Path
) -> None:
    with proxy(silent.base_url, tmp_path / "log", "--database", ":memory:") as (_, url):
        crowd = Crowd(url)
        one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        with crowd.open:
            connection = crowd.say(b"")
            for n in range(len(one)):
                connection.sendall(one[n : n + 1])
            connection.sendall(one + last)
            answer = heard(connection)
            while b'"ok"' not in answer[-200:] or answer.count(b'"ok"') < 3:
                more = heard(connection)
                assert more, answer
                answer += more
            assert answer.count(b"HTTP/1.1 200") == 3


def test_a_head_without_end_is_refused(silent: ScriptedUpstream, tmp_path: Path) -> None:
    with proxy(silent.base_url, tmp_path / "log", "--database", ":memory:") as (_, url):
        crowd = Crowd(url)
        with crowd.open:
            assert b" 431 " in heard(crowd.say(HEAD + b"a: " + b"b" * 70_000))


def test_bodies_in_memory_are_bounded_together_by_what_was_read(
    start_app: Callable[..., tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies without a length counted as the longest: 32 of them got every other client a 503."""
    monkeypatch.setattr("emulator.web.middleware.admission._BODIES_BYTES", 1_000_000)
    url, _ = start_app()
    crowd, long = Crowd(url), b" " * 500_000
    with crowd.open:
        for _ in range(32):
            crowd.say(SLOW["a chunked body without an end"])
            crowd.say(HEAD + b"content-length: 900000\r\n\r\n")
        upload = b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 800000\r\n"
        upload += b"content-type: multipart/form-data; boundary=B\r\n\r\n--B\r\n"
        crowd.say(upload + b" " * 700_000)  # goes to the disk
        assert send(f"{url}/v1/containers", long)[0] == 400  # it is no JSON
        half = HEAD + b"content-length: 900000\r\n\r\n" + b" " * 800_000
        held = crowd.say(half)

        def is_held() -> bool:
            nonlocal held
            if select.select([held], [], [], 0)[0]:  # refused: it was read beside a long one
                held = crowd.say(half)
            return all(send(f"{url}/v1/containers", long)[0] == 503 for _ in range(2))

        wait_until(is_held)
        status, headers, body = send(f"{url}/v1/containers", long)
        assert (status, body["error"]["code"], headers["retry-after"]) == (503, "overloaded", "1")
        assert send(f"{url}/v1/containers", {"name": "small"})[0] == 200
        held.close()
        wait_until(lambda: send(f"{url}/v1/containers", long)[0] == 400)


def test_a_body_counts_until_it_is_parsed(
    start_app: Callable[..., tuple[str, Any]],
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the model writes, the memory of the bodies is for others."""
    monkeypatch.setattr("emulator.web.middleware.admission._BODIES_BYTES", 1_000_000)
    url, _ = start_app(ping_seconds=0.1)
    upstream.default = Reply(chunks=["word", "x"], fault="silent", after=1)
    crowd, question = Crowd(url), {"role": "user", "content": "Hi " * 200_000}
    with crowd.open:
        for _ in range(3):
            stream = crowd.say(request(STREAM | {"messages": [question]}))
            assert b"word" in heard(stream, b"word")


# Limits of each client


def ask(url: str, key: str = "") -> tuple[int, dict[str, str], Any]:
    return send(f"{url}/v1/files", headers={"authorization": f"Bearer {key}"})


def test_each_client_has_its_own_limit_of_requests_per_minute(
    start_proxy: StartProxy,
) -> None:
    url = start_proxy(client_keys=("a", "b"), client_requests_per_minute=3)
    for left in (2, 1, 0):
        status, headers, _ = ask(url, "a")
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "3"
        assert headers["x-ratelimit-remaining-requests"] == str(left)
        assert headers["x-ratelimit-reset-requests"].endswith("ms")
    status, headers, body = ask(url, "a")
    error = body["error"]
    assert (status, error["type"], error["code"]) == (429, "requests", "rate_limit_exceeded")
    assert 1 <= int(headers["retry-after"]) <= 60
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert ask(url, "b")[0] == 200
    assert ask(url, "c")[0] == 401
    assert send(f"{url}/healthz")[0] == 200


def test_all_clients_together_have_a_limit_of_requests_per_minute(start_proxy: StartProxy) -> None:
    url = start_proxy(client_keys=("a", "b"), requests_per_minute=2)
    assert [ask(url, key)[0] for key in "abab"] == [200, 200, 429, 429]


def test_without_limits_no_rate_limit_headers_are_sent(proxy: str) -> None:
    assert not [name for name in ask(proxy)[1] if name.startswith("x-ratelimit")]


def test_replicas_share_the_limits_and_count_alone_without_the_database(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    file = str(tmp_path / "d.sqlite")
    urls = [start_proxy(database=file, client_requests_per_minute=2) for _ in range(2)]
    assert [ask(url)[0] for url in (*urls, *urls)] == [200, 200, 429, 429]
    with closing(sqlite3.connect(file)) as database:
        database.execute("DROP TABLE rates")
    assert ask(urls[0])[0] == 200


def test_a_stream_counts_as_an_open_request_until_it_ends(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(client_keys=("a", "b"), client_open_requests=2, ping_seconds=0.1)
    upstream.default = Reply(chunks=["word", "x"], fault="silent", after=1)
    crowd = Crowd(url)
    stream = post_bytes("/v1/chat/completions", STREAM, {"authorization": "Bearer a"})
    with crowd.open:
        streams = [crowd.say(stream) for _ in range(2)]
        for stream in streams:
            assert b"word" in heard(stream, b"word")
        authorized = {"authorization": "Bearer a"}
        path = f"{url}/v1/chat/completions"
        status, headers, body = send(path, STREAM, headers=authorized)
        assert (status, body["error"]["code"]) == (429, "too_many_open_requests")
        assert headers["retry-after"] == "1"
        assert ask(url, "a")[0] == ask(url, "b")[0] == 200  # these make no answer
        upstream.default = Reply("Hi.")
        streams[0].close()
        wait_until(lambda: send(path, CHAT, headers=authorized)[0] == 200)


def test_a_client_at_its_limit_polls_and_cancels_its_background_responses(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """One key could hold all places for background responses, and then not even end them."""
    url = start_proxy(client_open_requests=2)
    go_on = threading.Event()

    def slow(_: Any) -> str:
        assert go_on.wait(60)
        return "Done."

    upstream.default = slow
    body = {"model": "m", "input": "Hi.", "background": True}
    made = [send(f"{url}/v1/responses", body) for _ in range(2)]
    assert [status for status, *_ in made] == [200, 200]
    status, _, refused = send(f"{url}/v1/responses", body)
    assert (status, refused["error"]["code"]) == (429, "too_many_open_requests")
    first, second = (f"{url}/v1/responses/{response['id']}" for _, _, response in made)
    assert send(f"{first}/cancel", b"")[2]["status"] == "cancelled"
    assert send(second, None)[2]["status"] in ("queued", "in_progress")
    go_on.set()
    wait_until(lambda: send(second, None)[2]["status"] == "completed")
    wait_until(lambda: send(f"{url}/v1/responses", body)[0] == 200)


def test_a_failed_request_releases_its_slot(start_proxy: StartProxy) -> None:
    url = start_proxy(client_open_requests=1)
    for path, body in (("files/none", None), ("chat/completions", {}), ("nothing", None)):
        for _ in range(3):
            assert send(f"{url}/v1/{path}", body)[0] in (400, 404)
    with ThreadPoolExecutor(8) as pool:
        path = f"{url}/v1/chat/completions"
        statuses = list(pool.map(lambda _: send(path, {})[0], range(40)))
    assert set(statuses) <= {400, 429} and 400 in statuses
    assert send(path, {})[0] == 400
