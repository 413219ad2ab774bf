"""The Vercel AI SDK: generateText, streamText, loops over tools, Output.object, and code over Responses."""

from __future__ import annotations

import base64
from typing import Any

import openai
import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.openai_3.conftest import AskNode, ways
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    CALLING_CELL,
    CALLING_RAN,
    CODE_RUNS,
    CODE_TURNS,
    FORECAST,
    FORECAST_VALUE,
    LONDON,
    LOOPS,
    ONE,
    PLAIN_FORECAST,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_SIZE,
    SUM,
    SUM_RAN,
    TURNS,
    image_size,
    marked,
)

CLIENT = "Vercel AI SDK"
PACKAGES = (
    "npm:ai",
    "npm:@ai-sdk/openai-compatible",
    "npm:@ai-sdk/openai",
    "npm:@ai-sdk/anthropic",
)


@ways("create", "stream")
@pytest.mark.parametrize(("reply", "text", "calls"), marked(TURNS))
def test_a_turn_gives_calls_or_talk(
    ask_node: AskNode,
    upstream: SharedUpstream,
    way: str,
    reply: str,
    text: str | None,
    calls: list[Any],
) -> None:
    upstream.reply(reply, chunks=3)
    assert ask_node("ai_sdk", way, prompt=ASK) == {"result": {"text": text, "calls": calls}}


@ways("run", "run_streamed", "messages", "messages_streamed")
@pytest.mark.parametrize(("replies", "calls"), marked(LOOPS))
def test_the_clients_own_loop_calls_tools_until_the_model_answers(
    ask_node: AskNode, upstream: SharedUpstream, way: str, replies: list[str], calls: list[Any]
) -> None:
    upstream.reply(*replies, chunks=3)
    expected = {"text": replies[-1], "calls": calls}
    assert ask_node("ai_sdk", way, prompt=ASK) == {"result": expected}


@ways("code", "code_streamed")
@pytest.mark.feature("functions in code")
@pytest.mark.usefixtures("interpreter")
def test_code_calls_functions_over_messages(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(CALLING_CELL, ANSWER, chunks=3)
    answer = ask_node("ai_sdk", way, prompt=ASK)["result"]
    (_, source, _), call, (_, _, printed) = CALLING_RAN
    assert answer == {
        "text": ANSWER,
        "calls": [["code_execution", source], call],
        "printed": [printed],
    }


@ways("parse", "parse_streamed")
@pytest.mark.feature("structured output")
def test_an_answer_is_an_object_of_the_schema(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(FORECAST, chunks=3)
    answer = ask_node("ai_sdk", way, prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}


def test_an_upstream_error_keeps_its_status(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(status=401)
    assert ask_node("ai_sdk", "create", prompt=ASK)["error"]["status"] == 401


@pytest.mark.feature("structured output")
def test_an_answer_is_json_although_the_sdk_sends_no_schema(
    ask_node: AskNode, upstream: SharedUpstream
) -> None:
    upstream.reply(PLAIN_FORECAST)
    answer = ask_node("ai_sdk", "parse_json_object", prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}


@ways("analyze", "analyze_streamed")
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize(("replies", "calls"), marked(CODE_RUNS))
def test_code_runs_and_calls_functions(
    ask_node: AskNode,
    upstream: SharedUpstream,
    container: str,
    way: str,
    replies: list[str],
    calls: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    answer = ask_node("ai_sdk", way, prompts=[ASK], container=container)
    assert answer == {"result": [{"text": replies[-1], "calls": calls}]}


# With `store: false` this client sends no cell back, and says so in a warning.
@ways("analyze", "analyze_streamed")
@pytest.mark.feature("code over turns")
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("chained", [False, True], ids=["references", "previous response"])
def test_a_conversation_keeps_its_variables(
    ask_node: AskNode, upstream: SharedUpstream, way: str, chained: bool
) -> None:
    for replies, _ in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
    answer = ask_node("ai_sdk", way, prompts=[ASK, ASK], chained=chained)
    expected = [{"text": replies[-1], "calls": calls} for replies, calls in CODE_TURNS]
    assert answer == {"result": expected}


@ways("analyze", "analyze_streamed")
@pytest.mark.feature("functions in code")
@pytest.mark.feature("code over turns")
@pytest.mark.usefixtures("interpreter")
def test_the_output_of_a_resumed_cell_is_in_the_history(
    ask_node: AskNode, upstream: SharedUpstream, container: str, way: str
) -> None:
    upstream.reply(CALLING_CELL, ANSWER, "Yes.", chunks=3)
    answer = ask_node("ai_sdk", way, prompts=[ASK, "Sure?"], container=container)
    assert answer["result"][1] == {"text": "Yes.", "calls": []}
    assert upstream.outputs_told() == [CALLING_RAN[-1][-1]]


@ways("analyze_parsed", "analyze_parsed_streamed")
@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
@pytest.mark.usefixtures("interpreter")
def test_an_object_comes_after_code(
    ask_node: AskNode, upstream: SharedUpstream, container: str, way: str
) -> None:
    upstream.reply(SUM, FORECAST, chunks=3)
    answer = ask_node("ai_sdk", way, prompt=ASK, container=container)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump(), "calls": [SUM_RAN]}}


@ways("plot", "plot_streamed")
@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
def test_a_plot_is_displayed_and_a_source_of_the_answer(
    ask_node: AskNode, upstream: SharedUpstream, interpreter: str, way: str
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    plot = ask_node("ai_sdk", way, prompt=ASK)["result"]
    assert (plot["text"], plot["filename"]) == (PLOT_ANSWER, PLOT_FILE)
    assert image_size(base64.b64decode(plot["displayed"])) > (0, 0)
    with openai.OpenAI(base_url=interpreter) as client:
        content = client.containers.files.content.retrieve(
            plot["file"]["fileId"], container_id=plot["file"]["containerId"]
        )
        assert image_size(content.read()) == PLOT_SIZE


@ways("search", "search_streamed")
@pytest.mark.parametrize("execution", ["server", "client"])
def test_a_deferred_tool_is_called_after_a_search(
    ask_node: AskNode, upstream: SharedUpstream, way: str, execution: str
) -> None:
    name, word = ("tool_search", "goal") if execution == "client" else ("search_tools", "query")
    upstream.reply(f"```tool_code\n{name}({word}='weather')\n```", LONDON, ANSWER, chunks=3)
    answer = ask_node("ai_sdk", way, prompt=ASK, execution=execution)
    calls = [["toolSearch", {word: "weather"}], *ONE]
    assert answer == {"result": {"text": ANSWER, "calls": calls}}
    first, second, _ = (str(request["messages"]) for request in upstream.requests)
    assert "def get_weather(" not in first
    assert "def get_weather(" in second


@ways("program", "program_streamed")
@pytest.mark.parametrize("store", [True, False])
def test_a_program_calls_its_allowed_tools_and_ends_at_a_direct_call(
    ask_node: AskNode, upstream: SharedUpstream, way: str, store: bool
) -> None:
    code = "x = get_weather('London')\nprint(x.count('12'))"
    mail = {"to": "ann", "body": "12"}
    upstream.reply(
        f"```tool_code\n{code}\n```", "```tool_code\nsend_mail('ann', '12')\n```", ANSWER, chunks=3
    )
    answer = ask_node("ai_sdk", way, prompt=ASK, database=store)
    parts = [
        ["program", code, "model"],
        ["get_weather", {"location": "London"}, "program"],
        ["tool-result", "1", "completed"],
        ["send_mail", mail, "model"],
    ]
    assert answer == {"result": {"text": ANSWER, "parts": parts}}
    assert len(upstream.requests) == 3
