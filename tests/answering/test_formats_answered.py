"""Every format of tests/support/formats.md leaves the proxy as calls: what judges a reply knows it too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.formats import BEFORE, FORMATS, VARIANTS, Format, reply
from tests.support.raw_http import send
from tests.support.replies import same_calls
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

_TYPES = {"days": "integer", "when": "object", "guests": "array"}


def _tool(name: str, *arguments: str) -> Any:
    parameters = strings(optional=arguments)
    for argument in arguments:
        parameters["properties"][argument] = {"type": _TYPES.get(argument, "string")}
    return function(name, parameters)


TOOLS = [
    _tool("get_weather", "city", "days"),
    _tool("get_time", "tz"),
    _tool("search", "query"),
    _tool("send_email", "to", "body"),
    _tool("create_event", "title", "when", "guests"),
    _tool("sentiment_analysis", "text"),
    _tool("parse_json", "text"),
]


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_a_reply_in_a_format_that_models_are_trained_on_is_answered_with_its_calls(
    format: Format, proxy: str, upstream: ScriptedUpstream
) -> None:
    """The calls of Functionary were shown: ``>>>`` was taken for the prompt of a session."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Do it."}], "tools": TOOLS}
    for variant in VARIANTS.keys() - {"wrong name", "cut off"} - format.unread.keys():
        upstream.reply(reply(format, variant))
        upstream.default, before = "RUN", len(upstream.requests)
        _, _, answer = send(f"{proxy}/v1/chat/completions", body)
        message = answer["choices"][0]["message"]
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        # A fence among words is asked about.
        assert len(upstream.requests) - before <= 2
        # Calls that may depend on one another leave one after the other.
        assert calls and same_calls(calls, VARIANTS[variant][: len(calls)]), (variant, message)
        if variant == "prose" and format.shown:
            assert BEFORE in message["content"], variant
