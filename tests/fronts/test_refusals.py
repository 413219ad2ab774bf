"""A native model's refusal is one over every API, plain and streamed, and stays in the next prompt."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.conftest import StartProxy
from tests.support.openai_wire import validator
from tests.support.raw_http import send
from tests.support.scripted import DONE, Reply, ScriptedUpstream, sse
from tests.support.tools import GET_WEATHER

TOOL = GET_WEATHER["function"]
ASK = {"role": "user", "content": "Help me"}


def refusing(*words: str) -> Reply:
    """A reply whose words are a refusal."""
    deltas: list[tuple[dict[str, str], str | None]] = [({"refusal": one}, None) for one in words]
    frames = [
        sse({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        for delta, reason in [*deltas, ({}, "stop")]
    ]
    return Reply(frames=[*frames, DONE])


@pytest.fixture(params=[False, True], ids=["relayed", "native"])
def native(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def url(start_proxy: StartProxy, upstream: ScriptedUpstream, native: bool) -> str:
    upstream.reply(refusing("I can", "not."))
    return start_proxy(tools="native") if native else start_proxy()


@pytest.mark.parametrize("stream", [False, True])
def test_over_responses_it_is_a_part_of_a_message(
    url: str, upstream: ScriptedUpstream, native: bool, stream: bool
) -> None:
    """It was an `output_text`, and so an answer."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    tools: Any = {"tools": [{"type": "function", **TOOL}]} if native else {}
    if stream:
        events = list(client.responses.create(model="m", input=[ASK], stream=True, **tools))
        kinds = [event.type for event in events]
        assert kinds.count("response.refusal.delta") == 2
        assert kinds.index("response.refusal.done") < kinds.index("response.content_part.done")
        for event in events:
            if "refusal" in event.type:
                validator("ResponseStreamEvent").validate(event.to_dict())
        response = events[-1].response  # type: ignore[union-attr]
    else:
        response = client.responses.create(model="m", input=[ASK], **tools)
    [message] = response.output
    assert message.to_dict()["content"] == [{"type": "refusal", "refusal": "I cannot."}]
    assert (response.status, response.output_text) == ("completed", "")
    upstream.reply("Fine.")
    client.responses.create(model="m", input=[ASK, message, ASK], **tools)
    assert "I cannot." in str(upstream.requests[-1]["messages"])


@pytest.mark.parametrize("stream", [False, True])
def test_over_messages_it_is_text_with_its_own_stop_reason(
    url: str, upstream: ScriptedUpstream, native: bool, stream: bool
) -> None:
    """The message ended as a turn of its own accord."""
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    tool = {"name": TOOL["name"], "input_schema": TOOL["parameters"]}
    body: Any = {"model": "m", "max_tokens": 99, "messages": [ASK], "tools": [tool] * native}
    if stream:
        with client.messages.stream(**body) as streamed:
            message = streamed.get_final_message()
    else:
        message = client.messages.create(**body)
    assert message.stop_reason == "refusal"
    assert [block.to_dict()["text"] for block in message.content] == ["I cannot."]
    upstream.reply("Fine.")
    history = [ASK, {"role": "assistant", "content": message.content}, ASK]
    client.messages.create(**{**body, "messages": history})
    assert "I cannot." in str(upstream.requests[-1]["messages"])


def test_over_chat_it_is_the_field_of_the_message(url: str, native: bool) -> None:
    tools = {"tools": [GET_WEATHER]} if native else {}
    body = {"model": "m", "messages": [ASK], **tools}
    message = send(f"{url}/v1/chat/completions", body)[2]["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "I cannot.")
