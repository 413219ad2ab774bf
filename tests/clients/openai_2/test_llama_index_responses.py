"""LlamaIndex's OpenAIResponses: chat and stream_chat, with code that runs and next to functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from llama_index.core.llms import ChatMessage, ChatResponse, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ASK,
    AUTO,
    CODE,
    CODE_RUNS,
    CODE_TURNS,
    MODEL,
    OUTPUTS,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_SIZE,
    SUM,
    SUM_ANSWER,
    SUM_RAN,
    get_weather,
    image_size,
    marked,
)

CLIENT = "LlamaIndex"
PACKAGES = ("llama-index-llms-openai-like", "llama-index-llms-openai")

WEATHER = FunctionTool.from_defaults(get_weather)
Connect = Callable[..., OpenAIResponses]


@pytest.fixture
def connect(interpreter: str) -> Connect:
    def llm(container: str | None = None, **options: Any) -> OpenAIResponses:
        tool = AUTO | ({"container": container} if container else {})
        return OpenAIResponses(
            model=MODEL,
            api_base=interpreter,
            api_key="client-key",
            max_retries=0,
            context_window=4096,
            built_in_tools=[tool],
            include=[OUTPUTS],
            **options,
        )

    return llm


def chat(llm: OpenAIResponses, history: list[ChatMessage]) -> ChatResponse:
    return llm.chat_with_tools([WEATHER], chat_history=history)


def stream_chat(llm: OpenAIResponses, history: list[ChatMessage]) -> ChatResponse:
    """The last of the responses, which holds the whole answer."""
    return list(llm.stream_chat_with_tools([WEATHER], chat_history=history))[-1]


EITHER = pytest.mark.parametrize(
    "ask", [chat, pytest.param(stream_chat, marks=pytest.mark.feature("streaming"))]
)


def steps(response: ChatResponse) -> list[Any]:
    """This client shows the cells of a stream nowhere but in OpenAI's own response."""
    raw: Any = response.raw
    made: list[Any] = []
    for item in getattr(raw, "response", raw).output:
        if item.type == "code_interpreter_call":
            made.append([CODE, item.code, "".join(output.logs for output in item.outputs)])
        elif item.type == "function_call":
            made.append([item.name, json.loads(item.arguments)])
    return made


def turn(ask: Any, llm: OpenAIResponses, history: list[ChatMessage]) -> tuple[str, list[Any]]:
    """Ask until the model answers; ``history`` grows by all that was said."""
    made: list[Any] = []
    while True:
        response = ask(llm, history)
        history.append(response.message)
        made += steps(response)
        calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        if not calls:
            return str(response.message.content), made
        for call in calls:
            output = str(WEATHER(**call.tool_kwargs))
            answered = {"tool_call_id": call.tool_id}
            history.append(ChatMessage(output, role=MessageRole.TOOL, additional_kwargs=answered))


@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
def test_code_runs_and_calls_functions(
    connect: Connect,
    container: str,
    upstream: SharedUpstream,
    ask: Any,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    answer = turn(ask, connect(container), [ChatMessage(ASK)])
    assert answer == (replies[-1], expected)


@pytest.mark.feature("code interpreter")
def test_the_cells_of_a_chat_are_its_built_in_tool_calls(
    connect: Connect, container: str, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM, SUM_ANSWER)
    told = connect(container).chat([ChatMessage(ASK)]).additional_kwargs
    [cell] = told["built_in_tool_calls"]
    assert [CODE, cell.code, *[output.logs for output in cell.outputs]] == SUM_RAN
    assert told["usage"].total_tokens > 0


@pytest.mark.feature("code over turns")
@EITHER
def test_a_conversation_keeps_its_variables(
    connect: Connect, upstream: SharedUpstream, ask: Any
) -> None:
    """This client sends no cell back; the proxy keeps the conversation."""
    llm = connect(track_previous_responses=True)
    for replies, ran in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
        assert turn(ask, llm, [ChatMessage(ASK)]) == (replies[-1], ran)


@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
@EITHER
def test_a_plot_is_cited_and_fetched(
    connect: Connect, upstream: SharedUpstream, interpreter: str, ask: Any
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    response = ask(connect(), [ChatMessage(ASK)])
    # Those of a stream are dictionaries, of a chat objects.
    notes = {
        note["filename"]: note for note in map(dict, response.additional_kwargs["annotations"])
    }
    note = notes[PLOT_FILE]
    with openai.OpenAI(base_url=interpreter) as client:
        content = client.containers.files.content.retrieve(
            note["file_id"], container_id=note["container_id"]
        )
        assert image_size(content.read()) == PLOT_SIZE
    assert response.message.content == PLOT_ANSWER
