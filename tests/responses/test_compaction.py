"""/v1/responses/compact and /v1/responses/input_tokens, through the official SDK."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.responses_client import ask
from tests.support.responses_tools import GET_WEATHER
from tests.support.scripted import ScriptedUpstream

LONG: list[Any] = [
    {"role": "user", "content": "I am Ada."},
    {"role": "assistant", "content": "Hello, Ada."},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "42"},
    {"role": "user", "content": "Remember that."},
]


def test_a_conversation_becomes_what_the_user_said_and_a_summary(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("<think>What matters?</think>Ada; f gave 42.", "You are Ada.")
    compacted = client.responses.compact(model="m", input=LONG)
    assert compacted.object == "response.compaction"
    # The SDK's types know no user's message in an output.
    *said, summary = [item.to_dict(warnings=False) for item in compacted.output]
    assert [item["role"] for item in said] == ["user", "user"]
    assert summary["type"] == "compaction"
    assert "summary" in upstream.requests[0]["messages"][-1]["content"]
    assert compacted.usage.total_tokens == 10

    answer = client.responses.create(
        model="m", input=[*said, summary, {"role": "user", "content": "Who am I?"}]
    )
    assert answer.output_text == "You are Ada."
    told = "\n".join(message["content"] for message in upstream.requests[1]["messages"])
    assert "Ada; f gave 42." in told
    assert "Hello, Ada." not in told and "What matters?" not in told


def test_a_kept_conversation_can_be_compacted(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.", "They said hello.")
    first = client.responses.create(model="m", input="Hi")
    compacted = client.responses.compact(model="m", previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]


def test_a_conversation_is_never_replaced_by_nothing(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("  ")
    with pytest.raises(openai.InternalServerError, match="empty summary"):
        client.responses.compact(model="m", input=LONG)
    with pytest.raises(openai.BadRequestError, match="nothing to summarize"):
        client.responses.compact(model="m")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("hidden", ["", "gAAAA-of-another-server", "c3VtbQ==", "\u00e9"])
def test_a_summary_of_another_server_is_skipped(
    proxy: str, upstream: ScriptedUpstream, hidden: str
) -> None:
    upstream.reply("Hello.")
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": hidden}
    ask(proxy, {"model": "m", "input": [item, {"role": "user", "content": "Hi"}]})
    assert [message["content"] for message in upstream.requests[0]["messages"]] == ["Hi"]


def test_input_tokens_are_estimated_without_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    counts = [
        client.responses.input_tokens.count(model="m", input="Hello " * 100),
        client.responses.input_tokens.count(model="m", input="Hello " * 200),
        client.responses.input_tokens.count(input="Hello " * 100, tools=[GET_WEATHER]),  # type: ignore[list-item]
    ]
    short, long, with_tools = (count.input_tokens for count in counts)
    assert counts[0].object == "response.input_tokens"
    assert 100 <= short < with_tools and long == 2 * short
    assert upstream.requests == []
