"""The plot of a model that calls tools itself reaches the clients of Responses and Messages.

For the code interpreter such a model is asked for Python in words, as any other. It may still answer with a
tool call.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from sandbox.fences import probes
from tests.conftest import StartProxy
from tests.support.raw_http import fetch
from tests.support.responses_client import ask, ask_stream, check_events
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")
pytest.importorskip("matplotlib")

Json = dict[str, Any]
PNG = b"\x89PNG\r\n\x1a\n"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.savefig('squares.png')\n"
LINK = "sandbox:/mnt/data/squares.png"
LAST = f"Here it is: ![squares]({LINK})."
FUNCTION = GET_WEATHER["function"]


def called(name: str) -> Reply:
    call = {"name": name, "arguments": {"code": PLOT}}
    return Reply(tool_calls=[call], finish_reason="tool_calls", chunks=7)


REPLIES = {
    "a block": Reply(f"```tool_code\n{PLOT}```", chunks=7),
    "a call with OpenAI's name": called("code_interpreter"),
    "a call with Anthropic's name": called("code_execution"),
    "a call with the language's name": called("python"),
}
WRITTEN = pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@pytest.fixture
def native(start_proxy: StartProxy) -> str:
    return start_proxy(tools="native")


@WRITTEN
@STREAM
def test_a_response_has_the_plot_as_an_output_and_cites_its_file(
    native: str, upstream: ScriptedUpstream, reply: Reply, stream: bool
) -> None:
    upstream.reply(reply, LAST)
    body: Json = {
        "model": "m",
        "input": "Plot the squares.",
        "tools": [
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "function", **FUNCTION},
        ],
        "include": ["code_interpreter_call.outputs"],
    }
    response = check_events(ask_stream(native, body)) if stream else ask(native, body)
    cell, message = response["output"]
    assert (cell["type"], cell["status"]) == ("code_interpreter_call", "completed")
    assert cell["code"].strip() == PLOT.strip()
    [image] = cell["outputs"]
    assert image["type"] == "image"
    assert base64.b64decode(image["url"].removeprefix("data:image/png;base64,")).startswith(PNG)
    [text] = message["content"]
    assert text["text"] == LAST
    [note] = [note for note in text["annotations"] if note["filename"] == "squares.png"]
    assert note["type"] == "container_file_citation"
    assert text["text"][note["start_index"] : note["end_index"]] == LINK
    assert note["container_id"] == cell["container_id"]
    assert content(native, cell["container_id"], note["file_id"]).startswith(PNG)


@WRITTEN
@STREAM
def test_a_message_has_the_plots_files_in_the_result_of_its_code(
    native: str, upstream: ScriptedUpstream, claude: anthropic.Anthropic, reply: Reply, stream: bool
) -> None:
    upstream.reply(reply, LAST)
    asked: Json = {
        "model": "m",
        "max_tokens": 999,
        "messages": [{"role": "user", "content": "Plot the squares."}],
        "tools": [
            {"type": "code_execution_20260120", "name": "code_execution"},
            {"name": "get_weather", "input_schema": FUNCTION["parameters"]},
        ],
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    use, result, words = json.loads(message.to_json())["content"]
    assert (use["type"], use["name"]) == ("server_tool_use", "code_execution")
    assert use["input"]["code"].strip() == PLOT.strip()
    assert (result["type"], result["tool_use_id"]) == ("code_execution_tool_result", use["id"])
    assert result["content"]["return_code"] == 0
    assert words["text"] == LAST
    assert message.container is not None
    files = [file["file_id"] for file in result["content"]["content"]]
    assert len(files) == 2  # what the code saved, and what the kernel showed
    for file in files:
        assert content(native, message.container.id, file).startswith(PNG)


@pytest.fixture
def claude(native: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=native, api_key="k", max_retries=0) as connected:
        yield connected


def content(url: str, container: str, file: str) -> bytes:
    path = f"{url}/v1/containers/{container}/files/{file}/content"
    status, _, data = fetch(path, None, {"authorization": "Bearer k"})
    assert status == 200, data
    return data
