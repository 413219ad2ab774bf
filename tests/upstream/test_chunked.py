"""The chunked transfer coding, read however it is cut. The reference is `http.client`."""

from __future__ import annotations

import http.client
import io
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.upstream.chunked import BadChunk, ChunkedDecoder

CONTENTS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
ENDS = st.sampled_from([b"0\r\n\r\n", b"0;x=1\r\n\r\n", b"000\r\nx-sum: 1\r\nx-more: 2\r\n\r\n"])


def framed(pieces: list[bytes], end: bytes) -> bytes:
    return b"".join(b"%X;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


def read(body: bytes, cuts: list[int]) -> tuple[bytes, ChunkedDecoder]:
    decoder = ChunkedDecoder()
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    content = b""
    for start, stop in pairwise(places):
        content += decoder.feed(body[start:stop])
    return content, decoder


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def reference(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    response = http.client.HTTPResponse(_Socket(head + body))  # type: ignore[arg-type]
    response.begin()
    return response.read()


@given(CONTENTS, ENDS, st.lists(st.integers(0, 400), max_size=6))
def test_a_body_is_read_alike_however_it_is_cut(
    pieces: list[bytes], end: bytes, cuts: list[int]
) -> None:
    body = framed(pieces, end)
    content, decoder = read(body, cuts)
    assert content == b"".join(pieces) == reference(body)
    assert decoder.ended
    assert decoder.rest == b""


@given(
    CONTENTS, ENDS, st.binary(min_size=1, max_size=20), st.lists(st.integers(0, 400), max_size=4)
)
def test_what_follows_the_end_is_no_part_of_the_body(
    pieces: list[bytes], end: bytes, behind: bytes, cuts: list[int]
) -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(framed(pieces, end) + behind) == b"".join(pieces)
    assert decoder.rest == behind


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"x\r\n", "how long"),
        (b"-5\r\nhello", "how long"),
        (b"+5\r\nhello", "how long"),
        (b"0x5\r\nhello", "how long"),
        (b"\r\n", "how long"),
        (b"F" * 16 + b"\r\n", "how long"),
        (b"5\r\nhello!\r\n", "longer"),
        (b"5\r\nhello\n\n", "how long"),
        (b"5;" + b"a" * 20_000, "no end"),
        (b"0\r\n" + b"a: b\r\n" * 200, "trailers"),
    ],
)
def test_garbage_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(BadChunk, match=problem):
        ChunkedDecoder().feed(body)


@pytest.mark.parametrize("body", [b"", b"5", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n"])
def test_a_body_that_breaks_off_is_noticed(body: bytes) -> None:
    decoder = ChunkedDecoder()
    decoder.feed(body)
    with pytest.raises(BadChunk, match="middle"):
        decoder.close()


def test_the_last_line_may_be_missing() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"5\r\nhello\r\n0\r\n") == b"hello"
    decoder.close()
    assert decoder.ended
