"""MCP servers that ask a person for input in the middle of a call: the form in the inspector, and what no
form may ask. The servers are processes of both generations of the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from emulator.hosted.elicitation import Refused, form_of
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
    assert "Which seat? See [address removed] for help, or short.example/login." in page
    assert "evil.example" not in page
    assert "short.example" not in "".join(re.findall("<[^>]*>", page)), "it is text, no link"
    person.decide("decline")
    asked.result(30)


def test_the_values_are_in_no_file_of_the_database(
    start_app: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """They were plain text in a row until it was swept, longer if the proxy ended; and in its log.

    The person answers at another process.
    """
    row = {**mcp_asking.stdio(tmp_path / "log"), "always": True}
    settings = {
        "mcp": {"airline": row},
        "inspector": "open",
        "database": str(tmp_path / "database"),
    }
    person, other = (Approver(start_app(**settings)[0]) for _ in "12")
    upstream.reply(call("everything"), "Booked.")
    asked = person.ask(CHAT, body())
    wait_until(other.waiting)
    other.decide("approve", **{"field-0": "12 amber", "field-1": "2"})
    assert asked.result(30)[0] == 200
    assert answers(tmp_path)[0]["content"]["seat"] == "12 amber"
    files = {file.name: file.read_bytes() for file in tmp_path.glob("database*")}
    assert b"Which seat?" in b"".join(files.values()), "the question is there"
    assert [name for name, raw in files.items() if b"amber" in raw] == []


def test_an_answer_that_was_not_sealed_for_its_question_is_none(
    start_app: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    row = {**mcp_asking.stdio(tmp_path / "log"), "always": True}
    url, services = start_app(mcp={"airline": row}, inspector="open")
    person = Approver(url)
    upstream.reply(call("seat"), "Not booked.")
    asked = person.ask(CHAT, body())
    wait_until(person.waiting)
    decision = json.dumps(["id", {"approved": True, "code": '{"seat": "12A"}'}]).encode()
    services.stores.database.run(
        "UPDATE journal SET value = :decision, state = 'decided' WHERE id LIKE 'ask_%'",
        decision=decision,
    )
    assert asked.result(30)[0] == 200
    assert [answer["action"] for answer in answers(tmp_path)] == ["decline"]


REFUSED = (
    "token tokens access_token accessToken accesstoken AuthTOKEN api.token key keys key2 api-key APIKey"
    " apikeys license_key code codes authcode verificationcode sms_code zip_pin pwd passwords pass_word"
    " passWord user_pass passphrase passcode secret clientSecrets credential pin PINs otp mfa cvv bearer"
    " ａｐｉｋｅｙ"
).split()
ASKED = (
    "seat keyboard monkey monkeys turkey hotkey hot_keys keynote codec tokenizer secretary passenger passport"
    " compass shipping pineapple zip_code zipCode zipcodes postal_code postcode country_code countryCodes"
    " currency-code airport_code"
).split()


@pytest.mark.parametrize(
    ("field", "may_be_asked"),
    [
        *(({"name": name}, True) for name in ASKED),
        *(({"name": name}, False) for name in REFUSED),
        ({"name": "x", "title": "Country code", "description": "Two letters, as in DE."}, True),
        ({"name": "zip_code", "title": "Your recovery code"}, False),
        ({"name": "x", "description": "Your API token"}, False),
        ({"name": "x", "description": "The pass word of your account"}, False),
        ({"name": "x", "title": ["Your token"]}, False),
        ({"name": "x", "format": "PASSWORD"}, False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else "-".join(map(str, value.values())),
)
def test_a_field_that_may_be_a_credential_is_told_by_the_words_of_its_texts(
    field: Json, may_be_asked: bool
) -> None:
    """Plurals, compounds and descriptions were asked, and a postal code was refused."""
    name, schema = field["name"], {"type": "string"} | {k: field[k] for k in field if k != "name"}
    with nullcontext() if may_be_asked else pytest.raises(Refused, match="for a credential"):
        form_of("airline", "?", {"properties": {name: schema}})


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
