"""Request bodies at their largest length and beyond, over gunicorn and a raw socket, on every route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.support.processes import proxy
from tests.support.raw_http import connect, read_until, send
from tests.support.scripted import ScriptedUpstream
from tests.support.uploads import form

LARGEST, LARGEST_FILE = 4096, 10_000
LARGEST_FORM = LARGEST_FILE + 64 * 1024
OTHER_PATHS = ("/v1/embeddings", "/v1/audio/speech")
"""Requests that are passed on to the upstream."""
NEXT = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = (f"--max-body-bytes={LARGEST}", f"--max-file-bytes={LARGEST_FILE}")
    log = tmp_path_factory.mktemp("proxy") / "log"
    with (
        ScriptedUpstream(default="Hello.") as upstream,
        proxy(upstream.base_url, log, *options, "--database=:memory:") as (_, url),
    ):
        yield url


def routes(url: str) -> Iterator[tuple[str, str, list[str]]]:
    """Method, path and media types of each route that takes a body."""
    container = send(f"{url}/v1/containers", {"name": "c"})[2]["id"]
    conversation = send(f"{url}/v1/conversations", {})[2]["id"]
    ids = {"container_id": container, "conversation_id": conversation}
    for path, operations in send(f"{url}/openapi.json")[2]["paths"].items():
        filled = re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], "x"), path)
        query = "?identifier=a-session&api-version=1" if "/sessions/" in path else ""
        for method, operation in operations.items():
            if "requestBody" in operation:
                media = [*operation["requestBody"]["content"]]
                yield method.upper(), filled + query, media
    for path in OTHER_PATHS:
        yield "POST", path, ["application/json"]


def request(method: str, path: str, media: str, body: bytes, framing: str) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\n".encode()
    if framing == "length":
        return head + f"content-length: {len(body)}\r\n\r\n".encode() + body
    chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + b"transfer-encoding: chunked\r\n\r\n" + sent + b"0\r\n\r\n"


def answers(url: str, sent: bytes) -> tuple[int, bytes, int]:
    """The first answer's status and head, and the number of answers until the server closes."""
    received = b""
    with closing(connect(url)) as connection:
        with suppress(ConnectionError):  # the server may have closed
            connection.sendall(sent)
        while received.count(b"HTTP/1.1 ") < 2 and (data := connection.recv(65536)):
            received += data
    return int(received[9:12]), received.split(b"\r\n\r\n")[0].lower(), received.count(b"HTTP/1.1 ")


def json_of(size: int) -> bytes:
    """Valid whatever is cut from its end."""
    return b'{"name": "c", "code": "1"}'.ljust(size)


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_json_body_beyond_the_limit_is_a_413_on_every_route(url: str, framing: str) -> None:
    """A chunked one was cut at the limit, and read as if that were all of it."""
    tried = 0
    for method, path, media in routes(url):
        if "application/json" not in media:
            continue
        tried += 1
        for size in (LARGEST, LARGEST + 1, 50 * LARGEST):
            sent = request(method, path, "application/json", json_of(size), framing)
            status, head, number = answers(url, sent + NEXT)
            if size == LARGEST:
                assert (status != 413, number) == (True, 2), (path, head)
            else:
                assert (status, number) == (413, 1), (path, size, head)
                assert b"connection: close" in head, (path, head)
    assert tried >= 18


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_form_beyond_the_limit_is_a_413_on_every_route(url: str, framing: str) -> None:
    tried = 0
    for method, path, media in routes(url):
        if "multipart/form-data" not in media:
            continue
        tried += 1
        for size, of_form, expected in (
            (LARGEST_FILE, 0, 200),
            (LARGEST_FILE + 1, 0, 413),
            (100, LARGEST_FORM, 200),
            (100, LARGEST_FORM + 1, 413),
            (100, 5 * LARGEST_FORM, 413),
        ):
            fields = {"purpose": "user_data", "more": ""}
            body, headers = form(fields, ("a.txt", b"x" * size))
            fields["more"] = "y" * max(0, of_form - len(body))
            body, headers = form(fields, ("a.txt", b"x" * size))
            assert len(body) == (of_form or len(body))
            sent = request(method, path, headers["content-type"], body, framing)
            status, head, number = answers(url, sent + NEXT)
            assert status in (expected, expected + 1), (path, size, of_form, head)  # 201: created
            if expected == 413:
                assert (number, b"connection: close" in head) == (1, True), (path, head)
    assert tried >= 4


def test_an_endless_body_is_answered_while_it_is_sent(url: str) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(url, head) as connection:
        for _ in range(2 * LARGEST // 1000):
            connection.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
        answer = read_until(connection, f"larger than {LARGEST} bytes".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_of_the_largest_length_is_read_whole(url: str) -> None:
    body = b'{"metadata": {"a": "b"}, "items": []' + b" " * LARGEST
    body = body[: LARGEST - 1] + b"}"
    sent = request("POST", "/v1/conversations", "application/json", body, "chunked")
    assert answers(url, sent + NEXT)[0] == 200
