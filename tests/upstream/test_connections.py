"""Connections to an upstream: which of them serve another request, what ends them, and proxies."""

from __future__ import annotations

import gzip
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from pydantic import SecretStr

from emulator.core import client_disconnect
from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.errors import UpstreamFailed
from emulator.settings.settings import Settings
from emulator.upstream.client import OpenAIUpstream
from emulator.upstream.pass_through import PassedOnRequest
from tests.support.forward_proxy import ForwardProxy, forward_proxy
from tests.support.scripted import DONE, delta
from tests.support.serving import serving

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nset-cookie: whose=theirs\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENTS = delta("Hello") + delta(finish="stop") + DONE
ANSWER = HEAD + piece(delta("Hello")) + piece(delta(finish="stop")) + piece(DONE)
_COMPRESSED = gzip.compress(EVENTS)
_ENDLESS = b'{"error": {"message": "No.", "code": "no_such"}}' + b" " * 2**20
RESPONSES = {
    "compressed": HEAD.replace(b"set-cookie", b"content-encoding: gzip\r\nset-cookie")
    + piece(_COMPRESSED[:30])
    + piece(_COMPRESSED[30:])
    + LAST,
    "long refusal": b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % (2 * len(_ENDLESS)) + _ENDLESS,
    "complete": ANSWER + LAST,
    "end with the last event": HEAD + piece(EVENTS) + LAST,
    "no end": ANSWER,
    "bad chunk": HEAD + piece(delta("Hello")) + b"ZZ\r\n",
    "with a length": b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(EVENTS) + EVENTS,
    "closed": b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + EVENTS,
    "old": b"HTTP/1.0 200 OK\r\n\r\n" + EVENTS,
    "no end, with a length, no [DONE]": b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"
    + delta("Hello"),
    "no end, closed, no [DONE]": b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + delta("Hello"),
    "no end, old, no [DONE]": b"HTTP/1.0 200 OK\r\n\r\n" + delta("Hello"),
    "no end, no [DONE]": HEAD + piece(delta("Hello")) + piece(delta(finish="stop")),
    "no head": b"",
    "slow refusal": b"HTTP/1.1 429 Slow Down\r\ncontent-length: 99\r\n\r\n" + b"slow",
    "with extra bytes": ANSWER + LAST + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
}

CLOSED = (RESPONSES["closed"], RESPONSES["old"])


class Counting(socketserver.ThreadingTCPServer):
    """Responds with the row that ``model`` names of `RESPONSES`, and counts connections."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0
        self.targets: list[bytes] = []
        self.fields: list[dict[bytes, bytes]] = []
        """The headers of each request."""
        self.ended = threading.Event()
        """A client has closed its connection."""

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
            response = next(RESPONSES[name] for name in RESPONSES if f'"{name}"' in body)
            self.wfile.write(response)
            if response in CLOSED:
                return
        self.server.ended.set()


@pytest.fixture
def server() -> Iterator[Counting]:
    with serving(Counting()) as counting:
        yield counting


@contextmanager
def upstream_at(url: str, headers: dict[str, str] | None = None, **settings: Any) -> Iterator[Any]:
    secret = {name: SecretStr(value) for name, value in (headers or {}).items()}
    upstream = OpenAIUpstream(Settings(base_url=url, api_key="sk-1", **settings), secret)
    yield upstream
    upstream.close()


@pytest.fixture
def upstream(server: Counting) -> Iterator[OpenAIUpstream]:
    with upstream_at(f"{server.url}/v1", {"x-team": "blue"}, upstream_seconds=30) as opened:
        yield opened


def count_chunks(upstream: OpenAIUpstream, model: str, key: str | None = None) -> int:
    with upstream.open(MESSAGES, {"model": model}, key=key) as reply:
        return len(list(reply))


@pytest.mark.parametrize(
    ("model", "connections"),
    [
        ("complete", 1),
        ("end with the last event", 1),
        ("compressed", 1),
        ("with a length", 1),
        ("no end", 3),
        ("with extra bytes", 3),
        ("closed", 3),
        ("old", 3),
    ],
)
def test_a_connection_serves_the_next_request_if_its_response_ended_as_declared(
    server: Counting, upstream: OpenAIUpstream, model: str, connections: int
) -> None:
    """The end of each response used to be unread, so that each request needed a connection of its own."""
    assert [count_chunks(upstream, model) for _ in range(3)] == [2, 2, 2]
    assert server.connections == connections


def test_a_malformed_body_is_reported_and_ends_its_connection(
    server: Counting, upstream: OpenAIUpstream
) -> None:
    with pytest.raises(UpstreamFailed, match="does not declare its size"):
        count_chunks(upstream, "bad chunk")
    assert count_chunks(upstream, "complete") == 2
    assert server.connections == 2


def test_a_long_refusal_is_not_read_to_its_end(upstream: OpenAIUpstream) -> None:
    """Its second half is announced and never sent."""
    with pytest.raises(UpstreamFailed, match="No\\.") as refused:
        count_chunks(upstream, "long refusal")
    assert (refused.value.status, refused.value.code) == (404, "no_such")


def test_a_refusal_is_read_until_the_answers_deadline(upstream: OpenAIUpstream) -> None:
    with pytest.raises(UpstreamFailed, match="slow") as refused:
        upstream.open(MESSAGES, {"model": "slow refusal"}, until=time.monotonic() + 0.3)
    assert refused.value.status == 429
    assert refused.value.message == "slow"


def test_a_response_that_is_closed_early_ends_its_connection(
    server: Counting, upstream: OpenAIUpstream
) -> None:
    with upstream.open(MESSAGES, {"model": "no end"}) as reply:
        assert next(iter(reply))["choices"][0]["delta"]["content"] == "Hello"
    assert count_chunks(upstream, "complete") == 2
    assert server.connections == 2


@pytest.mark.parametrize(
    ("model", "chunks"),
    [("no end", 2), ("no end, with a length", 1), ("no end, closed", 1), ("no end, old", 1)],
)
def test_a_client_that_disconnects_ends_the_upstreams_connection(
    server: Counting, upstream: OpenAIUpstream, model: str, chunks: int
) -> None:
    """With ``connection: close`` and HTTP/1.0, http.client has forgotten the socket by then."""
    client = ClientDisconnect()
    token = client_disconnect.current.set(client)
    try:
        with upstream.open(MESSAGES, {"model": f"{model}, no [DONE]"}) as reply:
            received = iter(reply)
            for _ in range(chunks):
                next(received)
            threading.Timer(0.1, client.report).start()
            with suppress(UpstreamFailed):
                next(received)
            assert server.ended.wait(10)
    finally:
        client_disconnect.current.reset(token)


def test_a_client_that_disconnects_does_not_wait_for_an_upstream_without_a_response(
    server: Counting, upstream: OpenAIUpstream
) -> None:
    client = ClientDisconnect()
    token = client_disconnect.current.set(client)
    try:
        threading.Timer(0.1, client.report).start()
        with pytest.raises(UpstreamFailed):
            upstream.open(MESSAGES, {"model": "no head"})
        assert server.ended.wait(10)
    finally:
        client_disconnect.current.reset(token)


def test_a_late_disconnect_does_not_end_the_next_response(upstream: OpenAIUpstream) -> None:
    with upstream.open(MESSAGES, {"model": "complete"}) as first:
        assert len(list(first)) == 2
        with upstream.open(MESSAGES, {"model": "complete"}) as second:
            first._response.shut_down()  # type: ignore[attr-defined]
            assert len(list(second)) == 2


def test_an_upstream_gets_the_headers_that_it_needs(
    server: Counting, upstream: OpenAIUpstream
) -> None:
    """Cookies of one answer used to go with the requests of all other clients."""
    for key in (None, "sk-2"):
        Context().run(
            count_chunks, upstream, "complete", key
        )  # no header of another test's request
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


def test_a_name_and_password_in_the_url_are_sent(server: Counting) -> None:
    with upstream_at(server.url.replace("http://", "http://ada:se%40cret@")) as upstream:
        count_chunks(upstream, "complete")
    assert server.fields[0][b"authorization"] == b"Basic YWRhOnNlQGNyZXQ="


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_late_response_is_waited_for_longer_than_a_connection(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("emulator.upstream.client._CONNECT_SECONDS", 0.2)

    class Late(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            time.sleep(0.5)
            self.wfile.write(HEAD if method == "HEAD" else HEAD + piece(b"{}") + LAST)
            self.rfile.read()

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Late)) as late:
        url = f"http://127.0.0.1:{late.server_address[1]}"
        with upstream_at(url) as upstream:
            response = upstream.pass_on(PassedOnRequest(method, "files/one", b"", {}, b""))
            assert b"".join(response.body) == (b"" if method == "HEAD" else b"{}")


PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardProxy]:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with forward_proxy() as server:
        yield server


@pytest.mark.parametrize(
    ("variables", "is_used"),
    [
        ({"HTTP_PROXY": "http://ada:secret@{}"}, True),
        ({"http_proxy": "http://ada:secret@{}"}, True),
        ({"ALL_PROXY": "ada:secret@{}"}, True),
        ({"HTTPS_PROXY": "http://ada:secret@{}"}, False),
        ({"HTTP_PROXY": "http://ada:secret@{}", "NO_PROXY": "model.test"}, True),
        ({"HTTP_PROXY": "http://ada:secret@{}", "NO_PROXY": "other.test,127.0.0.1"}, False),
        ({"HTTP_PROXY": "http://ada:secret@{}", "NO_PROXY": "*"}, False),
    ],
)
def test_requests_go_through_the_proxy_that_the_environment_names(
    server: Counting,
    proxy: ForwardProxy,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    is_used: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(proxy.url.removeprefix("http://")))
    with upstream_at(f"{server.url}/v1") as upstream:
        assert [count_chunks(upstream, "complete") for _ in range(2)] == [2, 2]
        response = upstream.pass_on(
            PassedOnRequest("POST", "a", b"b=c d", {}, b'{"with a length"}')
        )
        assert b"Hello" in b"".join(response.body)
        with pytest.raises(UpstreamFailed, match="No\\."):
            count_chunks(upstream, "long refusal")
    assert server.targets[2].endswith(b"/v1/a?b=c%20d")
    assert bool(proxy.heads) is is_used
    for head in proxy.heads:
        assert head.startswith(b"POST %b/v1/" % server.url.encode())
        assert b"proxy-authorization: Basic YWRhOnNlY3JldA==" in head


def test_an_https_upstream_is_reached_through_a_tunnel_and_verified(
    server: Counting, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=model.test", "-addext", "subjectAltName=DNS:model.test"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    # Elsewhere all tests share one context.
    own_context = httpcore2.default_ssl_context.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(httpcore2, "default_ssl_context", own_context)
    url = f"https://model.test:{server.server_address[1]}/v1"
    with upstream_at(url) as upstream, pytest.raises(UpstreamFailed, match="CERTIFICATE") as failed:
        count_chunks(upstream, "complete")
    assert failed.value.code == "upstream_down"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with upstream_at(url) as upstream:
        assert [count_chunks(upstream, "complete") for _ in range(2)] == [2, 2]
    # Python 3.12 and newer say HTTP/1.1.
    assert [head.split(b" HTTP/1.")[0] for head in proxy.heads] == [
        b"CONNECT model.test:%d" % server.server_address[1]
    ] * 2


@pytest.mark.parametrize(
    ("proxy_url", "problem"),
    [
        (
            "http://ada:secret@127.0.0.1:1",
            "cannot be reached: its proxy \\(HTTP_PROXY.*Connection refused",
        ),
        ("socks5://ada:secret@127.0.0.1:1", "The proxy socks5://127.0.0.1:1 .* is not supported"),
        ("::nonsense::", "The proxy http://::nonsense:: .* is not supported"),
    ],
)
def test_a_proxy_that_fails_is_named_without_its_password(
    proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch, proxy_url: str, problem: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy_url)
    with (
        pytest.raises(UpstreamFailed, match=problem) as failed,
        upstream_at("http://model.test/v1") as upstream,
    ):
        count_chunks(upstream, "complete")
    assert "secret" not in failed.value.message
    assert proxy.heads == []
