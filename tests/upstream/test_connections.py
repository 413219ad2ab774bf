"""Connections to an upstream: which are used again, and who stands between."""

from __future__ import annotations

import gzip
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from emulator.errors import UpstreamFailed
from emulator.settings import Settings
from emulator.upstream.client import OpenAIUpstream
from emulator.upstream.pass_through import PassThrough
from tests.support.bad_upstream import DONE, delta

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nset-cookie: whose=theirs\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"
ASKED = [{"role": "user", "content": "Hello"}]


def piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ANSWER = HEAD + piece(delta("Hello")) + piece(delta(finish="stop")) + piece(DONE)
_SQUEEZED = gzip.compress(delta("Hello") + delta(finish="stop") + DONE)
_ENDLESS = b'{"error": {"message": "No.", "code": "no_such"}}' + b" " * 2**20
TAILS = {
    "compressed, unasked": HEAD.replace(b"set-cookie", b"content-encoding: gzip\r\nset-cookie")
    + piece(_SQUEEZED[:30])
    + piece(_SQUEEZED[30:])
    + LAST,
    "refused at length": b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % (2 * len(_ENDLESS)) + _ENDLESS,
    "at once": ANSWER + LAST,
    "with the last event": HEAD + piece(delta("Hello") + delta(finish="stop") + DONE) + LAST,
    "never": ANSWER,
    "not in chunks": HEAD + piece(delta("Hello")) + b"ZZ\r\n",
    "with more than it should": ANSWER + LAST + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
}


class Counting(socketserver.ThreadingTCPServer):
    """Answers requests with ``model``'s row of `TAILS`, and counts connections."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0
        self.targets: list[bytes] = []
        self.fields: list[dict[bytes, bytes]] = []
        """The headers of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    server: Counting

    def handle(self) -> None:
        self.server.connections += 1
        while line := self.rfile.readline():
            self.server.targets.append(line.split()[1])
            fields: dict[bytes, bytes] = {}
            while (field := self.rfile.readline().strip()) != b"":
                name, _, value = field.partition(b":")
                assert name.lower() not in fields, f"{name!r} twice"
                fields[name.lower()] = value.strip()
            self.server.fields.append(fields)
            body = self.rfile.read(int(fields[b"content-length"])).decode()
            self.wfile.write(next(TAILS[name] for name in TAILS if f'"{name}"' in body))


@pytest.fixture
def server() -> Iterator[Counting]:
    with Counting() as counting:
        threading.Thread(target=counting.serve_forever, args=[0.02], daemon=True).start()
        yield counting
        counting.shutdown()


def answers(upstream: OpenAIUpstream, model: str) -> int:
    """How many chunks one answer has."""
    with upstream.open(ASKED, {"model": model}) as reply:
        return len(list(reply))


@pytest.mark.parametrize(("model", "connections"), [("at once", 1), ("with the last event", 1)])
def test_a_connection_serves_the_next_request(
    server: Counting, model: str, connections: int
) -> None:
    """Each answer's end used to be left unread, so that each request needed a connection of its own."""
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none"))
    assert [answers(upstream, model) for _ in range(3)] == [2, 2, 2]
    assert server.connections == connections
    upstream.close()


def test_a_body_without_an_end_is_not_waited_for(server: Counting) -> None:
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none"))
    assert [answers(upstream, "never") for _ in range(3)] == [2, 2, 2]
    assert server.connections == 3
    upstream.close()


def test_what_comes_behind_an_answer_is_not_taken_for_the_next(server: Counting) -> None:
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none"))
    assert [answers(upstream, "with more than it should") for _ in range(3)] == [2, 2, 2]
    assert server.connections == 3
    upstream.close()


def test_what_is_wrong_with_a_body_is_said_and_ends_its_connection(server: Counting) -> None:
    upstream = OpenAIUpstream(
        Settings(base_url=server.url, api_key="none", upstream_seconds=2, upstream_retries=0)
    )
    with pytest.raises(UpstreamFailed, match="does not say how long"):
        answers(upstream, "not in chunks")
    assert answers(upstream, "at once") == 2
    assert server.connections == 2
    upstream.close()


def test_an_answer_that_was_compressed_unasked_is_read(server: Counting) -> None:
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none"))
    assert [answers(upstream, "compressed, unasked") for _ in range(2)] == [2, 2]
    upstream.close()


def test_a_refusal_is_not_read_to_its_end_where_that_is_far(server: Counting) -> None:
    """A second half of it is announced and never comes."""
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none", upstream_seconds=30))
    with pytest.raises(UpstreamFailed, match="No\\.") as refused:
        answers(upstream, "refused at length")
    assert (refused.value.status, refused.value.code) == (404, "no_such")
    upstream.close()


def test_an_answer_that_was_left_early_takes_its_connection_along(server: Counting) -> None:
    upstream = OpenAIUpstream(Settings(base_url=server.url, api_key="none"))
    with upstream.open(ASKED, {"model": "never"}) as reply:
        assert next(iter(reply))["choices"][0]["delta"] == {"content": "Hello"}
    assert answers(upstream, "at once") == 2
    assert server.connections == 2
    upstream.close()


def test_a_proxy_in_the_environment_is_asked(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    upstream = OpenAIUpstream(Settings(base_url="http://model.test/v1", api_key="none"))
    assert answers(upstream, "at once") == 2
    assert server.targets == [b"http://model.test/v1/chat/completions"]
    upstream.close()


def test_an_upstream_is_told_what_it_needs(server: Counting) -> None:
    """Cookies of one answer used to go with the requests of all other clients."""
    settings = Settings(base_url=f"{server.url}/v1", api_key="sk-1")
    upstream = OpenAIUpstream(settings, {"x-team": "blue"})
    answers(upstream, "at once")
    with upstream.open(ASKED, {"model": "at once"}, key="sk-2") as reply:
        list(reply)
    upstream.close()
    assert server.targets == [b"/v1/chat/completions"] * 2
    keys = [fields.pop(b"authorization") for fields in server.fields]
    assert keys == [b"Bearer sk-1", b"Bearer sk-2"]
    first, second = server.fields
    assert first == second
    assert first[b"content-type"] == b"application/json"
    assert first[b"x-team"] == b"blue"
    assert set(first) == {
        *(b"host", b"content-length", b"content-type", b"accept", b"accept-encoding"),
        *(b"user-agent", b"x-team"),
    }


def test_a_late_answer_to_a_get_is_waited_for_as_long_as_any() -> None:
    """It was given only as long as a connection may take to be made."""

    class Late(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            time.sleep(0.5)
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Late) as late:
        threading.Thread(target=late.serve_forever, args=[0.02], daemon=True).start()
        url = f"http://127.0.0.1:{late.server_address[1]}"
        passing = PassThrough(Settings(base_url=url, api_key="none", upstream_connect_seconds=0.2))
        answer = passing.send("GET", "files/one", b"", {}, b"")
        assert b"".join(answer.body) == b"{}"
        passing.close()
        late.shutdown()


def test_a_name_and_password_in_the_url_are_sent(server: Counting) -> None:
    url = server.url.replace("http://", "http://ada:secret@")
    upstream = OpenAIUpstream(Settings(base_url=url, api_key="none"))
    answers(upstream, "at once")
    upstream.close()
    assert server.fields[0][b"authorization"] == b"Basic YWRhOnNlY3JldA=="
