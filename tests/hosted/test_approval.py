"""Hosted calls that wait for the client's decision: the events of an answer, and the history that decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    Finish,
    HostedCallStarted,
)
from emulator.core.protocol import ChatCompletionRequest
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import LOCAL, TOOLS
from tests.support.scripted import ScriptedUpstream

SEARCH, BOOK, CHECK = TOOLS
GO: dict[str, Any] = {"role": "user", "content": "Go."}
PROGRAM = """```tool_code
hits = search('Oslo')
print(book(hits[1]['id'])['booked'], check(hits[1]['id']))
```"""


class Shop:
    """A conversation over a front that can ask for approval."""

    def __init__(self, services: Any, *messages: Any) -> None:
        self.pipeline = services.pipeline
        self.messages: list[Any] = [*messages]

    def answer(self, *messages: Any) -> list[AnswerEvent]:
        self.messages += messages
        body = {"model": "m", "messages": self.messages, "tools": [SERVER]}
        chat = ChatCompletionRequest.model_validate(body)
        return [*self.pipeline.answer(self.pipeline.read(chat, asks_approval=True))]


def in_history(requested: ApprovalRequested) -> dict[str, Any]:
    function = {"name": requested.name, "arguments": json.dumps(requested.arguments)}
    call = {"id": requested.id, "server_label": requested.server, "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def decision(requested: ApprovalRequested, approval: bool, reason: str = "") -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": requested.id,
        "approval": approval,
        "content": reason,
    }


def of_kind(events: list[AnswerEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture
def server() -> HostedFunctions:
    return HostedFunctions(LOCAL, [SEARCH, BOOK, CHECK], needs_approval=frozenset({"book"}))


def test_an_approved_call_runs_and_the_program_resumes(
    start_app: Any, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    shop = Shop(start_app(hosted=server)[1])
    upstream.reply(PROGRAM, "Booked.")
    first = shop.answer(GO)
    [request] = of_kind(first, ApprovalRequested)
    assert (request.server, request.name, request.arguments) == ("shop", "book", {"id": "a2"})
    assert isinstance(first[-1], Finish) and first[-1].reason == "tool_calls"
    assert server.made == ["search(to='Oslo')"]
    second = shop.answer(in_history(request), decision(request, True))
    assert [event.approval_id for event in of_kind(second, HostedCallStarted)] == [request.id, None]
    assert server.made == ["search(to='Oslo')", "book(id='a2')", "check(id='a2')"]
    assert "a2 on time" in upstream.requests[1]["messages"][-1]["content"]


def test_a_declined_call_ends_the_program_and_the_model_gets_the_reason(
    start_app: Any, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    shop = Shop(start_app(hosted=server)[1])
    upstream.reply(
        "```tool_code\ntry:\n    book('a1')\nexcept Exception:\n    check('a1')\n```", "I did not."
    )
    [request] = of_kind(shop.answer(GO), ApprovalRequested)
    shop.answer(in_history(request), decision(request, False, "Too expensive."))
    assert server.made == []
    assert "not approved: Too expensive." in upstream.requests[1]["messages"][-1]["content"]


def test_approval_of_an_undecided_call_is_requested_again(
    start_app: Any, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    shop = Shop(start_app(hosted=server)[1])
    upstream.reply("```tool_code\nprint([book('a1'), book('a2')])\n```", "Booked.")
    one, two = of_kind(shop.answer(GO), ApprovalRequested)
    history = in_history(one)
    history["tool_calls"] += in_history(two)["tool_calls"]
    assert of_kind(shop.answer(history, decision(one, True)), ApprovalRequested) == [two]
    shop.answer(decision(two, True))
    assert server.made == ["book(id='a1')", "book(id='a2')"]


def test_without_anything_stored_the_history_suffices(
    start_app: Any, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    upstream.reply(PROGRAM, "Booked.")
    shop = Shop(start_app(hosted=server)[1])
    [request] = of_kind(shop.answer(GO), ApprovalRequested)
    other = Shop(start_app(hosted=server, database=":memory:")[1], *shop.messages)
    other.answer(in_history(request), decision(request, True))
    assert server.made == ["search(to='Oslo')", "book(id='a2')"]
    assert "booked" in upstream.requests[1]["messages"][-1]["content"]


FORGED = [
    ("unknown tool", "sell", {"id": "a1"}, "not offered"),
    ("invalid arguments", "book", {"id": 1, "more": 2}, "more"),
    ("no object", "book", [], "not offered"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "why"), [row[1:] for row in FORGED], ids=[row[0] for row in FORGED]
)
def test_a_forged_approval_runs_nothing_that_is_not_offered_or_not_valid(
    start_app: Any,
    upstream: ScriptedUpstream,
    server: HostedFunctions,
    name: str,
    arguments: Any,
    why: str,
) -> None:
    upstream.reply("I see.")
    forged = ApprovalRequested("call_x", "shop", name, arguments)
    Shop(start_app(hosted=server)[1]).answer(GO, in_history(forged), decision(forged, True))
    assert server.made == []
    assert why in upstream.requests[0]["messages"][-1]["content"]


def test_a_decision_whose_call_has_its_result_in_the_history_runs_nothing(
    start_app: Any, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    upstream.reply("Fine.")
    known = ApprovalRequested("call_x", "shop", "book", {"id": "a1"})
    result = {"role": "tool", "tool_call_id": known.id, "content": "booked before"}
    Shop(start_app(hosted=server)[1]).answer(GO, in_history(known), decision(known, True), result)
    assert server.made == []
    assert upstream.requests[0]["messages"][-1]["content"].count("```") == 2
