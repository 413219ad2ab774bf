"""MCP servers that ask a person for input in the middle of a call: the form in the inspector, and what no
form may ask. The servers are processes of both generations of the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support import mcp_asking
from tests.support.approver import Approver
from tests.support.processes import wait_until
from tests.support.raw_http import connect, fetch, post_bytes, send
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
Start = Callable[..., Approver]
CHAT = "/v1/chat/completions"
GENERATIONS = pytest.mark.parametrize("arguments", [(), ("--older",)], ids=["2026", "2025"])


@pytest.fixture
def start(start_proxy: StartProxy, tmp_path: Path) -> Start:
    def started(*arguments: str, **settings: Any) -> Approver:
        row = mcp_asking.stdio(tmp_path / "log", *arguments)
        url = start_proxy(
            mcp={"airline": {**row, "always": True}}, **{"inspector": "open", **settings}
        )
        return Approver(url)

    return started


def call(asks: str) -> str:
    return f"```tool_code\nprint(book(asks={asks!r}))\n```"


def body() -> Json:
    return {"model": "m", "messages": [{"role": "user", "content": "Book a flight."}]}


def answers(folder: Path) -> list[Json]:
    """What the server got."""
    file = folder / "log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def prompt(upstream: ScriptedUpstream) -> str:
    return json.dumps(upstream.requests[-1]["messages"])


@GENERATIONS
def test_a_person_answers_in_the_inspector_and_the_call_goes_on(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    person = start(*arguments)
    upstream.reply(call("everything"), "Booked.")
    asked = person.ask(CHAT, body())
    wait_until(person.waiting)
    page = person.page()
    for shown in ("airline", "Which seat?", "Row and letter.", "Fish", "Tea", "blanket"):
        assert shown in page
    person.decide(
        "approve",
        **{
            "field-0": "12 amber",
            "field-1": "2",
            "field-2": "7.5",
            "field-4": "rice",
            "field-5": "t",
            "field-6-1": "on",
        },
    )
    status, headers, raw = asked.result(30)
    assert (status, json.loads(raw)["choices"][0]["message"]["content"]) == (200, "Booked.")
    [answer] = answers(tmp_path)
    assert (answer["action"], answer["content"]) == (
        "accept",
        {
            "seat": "12 amber",
            "bags": 2,
            "weight": 7.5,
            "window": False,
            "meal": "rice",
            "drink": "t",
            "extras": ["blanket"],
        },
    )
    assert "It is accept." in prompt(upstream)
    assert "amber" not in prompt(upstream) + raw.decode() + everything_shown(person, headers)


def everything_shown(person: Approver, headers: dict[str, str]) -> str:
    """What the inspector has of a request."""
    key = headers["x-request-id"]
    paths = ("", "/pipeline", "/stream", "/timing", "/file")
    found = [fetch(f"{person.url}/inspector/requests/{key}{path}") for path in paths]
    assert found[0][0] == 200
    return "".join(raw.decode() for _, _, raw in found)


@GENERATIONS
def test_a_person_may_decline(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    person = start(*arguments)
    upstream.reply(call("seat"), "Not booked.")
    asked = person.ask(CHAT, body())
    person.decide("decline")
    assert asked.result(30)[0] == 200
    assert [answer["action"] for answer in answers(tmp_path)] == ["decline"]


def test_a_value_that_the_server_does_not_accept_is_answered_and_asked_again(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start()
    upstream.reply(call("everything"), "Booked.")
    asked = person.ask(CHAT, body())
    wait_until(person.waiting)
    address = f"{person.waiting()[0]}/approve"
    for wrong in ({"field-0": "1"}, {"field-0": "12A", "field-1": "9"}, {"field-1": "two"}):
        assert person.post(address, **wrong) == 400
    assert answers(tmp_path) == []
    person.decide("approve", **{"field-0": "12A", "field-1": "0"})
    assert asked.result(30)[0] == 200
    assert answers(tmp_path)[0]["content"]["seat"] == "12A"


def test_a_servers_text_has_no_addresses(start: Start, upstream: ScriptedUpstream) -> None:
    person = start()
    upstream.reply(call("seat"), "No.")
    asked = person.ask(CHAT, body())
    wait_until(person.waiting)
    page = person.page()
    assert "Which seat? See [address removed] for help." in page
    assert "evil.example" not in page
    person.decide("decline")
    asked.result(30)


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ("url", "open an address"),
        ("password", "may ask for a credential"),
        ("format", "may ask for a credential"),
        ("token", "may ask for a credential"),
        ("title", "may ask for a credential"),
        ("nested", "is no plain value"),
        ("many", "no form of at most 20 fields"),
        ("long", "schema of more than 100000 characters"),
        ("flood", "more than 5 questions at the same time"),
    ],
)
def test_what_no_form_may_ask_is_refused_in_one_sentence(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path, asks: str, reason: str
) -> None:
    person = start()
    upstream.reply(call(asks), "Not booked.")
    assert person.ask(CHAT, body()).result(30)[0] == 200
    assert reason in prompt(upstream)
    assert answers(tmp_path) == []


def test_an_older_server_learns_why_it_is_refused(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start("--older")
    upstream.reply(call("token"), "Not booked.")
    assert person.ask(CHAT, body()).result(30)[0] == 200
    assert "credential" in answers(tmp_path)[0]["message"]


def test_without_an_inspector_nobody_is_asked(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start(inspector="off")
    upstream.reply(call("seat"), "Not booked.")
    assert person.ask(CHAT, body()).result(30)[0] == 200
    assert "nobody can be asked: the inspector is off" in prompt(upstream)
    assert answers(tmp_path) == []


def test_a_question_without_an_answer_is_declined_in_time(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start(approval_seconds=0.3)
    upstream.reply(call("seat"), "Not booked.")
    assert person.ask(CHAT, body()).result(30)[0] == 200
    assert [answer["action"] for answer in answers(tmp_path)] == ["decline"]


def test_a_server_that_asks_again_and_again_ends_its_call(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start()
    upstream.reply(call("again"), "Not booked.")
    asked = person.ask(CHAT, body())
    for _ in range(5):
        person.decide("approve", **{"field-0": "12A"})
    assert asked.result(30)[0] == 200
    assert "rounds" in prompt(upstream)


def test_a_client_that_leaves_takes_the_question_of_a_reader_along(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """An act that has begun goes on, and its question waits."""
    person = start()
    upstream.reply("```tool_code\nprint(look(asks='seat'))\n```")
    with connect(person.url, post_bytes(CHAT, body())):
        wait_until(person.waiting)
    wait_until(lambda: not person.waiting())
    assert [one["action"] for one in answers(tmp_path)] in ([], ["decline"])


def test_a_question_belongs_to_the_client_whose_call_asks(
    start: Start, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    person = start(client_keys=("key-a", "key-b"), inspector="on")
    mine = Approver(person.url, authorization="Bearer key-a")
    other = Approver(person.url, authorization="Bearer key-b")
    upstream.reply(call("seat"), "Booked.")
    asked = mine.ask(CHAT, body())
    wait_until(mine.waiting)
    assert other.waiting() == []
    address = f"{mine.waiting()[0]}/approve"
    assert other.post(address, **{"field-0": "99Z"}) == 404
    assert mine.post(address, **{"field-0": "12A"}) == 200
    assert asked.result(30)[0] == 200
    assert answers(tmp_path)[0]["content"] == {"seat": "12A"}
    assert send(f"{person.url}{address}", {"field-0": "1"})[0] in (401, 404)
