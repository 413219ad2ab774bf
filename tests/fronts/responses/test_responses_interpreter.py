"""The code interpreter over the Responses API: every event of every stream is held to OpenAI's schemas."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx2
import openai
import pytest

from sandbox.fences import probes
from tests.conftest import StartProxy
from tests.support.responses_client import ask, ask_stream, check_events, fetch, without_ids
from tests.support.scripted import ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

Json = dict[str, Any]

INTERPRETER: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}},
    },
}
OUTPUTS = ["code_interpreter_call.outputs"]


def body(text: str = "?", **options: Any) -> Json:
    return {"model": "qwq", "input": text, "tools": [INTERPRETER], "include": OUTPUTS, **options}


def told_to_model(upstream: ScriptedUpstream) -> str:
    """The last message of the last request to the model."""
    return str(upstream.requests[-1]["messages"][-1]["content"])


REPLIES: dict[str, list[str]] = {
    "no code": ["It is 4."],
    "one cell": ["```tool_code\nprint(2 + 2)\n```", "It is 4."],
    "words before and between": [
        "First:\n```tool_code\nx = 1\n```",
        "Then:\n```tool_code\nx + 1\n```",
        "Two.",
    ],
    "a mistake and its fix": ["```tool_code\n1 / 0\n```", "```tool_code\nprint(1)\n```", "Done."],
    "reasoning": ["<think>hm</think>```tool_code\nprint(3)\n```", "Three."],
    "a file": [
        "```tool_code\nopen('a.csv', 'w').write('1')\n```",
        "See [it](sandbox:/mnt/data/a.csv).",
    ],
    "a file and no words of it": ["```tool_code\nopen('a.csv', 'w').write('1')\n```", "Done."],
}


@pytest.mark.parametrize("replies", REPLIES.values(), ids=REPLIES)
def test_a_stream_has_the_same_content_as_the_whole_response(
    proxy: str, upstream: ScriptedUpstream, replies: list[str]
) -> None:
    for chunks in (3, None):
        for reply in replies:
            upstream.reply(reply, chunks=chunks)
    streamed = check_events(ask_stream(proxy, body()))
    whole = ask(proxy, body())
    assert anonymous(streamed) == anonymous(whole)


def anonymous(response: Json) -> Json:
    """Without what differs between any two responses."""
    text = json.dumps(without_ids(response))
    for item in response["output"]:
        for note in [item, *[a for p in item.get("content", []) for a in p.get("annotations", [])]]:
            for name in ("id", "container_id", "file_id"):
                if name in note:
                    text = text.replace(note[name], name)
    found: Json = json.loads(text)
    return found


def test_the_items_are_the_cell_its_output_and_the_answer(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nprint(2 + 2)\n```", "It is 4.")
    response = ask(proxy, body("2 + 2?"))
    cell, message = response["output"]
    assert {name: cell[name] for name in ("type", "code", "status", "outputs")} == {
        "type": "code_interpreter_call",
        "code": "print(2 + 2)\n",
        "status": "completed",
        "outputs": [{"type": "logs", "logs": "4\n"}],
    }
    assert message["content"][0]["text"] == "It is 4."


def test_words_before_and_after_code_are_separated_in_output_text(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """They were "I count.It is 2.": the SDK joins all texts. The model gets back what it wrote."""
    upstream.reply("I count.\n```tool_code\nprint(1 + 1)\n```", "It is 2.")
    tools: Any = body()["tools"]
    first = client.responses.create(model="m", input="1 + 1?", tools=tools)
    assert first.output_text == "I count.\n\nIt is 2."
    upstream.reply("Yes.")
    client.responses.create(model="m", input="Sure?", tools=tools, previous_response_id=first.id)
    sent = [message["content"] for message in upstream.requests[-1]["messages"]]
    assert "It is 2." in sent


def test_outputs_are_omitted_unless_requested(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\nprint(1)\n```", "1")
    assert ask(proxy, body(include=[]))["output"][0]["outputs"] is None


def test_the_events_of_a_cell_come_in_openais_order(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\nprint(1)\n```", "One.")
    kinds = [event["type"].removeprefix("response.") for event in ask_stream(proxy, body())]
    assert list(dict.fromkeys(kinds)) == [
        "created",
        "in_progress",
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "completed",
    ]


def test_a_plot_is_an_image_output_and_a_cited_file(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    pytest.importorskip("matplotlib")
    upstream.reply(
        "```tool_code\nimport matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\n"
        "plt.plot([1, 4, 9])\nplt.savefig('squares.png')\nplt.close()\nplt.plot([1])\nplt.show()\n```",
        "Here it is: ![squares](sandbox:/mnt/data/squares.png).",
    )
    response = client.responses.create(
        model="qwq",
        input="Plot",
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
        include=["code_interpreter_call.outputs"],
    )
    cell, message = response.output
    assert cell.type == "code_interpreter_call" and message.type == "message"
    [picture] = [output for output in cell.outputs or [] if output.type == "image"]
    assert base64.b64decode(picture.url.removeprefix("data:image/png;base64,")).startswith(
        b"\x89PNG"
    )
    [text] = message.content
    assert text.type == "output_text"
    cited = {
        note.filename: note for note in text.annotations if note.type == "container_file_citation"
    }
    note = cited["squares.png"]
    assert text.text[note.start_index : note.end_index] == "sandbox:/mnt/data/squares.png"
    assert len(cited) == 2
    content = client.containers.files.content.retrieve(note.file_id, container_id=cell.container_id)
    assert content.read().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "sent back"])
def test_a_conversation_keeps_its_variables(
    proxy: str, upstream: ScriptedUpstream, kept: bool
) -> None:
    upstream.reply("```tool_code\nx = 41\n```", "Done.")
    first = ask(proxy, body("Set x"))
    upstream.reply("```tool_code\nprint(x + 1)\n```", "42")
    if kept:
        second = ask(proxy, body("x + 1?", previous_response_id=first["id"]))
    else:
        history = [{"role": "user", "content": "Set x"}, *first["output"]]
        second = ask(proxy, body(input=[*history, {"role": "user", "content": "x + 1?"}]))
    assert second["output"][0]["outputs"] == [{"type": "logs", "logs": "42\n"}]
    assert second["output"][0]["container_id"] == first["output"][0]["container_id"]
    told = json.dumps(upstream.requests[-2]["messages"])
    assert "x = 41" in told  # the model sees what it ran


@pytest.mark.parametrize("kept", [True, False], ids=["response stored", "not stored"])
def test_the_model_sees_the_outputs_that_the_client_omits_from_a_cell(
    proxy: str, upstream: ScriptedUpstream, kept: bool
) -> None:
    """PydanticAI sends `outputs: null`; the model was told that the cell had printed nothing."""
    upstream.reply("```tool_code\nprint(6 * 7)\n```", "Done.", "Yes.")
    cell, message = ask(proxy, body("6 * 7?", store=kept))["output"]
    history = [{"role": "user", "content": "6 * 7?"}, {**cell, "outputs": None}, message]
    second = ask(proxy, body(input=[*history, {"role": "user", "content": "Sure?"}]))
    upstream.reply("Quite.")
    ask(proxy, body("Quite?", previous_response_id=second["id"]))
    for request in upstream.requests[-2:]:
        [ran] = [m["content"] for m in request["messages"] if "The block ran" in str(m["content"])]
        assert "```text\n42\n```" in ran


@pytest.mark.parametrize("stream", [False, True])
def test_a_cell_waits_for_a_function_and_resumes_with_its_result(
    proxy: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    tools = [INTERPRETER, WEATHER]

    def answer(asked: Json) -> Json:
        return check_events(ask_stream(proxy, asked)) if stream else ask(proxy, asked)

    upstream.reply(
        "```tool_code\nn = globals().get('n', 0) + 1\nprint('before')\n"
        "w = get_weather(city='Oslo')\nprint(n, w['t'])\n```"
    )
    first = answer(body(tools=tools))
    cell, call = first["output"]
    assert (cell["status"], cell["outputs"]) == (
        "incomplete",
        [{"type": "logs", "logs": "before\n"}],
    )
    assert (call["type"], json.loads(call["arguments"])) == ("function_call", {"city": "Oslo"})
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"t": 4}'}
    upstream.reply("It is 4.")
    second = answer(body(input=[output], tools=tools, previous_response_id=first["id"]))
    again, message = second["output"]
    assert again["status"] == "completed"
    # The Agents SDK takes an item of the same id for the same item, and drops it.
    assert again["id"] != cell["id"]
    assert again["outputs"] == [{"type": "logs", "logs": "before\n1 4\n"}]
    assert message["content"][0]["text"] == "It is 4."
    assert "1 4" in told_to_model(upstream)


def test_a_result_for_a_cell_that_is_gone_is_an_ordinary_turn(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    tools = [INTERPRETER, WEATHER]
    upstream.reply("```tool_code\nget_weather(city='Oslo')\n```")
    first = ask(proxy, body(tools=tools))
    cell, call = first["output"]
    httpx2.delete(f"{proxy}/v1/containers/{cell['container_id']}")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    upstream.reply("It is sunny.")
    second = ask(proxy, body(input=[output], tools=tools, previous_response_id=first["id"]))
    assert second["output"][0]["content"][0]["text"] == "It is sunny."
    assert "sunny" in told_to_model(upstream)


def test_max_tool_calls_bounds_the_cells_of_a_response(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nprint(1)\n```", "No more.")
    response = ask(proxy, body(max_tool_calls=1))
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call", "message"]
    assert "No more code can be run" in told_to_model(upstream)


@pytest.mark.parametrize("choice", ["required", {"type": "code_interpreter"}])
def test_a_required_cell_is_requested_again(
    proxy: str, upstream: ScriptedUpstream, choice: Any
) -> None:
    upstream.reply("It is surely 4.", "```tool_code\nprint(2 + 2)\n```", "It is 4.")
    response = ask(proxy, body(tool_choice=choice))
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call", "message"]


def test_no_code_is_run_when_no_tool_is_chosen(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\nprint(1)\n```")
    response = ask(proxy, body(tool_choice="none"))
    assert [item["type"] for item in response["output"]] == ["message"]


def test_structured_output_comes_after_code(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        value: int

    upstream.reply("```tool_code\nprint(2 + 2)\n```", '```json\n{"value": "4"}\n```')
    response = client.responses.parse(
        model="qwq",
        input="2 + 2?",
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
        text_format=Answer,
    )
    assert response.output_parsed == Answer(value=4)


def test_a_file_of_the_files_api_is_in_the_container(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    file = client.files.create(file=("data.csv", b"1,2"), purpose="user_data")
    upstream.reply("```tool_code\nprint(open('/mnt/data/data.csv').read())\n```", "1,2")
    container: Any = {"type": "auto", "file_ids": [file.id]}
    client.responses.create(
        model="qwq", input="?", tools=[{"type": "code_interpreter", "container": container}]
    )
    assert "1,2" in told_to_model(upstream)
    assert "/mnt/data/data.csv" in json.dumps(upstream.requests[0]["messages"])


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "whole"])
def test_a_file_in_the_input_is_put_into_the_container_once(
    client: openai.OpenAI, proxy: str, upstream: ScriptedUpstream, by_id: bool
) -> None:
    part: Json = {"type": "input_file"}
    if by_id:
        file = client.files.create(file=("data.csv", b"1,2"), purpose="user_data")
        part |= {"file_id": file.id}
    else:
        part |= {"filename": "data.csv", "file_data": "data:text/csv;base64,MSwy"}
    asked = [{"role": "user", "content": [part, {"type": "input_text", "text": "Add 3"}]}]
    upstream.reply(
        "```tool_code\nprint(open('data.csv').read(), file=open('data.csv', 'a'))\n```", "Ok."
    )
    first = ask(proxy, body(input=asked))
    assert "[the file /mnt/data/data.csv]" in json.dumps(upstream.requests[0]["messages"])
    upstream.reply("```tool_code\nprint(open('data.csv').read())\n```", "Ok.")
    second = ask(proxy, body("And now?", previous_response_id=first["id"]))
    assert second["output"][0]["outputs"] == [{"type": "logs", "logs": "1,21,2\n\n"}]


def test_a_file_in_the_input_is_written_out_for_a_model_that_runs_no_code(
    client: openai.OpenAI, proxy: str, upstream: ScriptedUpstream
) -> None:
    file = client.files.create(file=("a.csv", b"1,2"), purpose="user_data")
    asked = [{"role": "user", "content": [{"type": "input_file", "file_id": file.id}]}]
    for tools in ([], [WEATHER]):
        upstream.reply("Seen.")
        ask(proxy, {"model": "qwq", "input": asked, **({"tools": tools} if tools else {})})
        whole = {"filename": "a.csv", "file_data": "data:text/csv;base64,MSwy"}
        assert {"type": "file", "file": whole} in upstream.requests[-1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("part", "status", "param"),
    [
        ({"file_id": "file-0"}, 404, "input[0].content[0].file_id"),
        ({"file_data": "data:text/csv;base64,?"}, 400, "input[0].content[0].file_data"),
        ({}, 400, "input[0].content[0].file_data"),
        ({"file_data": "MSwy", "filename": "../a"}, 400, "filename"),
    ],
)
def test_an_unusable_input_file_is_refused(proxy: str, part: Json, status: int, param: str) -> None:
    asked = [{"role": "user", "content": [{"type": "input_file", **part}]}]
    got, data = fetch(f"{proxy}/v1/responses", body(input=asked))
    assert (got, json.loads(data)["error"]["param"]) == (status, param)


@pytest.mark.parametrize(
    ("container", "status", "param"),
    [
        ("cntr_0", 404, "tools[0].container"),
        ({"type": "what"}, 400, "tools[0].container"),
        ({"type": "auto", "file_ids": ["file-0"]}, 404, "tools[0].container.file_ids[0]"),
        ({"type": "auto", "memory_limit": "64g"}, 400, "memory_limit"),
        (
            {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a.b"]}},
            400,
            "tools[0].container.network_policy.type",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_unavailable_container_keeps_its_error_status_in_a_stream(
    proxy: str, container: Any, status: int, param: str, stream: bool
) -> None:
    tool = {"type": "code_interpreter", "container": container}
    got, data = fetch(f"{proxy}/v1/responses", body(tools=[tool], stream=stream))
    assert (got, json.loads(data)["error"]["param"]) == (status, param)


def test_an_expired_container_is_reported_as_expired(start_proxy: StartProxy) -> None:
    clock = [time.time()]
    proxy = start_proxy(now=lambda: clock[0])
    expires = {"anchor": "last_active_at", "minutes": 1}
    made = httpx2.post(
        f"{proxy}/v1/containers", json={"name": "x", "expires_after": expires}
    ).json()
    clock[0] += 61
    tool = {"type": "code_interpreter", "container": made["id"]}
    for url, asked in (
        (f"{proxy}/v1/responses", body(tools=[tool])),
        (f"{proxy}/v1/containers/{made['id']}/execute", {"code": "1"}),
    ):
        got, data = fetch(url, asked)
        assert (got, json.loads(data)["error"]["code"]) == (404, "container_expired")


def test_a_conversation_with_an_expired_container_continues_in_a_new_one(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    clock = [time.time()]
    proxy = start_proxy(now=lambda: clock[0])
    upstream.reply("```tool_code\nx = 1\n```", "Done.")
    first = ask(proxy, body("Set x"))
    clock[0] += 21 * 60
    upstream.reply("```tool_code\nprint('x' in globals())\n```", "No.")
    second = ask(proxy, body("Is x set?", previous_response_id=first["id"]))
    assert second["output"][0]["outputs"] == [{"type": "logs", "logs": "False\n"}]
    assert second["output"][0]["container_id"] != first["output"][0]["container_id"]


def test_the_model_sees_that_the_user_declined_a_cell(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(interpreter_approval=True, approval_seconds=0.1)
    upstream.reply("```tool_code\nprint(1)\n```", "As you wish.")
    response = ask(proxy, body())
    cell, message = response["output"]
    assert cell["status"] == "failed"
    assert "The user declined to run this code" in told_to_model(upstream)
    assert message["content"][0]["text"] == "As you wish."
