"""The chunked transfer coding, cut at any place. The reference is `http.client`."""

from __future__ import annotations

import http.client
import io
import socket
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.upstream.chunked import BadChunk, ChunkedDecoder
from emulator.upstream.connections import RawResponse

CONTENTS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
ENDS = st.sampled_from([b"0\r\n\r\n", b"0;x=1\r\n\r\n", b"000\r\nx-sum: 1\r\nx-more: 2\r\n\r\n"])


def framed(pieces: list[bytes], end: bytes) -> bytes:
    return b"".join(b"%X;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


def decode(body: bytes, cuts: list[int]) -> tuple[bytes, ChunkedDecoder]:
    decoder = ChunkedDecoder()
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    content = b""
    for start, stop in pairwise(places):
        content += decoder.feed(body[start:stop])
    return content, decoder


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def reference(body: bytes) -> bytes:
    response = http.client.HTTPResponse(_Socket(HEAD + body))  # type: ignore[arg-type]
    response.begin()
    return response.read()


@given(CONTENTS, ENDS, st.lists(st.integers(0, 400), max_size=6))
def test_a_body_is_the_same_wherever_it_is_cut(
    pieces: list[bytes], end: bytes, cuts: list[int]
) -> None:
    body = framed(pieces, end)
    content, decoder = decode(body, cuts)
    assert content == b"".join(pieces) == reference(body)
    assert decoder.ended
    assert decoder.rest == b""


class _ReadAhead(socket.socket):
    """Its files hold 128 KiB, as those of all sockets do since Python 3.14."""

    def makefile(self, *_: Any) -> Any:
        return super().makefile("rb", buffering=2**17)


def test_a_body_that_arrives_with_its_head_is_whole() -> None:
    """What the first read left in the buffer was lost: beyond 64 KiB, which Python 3.14 made possible."""
    pieces = [b"data: %d\n\n" % n for n in range(6000)]
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(HEAD + framed(pieces, b"0\r\n\r\n"))
    with _ReadAhead(fileno=ours.detach()) as sock:
        response = RawResponse(sock)
        response.begin()
        assert b"".join(iter(response.read1, b"")) == b"".join(pieces)


@given(
    CONTENTS, ENDS, st.binary(min_size=1, max_size=20), st.lists(st.integers(0, 400), max_size=4)
)
def test_bytes_after_the_end_are_not_part_of_the_body(
    pieces: list[bytes], end: bytes, extra: bytes, cuts: list[int]
) -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(framed(pieces, end) + extra) == b"".join(pieces)
    assert decoder.rest == extra


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"x\r\n", "declare"),
        (b"-5\r\nhello", "declare"),
        (b"+5\r\nhello", "declare"),
        (b"0x5\r\nhello", "declare"),
        (b"\r\n", "declare"),
        (b"F" * 16 + b"\r\n", "declare"),
        (b"5\r\nhello!\r\n", "longer"),
        (b"5\r\nhello\n\n", "declare"),
        (b"5;" + b"a" * 20_000, "no end"),
        (b"0\r\n" + b"a: b\r\n" * 200, "trailers"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(BadChunk, match=problem):
        ChunkedDecoder().feed(body)


@pytest.mark.parametrize("body", [b"", b"5", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n"])
def test_a_truncated_body_is_refused(body: bytes) -> None:
    decoder = ChunkedDecoder()
    decoder.feed(body)
    with pytest.raises(BadChunk, match="middle"):
        decoder.close()


def test_the_empty_line_at_the_end_may_be_missing() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"5\r\nhello\r\n0\r\n") == b"hello"
    decoder.close()
    assert decoder.ended
