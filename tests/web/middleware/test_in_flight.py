"""What the server holds for a request ends with it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from emulator.web.middleware.in_flight import RequestInFlight
from tests.support.processes import wait_until
from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
CALL = '```tool_code\nget_weather(location="Oslo")\n```'


def flights() -> list[RequestInFlight]:
    # By its type: a proxy of something that is gone refuses `isinstance`.
    return [one for one in gc.get_objects() if type(one) is RequestInFlight]


@pytest.mark.parametrize(
    ("path", "body", "reply", "status"),
    [
        ("/v1/chat/completions", ASK, "Hello.", 200),
        ("/v1/chat/completions", ASK | {"stream": True}, "Hello.", 200),
        ("/v1/chat/completions", ASK | {"tools": [GET_WEATHER]}, CALL, 200),
        ("/v1/messages", ASK | {"max_tokens": 9}, "Hello.", 200),
        ("/v1/responses", {"model": "m", "input": "Hello", "stream": True}, "Hello.", 200),
        ("/v1/chat/completions", {"model": "m"}, "", 400),
        ("/v1/nothing", ASK, "", 404),
    ],
)
def test_a_request_is_freed_without_the_collector_of_cycles(
    start_app: Callable[..., tuple[str, Any]],
    upstream: ScriptedUpstream,
    path: str,
    body: Any,
    reply: str,
    status: int,
) -> None:
    """It held its environment, and was held by it: bodies stayed in memory until a collection, and these
    stopped all streams for 10 to 40 ms."""
    url, _ = start_app()
    upstream.reply(reply)
    gc.collect()
    others = {*map(id, flights())}  # of other tests, whose clients may have left
    gc.disable()
    try:
        assert fetch(url + path, body)[0] == status
        wait_until(lambda: {*map(id, flights())} <= others)
    finally:
        gc.enable()
