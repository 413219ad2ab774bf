"""Every frame of every front's stream is one that sse-starlette's event class writes."""

from __future__ import annotations

from typing import Any

import pytest
from sse_starlette import ServerSentEvent

from tests.conftest import StartProxy
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream

MESSAGES = [{"role": "user", "content": "Hi"}]
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", {"messages": MESSAGES}),
    "responses": ("responses", {"input": "Hi"}),
    "messages": ("messages", {"messages": MESSAGES, "max_tokens": 50}),
}
REPLIES = {
    # Long enough for a comment or two between its words; this test does not check them.
    "whole": Reply(chunks=["One\u2028line\r\n", "and é\n\n", "data: x"], delay=0.1),
    "broken off": Reply(chunks=["One", "two"], fault="drop", after=1),
}


def written(frame: bytes) -> bytes:
    """The frame as the library writes its content."""
    fields: dict[str, list[str]] = {}
    for line in frame.decode().split("\n"):
        name, _, value = line.partition(": ")
        fields.setdefault(name, []).append(value)
    assert fields.keys() <= {"", "event", "data"}, frame
    said = {"comment": fields.get(""), "event": fields.get("event"), "data": fields.get("data")}
    joined = {name: "\n".join(lines) for name, lines in said.items() if lines is not None}
    return ServerSentEvent(joined.pop("data", None), **joined, sep="\n").encode()


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("reply", REPLIES)
def test_each_frame_is_as_the_library_writes_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream, front: str, reply: str
) -> None:
    url = start_proxy(ping_seconds=0.02, upstream_retries=0)
    upstream.reply(REPLIES[reply])
    path, body = FRONTS[front]
    _, _, data = fetch(f"{url}/v1/{path}", {"model": "m", "stream": True, **body})
    frames = data.split(b"\n\n")
    assert frames.pop() == b"", "the last one is whole"
    assert len(frames) > 2
    assert [written(frame) for frame in frames] == [frame + b"\n\n" for frame in frames]
