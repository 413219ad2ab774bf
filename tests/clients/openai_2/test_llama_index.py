"""LlamaIndex's OpenAILike: chat with tools, predict_and_call, structured predictions, its function agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    BOTH_CITIES,
    CHAIN,
    FORECAST_CALL,
    FORECAST_VALUE,
    LONDON,
    MAIL,
    MODEL,
    ONE,
    SILENT_BOTH,
    TURNS,
    TWO,
    Forecast,
    create_event,
    get_weather,
    marked,
    send_mail,
)

CLIENT = "LlamaIndex"
PACKAGES = ("llama-index-llms-openai-like", "llama-index-llms-openai")

TOOLS: list[Any] = [
    FunctionTool.from_defaults(function) for function in (get_weather, create_event, send_mail)
]


@pytest.fixture
def llm(base_url: str) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=base_url,
        api_key="client-key",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )


def chat(llm: OpenAILike, **request: Any) -> Any:
    return llm.chat_with_tools(TOOLS, **request)


def stream_chat(llm: OpenAILike, **request: Any) -> Any:
    """The last of the responses, each of which holds all that came before."""
    return list(llm.stream_chat_with_tools(TOOLS, **request))[-1]


EITHER = pytest.mark.parametrize(
    "ask", [chat, pytest.param(stream_chat, marks=pytest.mark.feature("streaming"))]
)


def calls(llm: OpenAILike, response: Any) -> list[Any]:
    selections = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    return [[selection.tool_name, selection.tool_kwargs] for selection in selections]


@EITHER
@pytest.mark.parametrize(("reply", "text", "expected"), marked(TURNS))
def test_a_chat_with_tools_calls_them_or_talks(
    llm: OpenAILike, upstream: SharedUpstream, ask: Any, reply: str, text: str | None, expected: Any
) -> None:
    upstream.reply(reply, chunks=3)
    response = ask(llm, user_msg=ASK, allow_parallel_tool_calls=True)
    assert (response.message.content or None, calls(llm, response)) == (text, expected)


@EITHER
@pytest.mark.feature("result answered")
def test_results_are_answered(llm: OpenAILike, upstream: SharedUpstream, ask: Any) -> None:
    upstream.reply(SILENT_BOTH, ANSWER)
    first = ask(llm, user_msg=ASK, allow_parallel_tool_calls=True)
    results = [
        ChatMessage(role=MessageRole.TOOL, content="12", additional_kwargs={"tool_call_id": id})
        for id in (s.tool_id for s in llm.get_tool_calls_from_response(first))
    ]
    history = [ChatMessage(role=MessageRole.USER, content=ASK), first.message, *results]
    assert ask(llm, chat_history=history).message.content == ANSWER


@pytest.mark.feature("single call")
def test_predict_and_call_runs_the_tool(llm: OpenAILike, upstream: SharedUpstream) -> None:
    upstream.reply(LONDON)
    assert llm.predict_and_call(TOOLS, user_msg=ASK).response == "12 degrees celsius in London"


@pytest.mark.feature("structured output")
def test_a_structured_prediction_is_an_object_of_the_class(
    llm: OpenAILike, upstream: SharedUpstream
) -> None:
    upstream.reply(FORECAST_CALL)
    assert llm.structured_predict(Forecast, PromptTemplate(ASK)) == FORECAST_VALUE


@pytest.mark.feature("structured output")
@pytest.mark.feature("streaming")
def test_a_structured_prediction_is_streamed(llm: OpenAILike, upstream: SharedUpstream) -> None:
    upstream.reply(FORECAST_CALL, chunks=3)
    parts = list(llm.stream_structured_predict(Forecast, PromptTemplate(ASK)))
    last: Any = parts[-1]
    assert last.model_dump() == FORECAST_VALUE.model_dump()


@pytest.mark.feature("several tool turns")
@pytest.mark.feature("streaming")
async def test_an_agent_takes_several_turns(llm: OpenAILike, upstream: SharedUpstream) -> None:
    upstream.reply(BOTH_CITIES, CHAIN, ANSWER, chunks=3)
    agent = FunctionAgent(tools=TOOLS, llm=llm)
    result = await agent.run(ASK)
    made = [[call.tool_name, call.tool_kwargs] for call in result.tool_calls]
    assert made == [*TWO, *ONE, MAIL]
    assert str(result) == ANSWER
    assert json.dumps(upstream.requests[1]["messages"]).count("12 degrees celsius in Paris") == 1
