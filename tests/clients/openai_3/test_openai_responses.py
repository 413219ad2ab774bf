"""The official Python SDK over Responses, Containers, Files: create, stream, parse, with code that runs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ASK,
    ASK_SUM,
    AUTO,
    CODE,
    CODE_RUNS,
    CODE_TURNS,
    FILES,
    FORECAST,
    FORECAST_CALL,
    FORECAST_VALUE,
    MODEL,
    OUTPUTS,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_PLACE,
    PLOT_SIZE,
    SUM,
    SUM_ANSWER,
    SUM_OF_FILES,
    SUM_RAN,
    Forecast,
    get_weather,
    image_size,
    marked,
)
from tests.support.tools import GET_WEATHER

CLIENT = "openai-python 3"
PACKAGES = ("openai",)

WEATHER: Any = {"type": "function", **GET_WEATHER["function"], "strict": False}
CITATION = "container_file_citation"
Respond = Callable[..., Response]


def connect(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, max_retries=0)


def create(base_url: str, **request: Any) -> Response:
    with connect(base_url) as client:
        return client.responses.create(model=MODEL, **request)


def stream_helper(base_url: str, **request: Any) -> Response:
    """The SDK's own accumulator."""
    with connect(base_url) as client, client.responses.stream(model=MODEL, **request) as stream:
        return stream.get_final_response()


def last_event(base_url: str, **request: Any) -> Response:
    with connect(base_url) as client:
        *_, last = client.responses.create(model=MODEL, stream=True, **request)
    assert last.type == "response.completed"
    return last.response


def parse(base_url: str, **request: Any) -> Response:
    with connect(base_url) as client:
        return client.responses.parse(model=MODEL, **request)


def awaited(base_url: str, **request: Any) -> Response:
    async def ask() -> Response:
        async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
            return await client.responses.create(model=MODEL, **request)

    return asyncio.run(ask())


def awaited_stream(base_url: str, **request: Any) -> Response:
    async def ask() -> Response:
        async with (
            openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client,
            client.responses.stream(model=MODEL, **request) as stream,
        ):
            return await stream.get_final_response()

    return asyncio.run(ask())


STREAMED = pytest.mark.feature("streaming")
EVERY_WAY = pytest.mark.parametrize(
    "respond",
    [
        create,
        awaited,
        pytest.param(stream_helper, marks=STREAMED),
        pytest.param(last_event, marks=STREAMED),
        pytest.param(awaited_stream, marks=STREAMED),
    ],
)
EITHER = pytest.mark.parametrize("respond", [create, pytest.param(stream_helper, marks=STREAMED)])


def steps(response: Response) -> list[Any]:
    made: list[Any] = []
    for item in response.output:
        if item.type == "function_call":
            made.append([item.name, json.loads(item.arguments)])
        elif item.type == "code_interpreter_call":
            logs = [output.logs for output in item.outputs or [] if output.type == "logs"]
            made.append([CODE, item.code, "".join(logs)])
    return made


def answered(response: Response) -> list[Any]:
    """The outputs of the calls that a response makes."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": get_weather(**json.loads(item.arguments)),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def converse(
    base_url: str, respond: Respond, tools: list[Any], questions: list[str], kept: bool = True
) -> list[tuple[str, list[Any]]]:
    """Text and steps of each answer; the history is `kept` by the proxy, or sent back by the client."""
    previous: dict[str, Any] = {}
    history: list[Any] = []
    answers = []
    for question in questions:
        given: list[Any] = [{"role": "user", "content": question}]
        made: list[Any] = []
        while given:
            history += given
            sent = given if kept else history
            response = respond(base_url, input=sent, tools=tools, include=[OUTPUTS], **previous)
            if kept:
                previous = {"previous_response_id": response.id}
            history += response.output
            made += steps(response)
            given = answered(response)
        answers.append((response.output_text, made))
    return answers


@EVERY_WAY
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
def test_code_runs_and_calls_functions(
    interpreter: str,
    container: str,
    upstream: SharedUpstream,
    respond: Respond,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    tools = [AUTO | {"container": container}, WEATHER]
    assert converse(interpreter, respond, tools, [ASK_SUM]) == [(replies[-1], expected)]


@pytest.mark.feature("code over turns")
@EITHER
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "sent back"])
def test_a_conversation_keeps_its_variables(
    interpreter: str, upstream: SharedUpstream, respond: Respond, kept: bool
) -> None:
    for replies, _ in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
    questions = ["Keep 41 as x.", "And one more?"]
    answers = converse(interpreter, respond, [AUTO], questions, kept)
    assert answers == [(replies[-1], ran) for replies, ran in CODE_TURNS]


PARSED = pytest.mark.parametrize("parsed", [parse, pytest.param(stream_helper, marks=STREAMED)])


@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
@PARSED
def test_an_answer_is_parsed_after_code(
    interpreter: str, upstream: SharedUpstream, parsed: Any
) -> None:
    upstream.reply(SUM, FORECAST, chunks=3)
    response = parsed(
        interpreter, input=ASK, tools=[AUTO, WEATHER], include=[OUTPUTS], text_format=Forecast
    )
    assert (steps(response), response.output_parsed) == ([SUM_RAN], FORECAST_VALUE)


@pytest.mark.feature("structured output")
@PARSED
def test_a_calls_arguments_are_parsed(base_url: str, upstream: SharedUpstream, parsed: Any) -> None:
    upstream.reply(FORECAST_CALL, chunks=3)
    [call] = parsed(base_url, input=ASK, tools=[openai.pydantic_function_tool(Forecast)]).output
    assert call.parsed_arguments == FORECAST_VALUE


@pytest.mark.feature("streaming")
@pytest.mark.feature("code interpreter")
def test_the_code_is_streamed_as_the_model_writes_it(
    interpreter: str, container: str, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM, SUM_ANSWER, chunks=3)
    tools: Any = [AUTO | {"container": container}]
    with (
        connect(interpreter) as client,
        client.responses.stream(model=MODEL, input=ASK_SUM, tools=tools) as stream,
    ):
        told = {"code": "", "text": ""}
        for event in stream:
            if event.type == "response.code_interpreter_call_code.delta":
                told["code"] += event.delta
            elif event.type == "response.output_text.delta":
                told["text"] += event.delta
                assert event.snapshot == told["text"]
    assert told == {"code": SUM_RAN[1], "text": SUM_ANSWER}


@pytest.mark.feature("code interpreter")
@EITHER
def test_a_response_can_be_retrieved_again(
    interpreter: str, container: str, upstream: SharedUpstream, respond: Respond
) -> None:
    upstream.reply(SUM, SUM_ANSWER)
    tools: Any = [AUTO | {"container": container}]
    response = respond(interpreter, input=ASK_SUM, tools=tools, include=[OUTPUTS])
    with connect(interpreter) as client:
        again = client.responses.retrieve(response.id, include=[OUTPUTS])
        streamed, ran = again, SUM_RAN
        if respond is stream_helper:  # as with OpenAI, only what was streamed can be streamed again
            with client.responses.stream(response_id=response.id) as stream:
                # This method cannot say what to include.
                streamed, ran = stream.get_final_response(), [*SUM_RAN[:2], ""]
        [asked] = client.responses.input_items.list(response.id)
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
    assert again.output_text == streamed.output_text == SUM_ANSWER
    assert (steps(again), steps(streamed)) == ([SUM_RAN], [ran])
    assert again.usage == streamed.usage == response.usage
    assert asked.type == "message"


@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
@EITHER
def test_a_plot_is_displayed_and_cited_as_a_file(
    interpreter: str, upstream: SharedUpstream, respond: Respond
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    response = respond(interpreter, input="Plot it.", tools=[AUTO], include=[OUTPUTS])
    cell, message = response.output
    assert cell.type == "code_interpreter_call" and message.type == "message"
    assert response.output_text == PLOT_ANSWER
    [shown] = cell.outputs or []
    assert shown.type == "image"
    assert image_size(base64.b64decode(shown.url.removeprefix("data:image/png;base64,"))) > (0, 0)
    [text] = message.content
    assert text.type == "output_text"
    notes = {note.filename: note for note in text.annotations if note.type == CITATION}
    note = notes[PLOT_FILE]
    assert text.text[note.start_index : note.end_index] == PLOT_PLACE
    with connect(interpreter) as client:
        files = client.containers.files
        plot = files.content.retrieve(note.file_id, container_id=note.container_id)
        assert image_size(plot.read()) == PLOT_SIZE
        made = {file.id: file.source for file in files.list(note.container_id)}
    assert made == {note.file_id: "assistant" for note in notes.values()}


@pytest.mark.feature("files")
def test_files_go_into_a_container_and_come_out_of_it(
    interpreter: str, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM_OF_FILES, SUM_ANSWER)
    with connect(interpreter) as client:
        kept = client.files.create(file=("one.csv", b"1,2"), purpose="user_data")
        container = client.containers.create(
            name="sums",
            file_ids=[kept.id],
            expires_after={"anchor": "last_active_at", "minutes": 5},
        )
        in_container = client.containers.files
        sent = in_container.create(container.id, file=("two.csv", b"3,4"))
        copied = in_container.create(
            container.id,
            file_id=client.files.create(file=("three.csv", b"5"), purpose="assistants").id,
        )
        tool: Any = AUTO | {"container": container.id}
        response = client.responses.create(
            model=MODEL, input="Sum them.", tools=[tool], include=[OUTPUTS]
        )
        assert steps(response)[0][2] == "15\n"
        # A page has one file: the SDK asks for the next ones.
        files = {file.path: file for file in in_container.list(container.id, limit=1, order="asc")}
        assert {path: (file.source, file.bytes) for path, file in files.items()} == FILES
        made = files["/mnt/data/sum.txt"]
        found = in_container.retrieve(made.id, container_id=container.id)
        assert found.to_dict() == made.to_dict()
        content = in_container.content.retrieve(made.id, container_id=container.id)
        assert content.read() == b"15"
        for file in (sent, copied):
            in_container.delete(file.id, container_id=container.id)
        with pytest.raises(openai.NotFoundError):
            in_container.retrieve(sent.id, container_id=container.id)
        assert len(list(in_container.list(container.id))) == 2


def test_containers_and_files_are_listed_page_by_page_and_deleted(interpreter: str) -> None:
    with connect(interpreter) as client:
        containers = [client.containers.create(name=f"box {n}") for n in range(3)]
        listed = [made.id for made in client.containers.list(limit=1, order="asc")]
        assert listed[-3:] == [made.id for made in containers]
        [one, *_] = containers
        assert client.containers.retrieve(one.id).name == "box 0"
        client.containers.delete(one.id)
        assert one.id not in [made.id for made in client.containers.list()]

        files = [
            client.files.create(file=(f"{n}.txt", b"%d" % n), purpose="user_data") for n in range(3)
        ]
        listed = [file.id for file in client.files.list(limit=1, order="asc")]
        assert listed[-3:] == [file.id for file in files]
        assert client.files.content(files[2].id).read() == b"2"
        assert client.files.retrieve(files[2].id) == files[2]
        assert all(client.files.delete(file.id).deleted for file in files)
        with pytest.raises(openai.NotFoundError):
            client.files.content(files[2].id)


async def test_the_asynchronous_client_has_files_too(
    interpreter: str, upstream: SharedUpstream
) -> None:
    async with openai.AsyncOpenAI(base_url=interpreter, max_retries=0) as client:
        container = await client.containers.create(name="async")
        files = client.containers.files
        sent = await files.create(container.id, file=("a.txt", b"hello"))
        assert [file.id async for file in files.list(container.id)] == [sent.id]
        content = await files.content.retrieve(sent.id, container_id=container.id)
        assert await content.aread() == b"hello"


BAD: list[tuple[dict[str, Any], type[openai.APIStatusError], str]] = [
    ({"tools": [AUTO | {"container": "cntr_0"}]}, openai.NotFoundError, "tools[0].container"),
    (
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        openai.BadRequestError,
        "tool_choice.type",
    ),
    ({"previous_response_id": "resp_0"}, openai.BadRequestError, "previous_response_id"),
]


@EITHER
@pytest.mark.parametrize(("request_", "error", "param"), BAD)
def test_a_bad_request_names_the_place(
    interpreter: str,
    respond: Respond,
    request_: dict[str, Any],
    error: type[openai.APIStatusError],
    param: str,
) -> None:
    with pytest.raises(error) as raised:
        respond(interpreter, input=ASK, **request_)
    assert raised.value.param == param
