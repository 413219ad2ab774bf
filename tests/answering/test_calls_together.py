"""Calls of a JSON list or of repeated markup leave in one message, as native servers send them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.chat import BOTH, calls
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [function("send_mail", strings("to")), function("delete_file", strings("path"))]
CALLS: list[tuple[str, dict[str, str]]] = [
    ("send_mail", {"to": "a"}),
    ("delete_file", {"path": "b"}),
    ("send_mail", {"to": "c"}),
]
OBJECTS = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in CALLS]
HERMES = "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in OBJECTS)
QWEN = "\n".join(
    f"<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    for name, arguments in CALLS
    for key, value in arguments.items()
)
WRITTEN = {
    "a list": f"[{', '.join(OBJECTS)}]",
    "a labelled list": f"```tool_code\n[{', '.join(OBJECTS)}]\n```",
    "Mistral": f"[TOOL_CALLS][{', '.join(OBJECTS)}]",
    "objects": "\n".join(OBJECTS),
    "Hermes": HERMES,
    "Qwen Coder": QWEN,
}
REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Go."}],
    "tools": TOOLS,
}


@BOTH
@pytest.mark.parametrize("chunks", [None, 5])
@pytest.mark.parametrize("syntax", WRITTEN)
def test_calls_that_are_written_together_leave_together(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, chunks: int | None
) -> None:
    """The second act waited for the result of the first, and cost a request each."""
    upstream.reply(Reply(WRITTEN[syntax], chunks=chunks))
    assert calls(ask(client, **REQUEST)) == CALLS


@pytest.mark.parametrize("syntax", WRITTEN)
def test_a_client_that_wants_one_call_at_a_time_gets_one(
    client: openai.OpenAI, upstream: ScriptedUpstream, syntax: str
) -> None:
    upstream.reply(WRITTEN[syntax])
    completion = client.chat.completions.create(**REQUEST, parallel_tool_calls=False)
    assert calls(completion) == CALLS[:1]


@pytest.mark.parametrize("syntax", WRITTEN)
def test_the_strict_order_holds(
    start_proxy: StartProxy, upstream: ScriptedUpstream, syntax: str
) -> None:
    client = openai.OpenAI(base_url=start_proxy(order="strict"), api_key="k", max_retries=0)
    upstream.reply(WRITTEN[syntax])
    assert calls(client.chat.completions.create(**REQUEST)) == CALLS[:1]
