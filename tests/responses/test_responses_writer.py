"""Answer events -> the events of a response, by hand-made answers: those of the code interpreter first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.errors import ModelFailed, UpstreamFailed
from emulator.events import (
    AnswerEvent,
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeOutput,
    CodeStarted,
    ContentDelta,
    CreatedFile,
    Finish,
    Image,
    Logs,
    ReasoningDelta,
    ToolCall,
    UpstreamAccepted,
    Usage,
)
from emulator.responses import event_log
from emulator.responses.request import parse_request
from emulator.responses.response import initial_response, visible
from emulator.responses.writer import ResponseWriter
from tests.support.responses_client import EVENT, RESPONSE, as_published, check_events

Json = dict[str, Any]

OPENED = UpstreamAccepted()
STOP = Finish("stop", Usage(5, 7))
BEGUN = CodeStarted("ci_1", "cntr_1")
CODE = (CodeDelta("print("), CodeDelta("1)"), CodeComplete("print(1)"))
PLOT = CreatedFile("cntr_1", "cfile_1", "/mnt/data/plot.png", 99)
TABLE = CreatedFile("cntr_1", "cfile_2", "/mnt/data/a b.csv", 9)
CALL = ToolCall("call_1", "get_weather", {"city": "Oslo"})


def start() -> Json:
    request, _ = parse_request(b'{"model": "m", "input": "Hi"}')
    return initial_response(request)


def written(*answer: AnswerEvent, response: Json | None = None) -> list[Json]:
    """The events of an answer, each as OpenAI's schema has it."""
    writer = ResponseWriter(response or start(), now=lambda: 1.0)
    events = [e for e in writer.write([OPENED, *answer]) if not isinstance(e, UpstreamAccepted)]
    for event in events:
        EVENT.validate(as_published(event))
    return events


def output(*answer: AnswerEvent) -> list[Json]:
    """The items of an answer, without their ids."""
    response = check_events(written(*answer))
    RESPONSE.validate(response)
    return [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]


def kinds(events: Sequence[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def cell(status: str, *outputs: Json, code: str = "print(1)") -> Json:
    return {
        "type": "code_interpreter_call",
        "status": status,
        "code": code,
        "container_id": "cntr_1",
        "outputs": [*outputs],
    }


def message(text: str, *annotations: Json, status: str = "completed") -> Json:
    part = {"type": "output_text", "text": text, "annotations": [*annotations], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": status, "content": [part]}


def cited(file: CreatedFile, name: str, start: int, end: int) -> Json:
    return {
        "type": "container_file_citation",
        "container_id": file.container_id,
        "file_id": file.file_id,
        "filename": name,
        "start_index": start,
        "end_index": end,
    }


CALL_ITEM: Json = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Oslo"}',
    "status": "completed",
}


def test_the_events_of_a_cell_come_in_openais_order() -> None:
    ran = CodeFinished("completed", (Logs("1\n"),), (PLOT,))
    answer = (ReasoningDelta("Hm."), BEGUN, *CODE, CodeOutput(Logs("1\n")), ran, ContentDelta("1"))
    assert kinds(written(*answer, STOP)) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((*CODE, CodeFinished("failed")), ["interpreting", "completed"]),
        ((*CODE, CodeFinished("incomplete")), ["interpreting"]),
        ((CodeDelta("pri"), CodeFinished("incomplete")), []),
    ],
    ids=["failed", "waits", "cut off"],
)
def test_a_stream_tells_how_far_a_cell_has_come(
    events: Sequence[AnswerEvent], told: list[str]
) -> None:
    states = [
        kind.removeprefix("code_interpreter_call.")
        for kind in kinds(written(BEGUN, *events, STOP))
        if kind.startswith("code_interpreter_call.")
    ]
    assert states == ["in_progress", *told]


ANSWERS: list[tuple[str, tuple[AnswerEvent, ...], list[Json]]] = [
    (
        "logs and a picture",
        (BEGUN, *CODE, CodeFinished("completed", (Logs("1\n"), Image("image/png", b"\x89P")))),
        [
            cell(
                "completed",
                {"type": "logs", "logs": "1\n"},
                {"type": "image", "url": "data:image/png;base64,iVA="},
            )
        ],
    ),
    (
        "a cell that failed, and another",
        (
            *(BEGUN, *CODE, CodeFinished("failed", (Logs("NameError"),))),
            *(
                CodeStarted("ci_2", "cntr_1"),
                CodeDelta("2"),
                CodeComplete("2"),
                CodeFinished("completed"),
            ),
            ContentDelta("Done."),
        ),
        [
            cell("failed", {"type": "logs", "logs": "NameError"}),
            cell("completed", code="2"),
            message("Done."),
        ],
    ),
    (
        "a cell that waits for a call",
        (ContentDelta("Hm."), BEGUN, *CODE, CodeFinished("incomplete"), CALL),
        [message("Hm."), cell("incomplete"), CALL_ITEM],
    ),
    (
        "a cell that was cut off",
        (BEGUN, CodeDelta("pri"), CodeFinished("incomplete")),
        [cell("incomplete", code="pri")],
    ),
    (
        "a file that the text names",
        (
            *(BEGUN, *CODE, CodeFinished("completed", (), (PLOT,))),
            *(ContentDelta("See [it](sandbox:/mnt/data/"), ContentDelta("plot.png).")),
        ),
        [
            cell("completed"),
            message("See [it](sandbox:/mnt/data/plot.png).", cited(PLOT, "plot.png", 9, 35)),
        ],
    ),
    (
        "a file that the text names twice, and one with a blank",
        (
            *(BEGUN, *CODE, CodeFinished("completed", (), (TABLE, PLOT))),
            ContentDelta("/mnt/data/plot.png. sandbox:/mnt/data/a%20b.csv, /mnt/data/plot.png"),
        ),
        [
            cell("completed"),
            message(
                "/mnt/data/plot.png. sandbox:/mnt/data/a%20b.csv, /mnt/data/plot.png",
                cited(PLOT, "plot.png", 0, 18),
                cited(TABLE, "a b.csv", 20, 47),
                cited(PLOT, "plot.png", 49, 67),
            ),
        ],
    ),
    (
        "a file whose name only begins like that of another",
        (
            *(BEGUN, *CODE, CodeFinished("completed", (), (PLOT,))),
            ContentDelta("/mnt/data/plot.png.bak, /x/mnt/data/plot.png"),
        ),
        [
            cell("completed"),
            message(
                "/mnt/data/plot.png.bak, /x/mnt/data/plot.png", cited(PLOT, "plot.png", 44, 44)
            ),
        ],
    ),
    (
        "a file that is named after a further cell",
        (
            *(
                BEGUN,
                *CODE,
                CodeFinished("completed", (), (PLOT, TABLE)),
                ContentDelta("One more."),
            ),
            *(CodeStarted("ci_2", "cntr_1"), *CODE, CodeFinished("completed", (), (PLOT,))),
            ContentDelta("In /mnt/data/plot.png"),
        ),
        [
            cell("completed"),
            message("One more."),
            cell("completed"),
            message(
                "\n\nIn /mnt/data/plot.png",
                cited(PLOT, "plot.png", 5, 23),
                cited(TABLE, "a b.csv", 23, 23),
            ),
        ],
    ),
    (
        "a file and not a word",
        (BEGUN, *CODE, CodeFinished("completed", (), (PLOT,))),
        [cell("completed"), message("", cited(PLOT, "plot.png", 0, 0))],
    ),
    (
        "a file, then a call",
        (
            *(BEGUN, *CODE, CodeFinished("completed", (), (PLOT,)), ContentDelta("Hm.")),
            CALL,
            ToolCall("call_2", "shell", {"input": "ls"}, "custom"),
        ),
        [
            cell("completed"),
            message("Hm.", cited(PLOT, "plot.png", 3, 3)),
            CALL_ITEM,
            {"type": "custom_tool_call", "call_id": "call_2", "name": "shell", "input": "ls"},
        ],
    ),
]
EACH_ANSWER = pytest.mark.parametrize(
    ("answer", "items"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)


@EACH_ANSWER
def test_an_answer_becomes_items(answer: Sequence[AnswerEvent], items: list[Json]) -> None:
    assert output(*answer, STOP) == items


@EACH_ANSWER
def test_a_taped_answer_makes_the_same_stream(
    answer: Sequence[AnswerEvent], items: list[Json]
) -> None:
    response, recorder = start(), event_log.EventLog()
    assert list(recorder.record([OPENED, *answer, STOP])) == [OPENED, *answer, STOP]
    kept = json.loads(json.dumps(recorder.dump()))
    assert written(*event_log.load(kept), response=response) == written(
        *answer, STOP, response=response
    )


@EACH_ANSWER
def test_a_client_sees_the_outputs_of_cells_only_when_it_asks(
    answer: Sequence[AnswerEvent], items: list[Json]
) -> None:
    events = written(*answer, STOP)
    assert [visible(event, code_outputs=True) for event in events] == events
    told = check_events([visible(event, code_outputs=False) for event in events])
    assert [item["outputs"] for item in told["output"] if "outputs" in item] == [
        None for item in items if "outputs" in item
    ]


def test_the_places_of_a_citation_are_what_stands_there_in_the_text() -> None:
    text = "\U0001f4c8 sandbox:/mnt/data/plot.png"
    *_, said = output(
        BEGUN, *CODE, CodeFinished("completed", (), (PLOT,)), ContentDelta(text), STOP
    )
    [part] = said["content"]
    [annotation] = part["annotations"]
    named = part["text"][annotation["start_index"] : annotation["end_index"]]
    assert named == "sandbox:/mnt/data/plot.png"


def test_a_text_that_repeats_itself_is_cited_a_bounded_number_of_times() -> None:
    text = "/mnt/data/plot.png " * 1000
    *_, said = output(
        BEGUN, *CODE, CodeFinished("completed", (), (PLOT,)), ContentDelta(text), STOP
    )
    assert len(said["content"][0]["annotations"]) == 16


def test_an_answer_that_is_cut_off_leaves_its_last_message_incomplete() -> None:
    assert output(ReasoningDelta("Hm."), ContentDelta("It"), Finish("length", Usage()))[1:] == [
        message("It", status="incomplete")
    ]


@pytest.mark.parametrize(
    ("details", "cached", "reasoning"),
    [
        ({}, 0, 0),
        ({"emulator": {"model_turns": 2}}, 0, 0),
        (
            {
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            3,
            4,
        ),
        ({"prompt_tokens_details": None, "completion_tokens_details": {}}, 0, 0),
        ({"prompt_tokens_details": 3, "completion_tokens_details": [{}]}, 0, 0),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, 0, 0),
    ],
)
def test_usage_is_told_under_the_names_of_this_api(
    details: Json, cached: int, reasoning: int
) -> None:
    finish = Finish("stop", Usage(5, 7, details=details))
    assert check_events(written(ContentDelta("Hi."), finish))["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": 12,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelFailed("The model gave an empty answer."), "server_error"),
        (UpstreamFailed("Slow down.", status=429), "rate_limit_exceeded"),
    ],
)
def test_a_broken_off_stream_ends_with_what_there_was(error: Any, code: str) -> None:
    writer = ResponseWriter(start())
    answer = [OPENED, ContentDelta("Hm."), CALL]
    events = [e for e in writer.write(answer) if not isinstance(e, UpstreamAccepted)]
    last = writer.failed(error)
    EVENT.validate(as_published(last))
    response = check_events([*events, last])
    assert (last["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"] == {"code": code, "message": error.message}
    assert [item["type"] for item in response["output"]] == ["message", "function_call"]
