"""Items of hosted calls: answer events -> items and stream events, and the items of a request -> messages.

The order of the events is that of a recorded stream of OpenAI's (vercel/ai, packages/openai, fixtures
``openai-mcp-tool.1`` and ``openai-mcp-tool-approval.3``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from emulator.core.errors import BadRequest
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    ContentDelta,
    Finish,
    HostedCallFinished,
    HostedCallStarted,
    ReasoningDelta,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    call_id,
)
from emulator.fronts.responses import event_log, items
from emulator.fronts.responses.history import messages
from emulator.fronts.responses.hosted_items import check_approvals, listed_servers
from emulator.fronts.responses.request import parse_request
from emulator.fronts.responses.response import initial_response
from emulator.fronts.responses.writer import ResponseWriter
from tests.support.responses_client import EVENT, RESPONSE, as_published, check_events

Json = dict[str, Any]

A, B, C = (call_id("ab" * 32, place) for place in range(3))
MCP_A, MCP_B, MCPR_A = f"mcp_{A[5:]}", f"mcp_{B[5:]}", f"mcpr_{A[5:]}"
ROLL: Json = {"name": "roll", "description": "Roll dice.", "input_schema": {"type": "object"}}
LISTED = ToolsListed("mcpl_1", "dice", (ROLL,))
STARTED_A = HostedCallStarted(A, "mcp", "dice", "roll", {"sides": 6})
STARTED_B = HostedCallStarted(B, "mcp", "dice", "roll", {"sides": 20})
STOP = Finish("stop", Usage(5, 7))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def written(*answer: AnswerEvent, response: Json | None = None) -> list[Json]:
    writer = ResponseWriter(response or start(), now=lambda: 1.0)
    events = [e for e in writer.write([UpstreamAccepted(), *answer]) if isinstance(e, dict)]
    for event in events:
        EVENT.validate(as_published(event))
    return events


def start() -> Json:
    request, _ = parse_request(b'{"model": "m", "input": "Hi"}')
    return initial_response(request)


def output(*answer: AnswerEvent) -> list[Json]:
    """The response's output, without what a message has besides its text."""
    made = check_events(written(*answer, STOP))
    assert made["status"] == "completed"
    return [
        {"message": item["content"][0]["text"]} if item["type"] == "message" else item
        for item in made["output"]
    ]


def mcp_call(key: str, sides: int, **fields: Any) -> Json:
    arguments = f'{{"sides":{sides}}}'
    call = {"id": key, "type": "mcp_call", "server_label": "dice", "name": "roll"}
    result = {"status": "completed", "output": None, "error": None, "approval_request_id": None}
    return {**call, "arguments": arguments, **result, **fields}


REQUEST_A = {
    "id": MCPR_A,
    "type": "mcp_approval_request",
    "server_label": "dice",
    "name": "roll",
    "arguments": '{"sides":6}',
}
FAILED = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no dice"}]}

ANSWERS: list[tuple[str, Sequence[AnswerEvent], list[Json]]] = [
    (
        "a list",
        [LISTED, ContentDelta("Hi.")],
        [
            {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "dice", "tools": [ROLL]},
            {"message": "Hi."},
        ],
    ),
    (
        "a server that is down",
        [ToolsListed("mcpl_1", "dice", (), "dice is down")],
        [
            {
                "id": "mcpl_1",
                "type": "mcp_list_tools",
                "server_label": "dice",
                "tools": [],
                "error": "dice is down",
            }
        ],
    ),
    (
        "a call between words, which stay apart",
        [ContentDelta("I roll."), STARTED_A, HostedCallFinished(A, "4"), ContentDelta("A four.")],
        [{"message": "I roll."}, mcp_call(MCP_A, 6, output="4"), {"message": "\n\nA four."}],
    ),
    (
        "a call that failed",
        [STARTED_A, HostedCallFinished(A, "no dice", is_error=True)],
        [mcp_call(MCP_A, 6, status="failed", error=FAILED)],
    ),
    (
        "a result with an image",
        [STARTED_A, HostedCallFinished(A, [{"type": "text", "text": "4"}, IMAGE])],
        [mcp_call(MCP_A, 6, output="4\n[an image]")],
    ),
    (
        "calls at the same time, the second of which ends first",
        [STARTED_A, STARTED_B, HostedCallFinished(B, "13"), HostedCallFinished(A, "4")],
        [mcp_call(MCP_A, 6, output="4"), mcp_call(MCP_B, 20, output="13")],
    ),
    (
        "a call that ends while another item is open",
        [
            STARTED_A,
            ReasoningDelta("Hm"),
            HostedCallFinished(A, "4"),
            ReasoningDelta("."),
            ToolCall(B, "get_weather", {}),
        ],
        [
            mcp_call(MCP_A, 6, output="4"),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "type": "function_call",
                "call_id": B,
                "name": "get_weather",
                "arguments": "{}",
                "status": "completed",
            },
        ],
    ),
    (
        "an approval, and a call that was approved",
        [
            ApprovalRequested(A, "dice", "roll", {"sides": 6}),
            HostedCallStarted(B, "mcp", "dice", "roll", {"sides": 20}, approval_id=B),
            HostedCallFinished(B, "13"),
        ],
        [
            REQUEST_A,
            mcp_call(MCP_B, 20, output="13", approval_request_id=f"mcpr_{B[5:]}"),
        ],
    ),
]
EACH_ANSWER = pytest.mark.parametrize(
    ("answer", "expected"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)


@EACH_ANSWER
def test_hosted_calls_become_items(answer: Sequence[AnswerEvent], expected: list[Json]) -> None:
    made = [
        item if item.get("id", "").startswith("mcp") else {**item, "id": None}
        for item in output(*answer)
    ]
    assert made == [{"id": None, **item} for item in expected]


@EACH_ANSWER
def test_a_stored_answer_replays_the_same_stream(
    answer: Sequence[AnswerEvent], expected: list[Json]
) -> None:
    response, log = start(), event_log.EventLog()
    assert [*log.record([*answer, STOP])] == [*answer, STOP]
    stored = event_log.load(json.loads(json.dumps(log.dump())))
    assert written(*stored, response=response) == written(*answer, STOP, response=response)


def test_the_events_come_in_openais_order() -> None:
    events = written(LISTED, STARTED_A, STARTED_B, HostedCallFinished(B, "13"))
    kinds = [(e["type"].removeprefix("response."), e.get("output_index")) for e in events[2:]]
    call = [
        *("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta"),
        "mcp_call_arguments.done",
    ]
    assert kinds == [
        ("output_item.added", 0),
        ("mcp_list_tools.in_progress", 0),
        ("mcp_list_tools.completed", 0),
        ("output_item.done", 0),
        *[(kind, 1) for kind in call],
        *[(kind, 2) for kind in call],
        ("mcp_call.completed", 2),
        ("output_item.done", 2),
    ]
    assert events[2]["item"]["tools"] == []
    assert events[6]["item"] == mcp_call(MCP_A, 6, arguments="", status="in_progress")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ToolsListed("mcpl_1", "dice", (), "down"), "mcp_list_tools.failed"),
        (HostedCallFinished(A, "no dice", is_error=True), "mcp_call.failed"),
    ],
)
def test_a_failure_has_its_own_event(event: AnswerEvent, expected: str) -> None:
    assert expected in [e["type"].removeprefix("response.") for e in written(STARTED_A, event)]


# The items in a request


ASKED: Json = {"role": "user", "content": "Roll."}
YES: Json = {"type": "mcp_approval_response", "approval_request_id": MCPR_A, "approve": True}
NO: Json = {**YES, "approve": False, "reason": "Not now"}


def read(*inputs: Json) -> list[Json]:
    """The messages of the input, without what they do not have."""
    shown: list[Json] = []
    for message in messages(items.parse(items.normalize([ASKED, *inputs]))):
        fields = {n: getattr(message, n) for n in ("role", "content", "tool_call_id", "approval")}
        fields["is_error"] = message.is_error or None
        calls = [
            (call.id, call.server_label, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
            if call.function
        ]
        shown.append({n: v for n, v in {**fields, "calls": calls}.items() if v not in (None, [])})
    return shown[1:]


def called(*calls: tuple[str, int]) -> Json:
    made = [(key, "dice", "roll", f'{{"sides":{sides}}}') for key, sides in calls]
    return {"role": "assistant", "calls": made}


def result(key: str, text: str, **fields: Any) -> Json:
    return {"role": "tool", "tool_call_id": key, "content": text, **fields}


CALL_A, CALL_B = mcp_call(MCP_A, 6, output="4"), mcp_call(MCP_B, 20, output="13")
APPROVED = mcp_call(MCP_A, 6, output="4", approval_request_id=MCPR_A)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param([CALL_A], [called((A, 6)), result(A, "4")], id="a call"),
        pytest.param(
            [mcp_call(MCP_A, 6, status="failed", error=FAILED)],
            [called((A, 6)), result(A, "no dice", is_error=True)],
            id="a call that failed",
        ),
        pytest.param(
            [CALL_A, CALL_B],
            [called((A, 6), (B, 20)), result(A, "4"), result(B, "13")],
            id="calls of one message",
        ),
        pytest.param(
            [CALL_A, {"type": "function_call", "call_id": C, "name": "f", "arguments": "{}"}],
            [
                {**called((A, 6)), "calls": [*called((A, 6))["calls"], (C, None, "f", "{}")]},
                result(A, "4"),
            ],
            id="with a call of the client",
        ),
        pytest.param([mcp_call(MCP_A, 6, status="incomplete")], [], id="a call without a result"),
        pytest.param([REQUEST_A], [called((A, 6))], id="no decision yet"),
        pytest.param(
            [REQUEST_A, YES], [called((A, 6)), result(A, "", approval=True)], id="approved"
        ),
        pytest.param(
            [REQUEST_A, NO], [called((A, 6)), result(A, "Not now", approval=False)], id="declined"
        ),
        pytest.param(
            [REQUEST_A, NO, YES],
            [called((A, 6)), result(A, "Not now", approval=False)],
            id="the first decision counts",
        ),
        pytest.param(
            [REQUEST_A, YES, APPROVED],
            [called((A, 6)), result(A, "4")],
            id="approved, and run",
        ),
        pytest.param(
            [REQUEST_A, YES, APPROVED, YES],
            [called((A, 6)), result(A, "4")],
            id="approved, run, and approved again",
        ),
        pytest.param(
            [REQUEST_A, REQUEST_A, YES],
            [called((A, 6)), result(A, "", approval=True)],
            id="sent twice",
        ),
        pytest.param(
            [{**APPROVED, "id": "mcp_of_openai"}],
            [called((A, 6)), result(A, "4")],
            id="a call of OpenAI's, with another id than its request",
        ),
        pytest.param(
            [CALL_A, {"role": "assistant", "content": "\n\nA four."}],
            [called((A, 6)), result(A, "4"), {"role": "assistant", "content": "A four."}],
            id="words after a call",
        ),
    ],
)
def test_items_become_calls_results_and_decisions(inputs: list[Json], expected: list[Json]) -> None:
    assert read(*inputs) == expected


def test_a_call_never_has_both_a_result_and_a_decision() -> None:
    for inputs in itertools.permutations([REQUEST_A, YES, APPROVED, CALL_B]):
        answers = [message for message in read(*inputs) if message.get("tool_call_id") == A]
        assert [message["content"] for message in answers] == ["4"]


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({**YES, "approve": "yes"}, "input[1].approve"),
        ({"type": "mcp_approval_response", "approve": True}, "input[1].approval_request_id"),
        ({**REQUEST_A, "id": 7}, "input[1].id"),
        (
            {
                "type": "additional_tools",
                "tools": [{"type": "mcp", "server_label": "a", "authorization": "secret"}],
            },
            "input[1].tools[0].authorization",
        ),
    ],
)
def test_an_unusable_item_is_an_error_that_names_the_place(item: Json, place: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(item)
    assert caught.value.param == place
    assert "secret" not in str(caught.value)


def test_a_decision_needs_its_request() -> None:
    inputs = items.normalize([ASKED, YES])
    check_approvals([REQUEST_A], inputs)
    with pytest.raises(BadRequest) as caught:
        check_approvals([], inputs)
    assert caught.value.param == "input[1].approval_request_id"


def test_the_latest_list_of_a_server_counts() -> None:
    older = {"type": "mcp_list_tools", "server_label": "dice", "tools": []}
    newer = {**older, "tools": [ROLL, "not a tool"]}
    failed = {**older, "error": "down"}
    assert listed_servers([older, newer, failed, {"type": "mcp_list_tools"}]) == {"dice": [ROLL]}


def test_a_response_echoes_a_server_without_its_credentials() -> None:
    secrets = {"authorization": "token-1", "headers": {"x-key": "token-2"}}
    url = "https://user:token-3@dice.test:8443/token-4/mcp?key=token-5"
    tool = {"type": "mcp", "server_label": "dice", "server_url": url, **secrets}
    choice = {"type": "mcp", "server_label": "dice"}
    body = {"model": "m", "input": "Hi", "tools": [tool], "tool_choice": choice}
    made = initial_response(parse_request(json.dumps(body).encode())[0])
    RESPONSE.validate({name: value for name, value in made.items() if name != "usage"})
    assert made["tool_choice"] == choice
    assert made["tools"] == [
        {
            "type": "mcp",
            "server_label": "dice",
            "server_url": "https://dice.test:8443/<redacted>",
            "allowed_tools": None,
            "headers": None,
            "require_approval": "always",
        }
    ]
