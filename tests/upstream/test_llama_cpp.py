"""llama.cpp's own server as an upstream: what it makes of a schema, and of tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.answering.ways.tiny import opening_messages
from emulator.upstream.local_model import MODEL_NAME, read_ahead, serve
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.tools import GET_WEATHER

pytestmark = pytest.mark.live

# So small a model calls where it has called before.
CALL = {"name": "get_weather", "arguments": '{"location": "Paris"}'}
CONVERSATION = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "warm"},
    {"role": "assistant", "content": "It is warm."},
    {"role": "user", "content": "What is the weather in London?"},
]


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[str]:
    with serve() as url:
        yield url


def ask(proxy: str, **fields: Any) -> tuple[int, Any]:
    body = {
        "model": MODEL_NAME,
        "messages": CONVERSATION,
        "tools": [GET_WEATHER],
        "temperature": 0,
        "max_tokens": 96,
        **fields,
    }
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    return status, answer


def choice_of(answered: tuple[int, Any]) -> Any:
    status, answer = answered
    assert status == 200, answer
    return answer["choices"][0]


@pytest.mark.parametrize("field", ["json_schema", "json_object"])
def test_a_required_call_is_valid_by_the_schema(
    start_proxy: StartProxy, llama_cpp: str, field: str
) -> None:
    row = {"name": "constrained", "pattern": ".", "grammar": field}
    proxy = start_proxy(
        base_url=llama_cpp, profile="constrained", profiles=(row,), repair_attempts=0
    )
    choice = choice_of(ask(proxy, tool_choice="required"))
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert isinstance(json.loads(call["function"]["arguments"])["location"], str)


def test_constrained_prose_is_an_answer_without_calls(
    start_proxy: StartProxy, llama_cpp: str
) -> None:
    row = {"name": "constrained", "pattern": ".", "grammar": "json_schema"}
    proxy = start_proxy(
        base_url=llama_cpp, profile="constrained", profiles=(row,), repair_attempts=0
    )
    poem = [{"role": "user", "content": "Write a poem about the sea."}]
    choice = choice_of(ask(proxy, messages=poem))
    assert choice["message"]["content"]
    assert "tool_calls" not in choice["message"]


def test_a_required_call_that_the_server_does_not_enforce_is_an_error(
    start_proxy: StartProxy, llama_cpp: str
) -> None:
    """With this model's chat template llama.cpp ignores ``tools`` and ``tool_choice``."""
    proxy = start_proxy(base_url=llama_cpp, tools="native", repair_attempts=0)
    status, error = ask(proxy, tool_choice="required")
    assert (status, error["error"]["code"]) == (502, "model_required")


def test_tools_auto_detects_a_model_without_native_calls(
    start_proxy: StartProxy, llama_cpp: str
) -> None:
    """It has no template for tools, so that it never calls by itself: it is emulated, and does."""
    proxy = start_proxy(base_url=llama_cpp, tools="auto", profile="tiny")
    choice = choice_of(ask(proxy, messages=[CONVERSATION[-1]]))
    [call] = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"location": "London"}


def test_the_start_of_prompts_is_cached_before_the_first_request(start_proxy: StartProxy) -> None:
    """The first request read some 300 tokens of examples, while its client waited."""
    with serve() as url:
        read_ahead(url, opening_messages())
        proxy = start_proxy(base_url=url, profile="tiny")
        _, answer = ask(proxy, messages=[CONVERSATION[-1]])
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0.7 * usage["prompt_tokens"]
