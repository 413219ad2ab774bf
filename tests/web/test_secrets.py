"""Keys stay where they are, and what others say does not write our log."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
import structlog

from emulator import logs
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

SECRET = "sk-the-operators-own-key"
CLIENT = "a-clients-own-key"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
QUOTED = {"error": {"message": f"Incorrect API key provided: {SECRET}.", "code": "invalid_api_key"}}
REPLIES = {
    "in the body of a 401": Reply(status=401, body=QUOTED),
    "in a body that is text": Reply(status=500, body=f"bad key {SECRET}"),
    "in a stream": Reply(frames=[f'data: {{"error": {{"message": "{SECRET}"}}}}\n\n'.encode()]),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[io.StringIO, Terminal], ids=["file", "terminal"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = request.param()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("debug")
    yield stream
    monkeypatch.undo()
    logs.configure("warning")


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize("where", REPLIES)
def test_a_key_that_the_upstream_quotes_reaches_neither_client_nor_log(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    log: io.StringIO,
    where: str,
    tools: list[Any],
) -> None:
    url = start_proxy(api_key=SECRET, client_keys=(CLIENT,), upstream_retries=0)
    upstream.reply(REPLIES[where])
    body = BODY | ({"tools": tools} if tools else {})
    headers = {"authorization": f"Bearer {CLIENT}"}
    _, told, answer = send(f"{url}/v1/chat/completions", body, headers)
    assert upstream.headers[-1]["authorization"] == f"Bearer {SECRET}"
    for text in (str(answer), str(told), log.getvalue()):
        assert SECRET not in text
        assert CLIENT not in text
    assert "[the upstream's key]" in answer["error"]["message"]


HOSTILE = "/v1/%0aforged%20line%1b%5b31m%c2%85%e2%80%ae%0d"


def test_a_path_writes_no_line_of_its_own_into_the_log(
    start_proxy: StartProxy, log: io.StringIO
) -> None:
    url = start_proxy()
    assert send(f"{url}{HOSTILE}")[0] in (400, 404)
    structlog.get_logger().info("said", name="a\x1b[2Jb\nc\u202ed")
    lines = log.getvalue().splitlines()
    assert not any(line.lstrip().startswith("forged") for line in lines)
    assert "\x1b[2J" not in log.getvalue() and "\u202e" not in log.getvalue()
    assert r"\x1b[2Jb\nc\u202ed" in log.getvalue().replace("\\\\", "\\")
