"""openai-node, the official JavaScript SDK: create, stream, runTools, parse, and Responses."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.openai_3.conftest import NODE, SCRIPTS, AskNode, ways
from tests.clients.scenarios import (
    ASK,
    CODE_RUNS,
    CODE_TURNS,
    FILES,
    FORECAST,
    FORECAST_VALUE,
    LOOPS,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_SIZE,
    SUM,
    SUM_ANSWER,
    SUM_OF_FILES,
    SUM_RAN,
    TURNS,
    image_size,
    marked,
)

ROOT = Path(__file__).parents[3]
CLIENT = "openai-node"
PACKAGES = ("npm:openai",)


@ways("create", "stream", "respond", "respond_streamed")
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
    assert ask_node("openai_node", way, prompt=ASK) == {"result": {"text": text, "calls": calls}}


@ways("run", "run_streamed", "converse", "converse_streamed")
@pytest.mark.parametrize(("replies", "calls"), marked(LOOPS))
def test_the_clients_own_loop_calls_tools_until_the_model_answers(
    ask_node: AskNode, upstream: SharedUpstream, way: str, replies: list[str], calls: list[Any]
) -> None:
    upstream.reply(*replies, chunks=3)
    expected = {"text": replies[-1], "calls": calls}
    assert ask_node("openai_node", way, prompt=ASK) == {"result": expected}


@ways("parse", "parse_streamed", "respond_parsed", "respond_parsed_streamed")
@pytest.mark.feature("structured output")
def test_an_answer_is_an_object_of_the_schema(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(FORECAST, chunks=3)
    answer = ask_node("openai_node", way, prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}


@ways("converse", "converse_streamed")
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
    expected = {"text": replies[-1], "calls": calls}
    answer = ask_node("openai_node", way, prompt=ASK, container=container)
    assert answer == {"result": expected}


@ways("discuss", "discuss_streamed")
@pytest.mark.feature("code over turns")
@pytest.mark.usefixtures("interpreter")
def test_a_conversation_keeps_its_variables(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    for replies, _ in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
    answer = ask_node("openai_node", way, prompts=[ASK, ASK], container={"type": "auto"})
    expected = [{"text": replies[-1], "calls": calls} for replies, calls in CODE_TURNS]
    assert answer == {"result": expected}


@ways("respond_parsed", "respond_parsed_streamed")
@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
@pytest.mark.usefixtures("interpreter")
def test_an_answer_is_parsed_after_code(
    ask_node: AskNode, upstream: SharedUpstream, container: str, way: str
) -> None:
    upstream.reply(SUM, FORECAST, chunks=3)
    answer = ask_node("openai_node", way, prompt=ASK, container=container)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump(), "calls": [SUM_RAN]}}


@ways("plot", "plot_streamed")
@pytest.mark.feature("files")
@pytest.mark.usefixtures("interpreter", "matplotlib")
def test_a_plot_is_displayed_and_cited_as_a_file(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    plot = ask_node("openai_node", way, prompt=ASK)["result"]
    assert (plot["text"], plot["filename"]) == (PLOT_ANSWER, PLOT_FILE)
    assert image_size(base64.b64decode(plot["file"])) == PLOT_SIZE
    assert image_size(base64.b64decode(plot["displayed"])) > (0, 0)


@pytest.mark.feature("files")
@pytest.mark.usefixtures("interpreter")
def test_files_go_into_a_container_and_come_out_of_it(
    ask_node: AskNode, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM_OF_FILES, SUM_ANSWER)
    told = ask_node("openai_node", "files", prompt=ASK)["result"]
    [[_, _, printed]] = told.pop("calls")
    assert printed == "15\n"
    assert told == {
        "listed": {path: list(file) for path, file in FILES.items()},
        "made": ["/mnt/data/sum.txt", "15"],
        "left": 3,
        "listed_container": True,
        "original": "1,2",
        "deleted": True,
        "after": 404,
    }


def test_an_upstream_error_keeps_its_status(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(status=401)
    assert ask_node("openai_node", "create", prompt=ASK)["error"]["status"] == 401


def test_the_quickstarts_javascript_runs(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply('```tool_code\nget_weather(location="London")\n```')
    page = (ROOT / "docs" / "quickstart.md").read_text()
    [snippet] = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    source = snippet.replace("http://127.0.0.1:8001/v1", base_url)
    command = [str(NODE), "--input-type=module", "--eval", source]
    said = subprocess.check_output(command, cwd=SCRIPTS, text=True)
    assert json.loads(said) == {"location": "London"}
