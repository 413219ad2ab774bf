"""Results count anywhere in a history: clients split messages, or send only some results."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.chat import calls, plain
from tests.support.programs import TOOLS, result
from tests.support.scripted import ScriptedUpstream

BOOKINGS = "```tool_code\nbooked = [book('1'), book('2'), book('3')]\nprint(booked)\n```"
GO: dict[str, Any] = {"role": "user", "content": "Go."}


def ask(client: openai.OpenAI, messages: list[Any]) -> Any:
    # Results come in one by one here while other calls are out.
    order = {"x-emulator-order": "dataflow"}
    return plain(client, model="m", messages=messages, tools=TOOLS, extra_headers=order)


def assistant(*made: Any, content: str | None = None) -> dict[str, Any]:
    """An assistant's message with some of the calls of an answer."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [call.model_dump(exclude_none=True) for call in made],
    }


def booked(call: Any) -> dict[str, Any]:
    return result(call, f"ticket {json.loads(call.function.arguments)['id']}")


def test_a_client_that_answers_only_the_first_of_several_calls_reaches_the_end(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """The client got the same calls forever: 1, 2, 1, 2, ..."""
    upstream.reply(BOOKINGS, "Done.")
    messages = [GO]
    run: list[Any] = []
    while True:
        answer = ask(client, messages).choices[0].message
        if not answer.tool_calls:
            break
        run.append([call[1]["id"] for call in calls_of(answer)])
        messages += [answer.model_dump(exclude_none=True), booked(answer.tool_calls[0])]
    assert run == [["1", "2", "3"], ["2", "3"], ["3"]]
    assert len(upstream.requests) == 2
    assert "['ticket 1', 'ticket 2', 'ticket 3']" in str(upstream.requests[1]["messages"])


def calls_of(message: Any) -> list[tuple[str, Any]]:
    return [
        (call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls
    ]


NOTE = {"role": "system", "content": "A note."}
SHAPES: list[tuple[str, Any]] = [
    ("as OpenAI has it", lambda a, b, c: [assistant(a, b, c), booked(a), booked(b), booked(c)]),
    (
        "a message for each call",
        lambda a, b, c: [
            *(assistant(a), booked(a)),
            *(assistant(b), booked(b)),
            *(assistant(c), booked(c)),
        ],
    ),
    (
        "a message for each call, then the results",
        lambda a, b, c: [assistant(a), assistant(b), assistant(c), booked(b), booked(c), booked(a)],
    ),
    (
        "messages between",
        lambda a, b, c: [
            assistant(a, b, c),
            NOTE,
            booked(a),
            {"role": "user", "content": "<system-reminder>Be brief.</system-reminder>"},
            booked(b),
            {"role": "assistant", "content": ""},
            {"role": "developer", "content": "Go on."},
            booked(c),
        ],
    ),
    (
        "asked again, answered twice",
        lambda a, b, c: [
            assistant(a, b, c),
            *(booked(a), booked(a)),
            assistant(b, c),
            *(booked(a), booked(b), booked(c)),
        ],
    ),
]


@pytest.mark.parametrize("history", [row[1] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_results_count_anywhere_in_the_history(
    client: openai.OpenAI, upstream: ScriptedUpstream, history: Any
) -> None:
    upstream.reply(BOOKINGS, "Done.")
    made = ask(client, [GO]).choices[0].message.tool_calls
    answer = ask(client, [GO, *history(*made)]).choices[0].message
    assert answer.content == "Done."
    assert "['ticket 1', 'ticket 2', 'ticket 3']" in str(upstream.requests[1]["messages"])


CHAIN = (
    "```tool_code\na = check('1')\nb = check('2')\nc = book(a)\nd = book(b)\nprint(a, b, c, d)\n```"
)


def test_a_late_result_resumes_the_program_at_its_furthest_point(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN, "Done.")
    one, two = ask(client, [GO]).choices[0].message.tool_calls
    messages = [GO, assistant(one, two), result(one, "A")]
    second = ask(client, messages)
    assert calls(second) == [("book", {"id": "A"})]
    [three] = second.choices[0].message.tool_calls or []
    messages += [assistant(three), result(three, "C"), result(two, "B")]
    third = ask(client, messages)
    assert calls(third) == [("book", {"id": "B"})]
    [four] = third.choices[0].message.tool_calls or []
    messages += [assistant(four), result(four, "D")]
    assert ask(client, messages).choices[0].message.content == "Done."
    assert "A B C D" in str(upstream.requests[1]["messages"])


def test_a_request_may_be_repeated_while_a_result_is_missing(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """What a later turn kept under the id of a call that was still out hid the earlier one."""
    upstream.reply(CHAIN)
    one, two = ask(client, [GO]).choices[0].message.tool_calls
    messages = [GO, assistant(one, two), result(one, "A")]
    answers = [ask(client, messages).choices[0].message.tool_calls for _ in range(2)]
    assert answers[0] == answers[1]


def test_a_result_that_the_client_no_longer_sends_stays_known(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """Agents cut old calls and results out of long histories."""
    upstream.reply("```tool_code\na = check('1')\nb = check('2' + a)\nprint(a, b)\n```", "Done.")
    [one] = ask(client, [GO]).choices[0].message.tool_calls
    messages = [GO, assistant(one), result(one, "A")]
    [two] = ask(client, messages).choices[0].message.tool_calls
    messages[1:] = [assistant(two), result(two, "B")]
    assert ask(client, messages).choices[0].message.content == "Done."
    assert "A B" in str(upstream.requests[1]["messages"])


def test_after_two_rounds_without_a_new_result_the_model_is_asked(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(BOOKINGS, "I cannot book the others.")
    first = ask(client, [GO]).choices[0].message
    messages = [GO, assistant(*first.tool_calls), booked(first.tool_calls[0])]
    for _ in range(2):
        again = ask(client, messages).choices[0].message
        assert [call[1]["id"] for call in calls_of(again)] == ["2", "3"]
        messages += [again.model_dump(exclude_none=True), booked(first.tool_calls[0])]
    answer = ask(client, messages).choices[0].message
    assert answer.content == "I cannot book the others."
    assert "ticket 1" in str(upstream.requests[1]["messages"])


def test_a_new_result_resets_the_count_of_rounds(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(BOOKINGS, "Done.")
    one, two, three = ask(client, [GO]).choices[0].message.tool_calls
    messages = [GO, assistant(one, two, three), booked(one)]
    for answered in (one, two, two, three):
        again = ask(client, messages).choices[0].message
        assert again.tool_calls, answered
        messages += [again.model_dump(exclude_none=True), booked(answered)]
    assert ask(client, messages).choices[0].message.content == "Done."
    assert len(upstream.requests) == 2


LEFT: list[tuple[str, Any]] = [
    (
        "the model has answered since",
        lambda a, b, c: [
            *(assistant(a, b, c), booked(a), GO),
            {"role": "assistant", "content": "As you like."},
            *(booked(b), booked(c)),
        ],
    ),
    (
        "another call was made since",
        lambda a, b, c: [
            *(assistant(a, b, c), booked(a), GO),
            assistant(c.model_copy(update={"id": "call_of_somebody_else"})),
            *(booked(b), booked(c)),
        ],
    ),
    (
        "an earlier message of the split has other arguments",
        lambda a, b, c: [
            *(*json.loads(json.dumps([assistant(a)]).replace('\\"1', '\\"9')), booked(a)),
            *(assistant(b, c), booked(b), booked(c)),
        ],
    ),
    (
        "an earlier message of the split has another id",
        lambda a, b, c: [
            *(assistant(a.model_copy(update={"id": "call_of_somebody_else"})), booked(a)),
            *(assistant(b, c), booked(b), booked(c)),
        ],
    ),
    ("the user has spoken since", lambda a, b, c: [assistant(a, b, c), booked(a), booked(b), GO]),
]


@pytest.mark.parametrize("history", [row[1] for row in LEFT], ids=[row[0] for row in LEFT])
def test_an_abandoned_program_does_not_resume(
    client: openai.OpenAI, upstream: ScriptedUpstream, history: Any
) -> None:
    upstream.reply(BOOKINGS, "Hello.")
    made = ask(client, [GO]).choices[0].message.tool_calls
    answer = ask(client, [GO, *history(*made)]).choices[0].message
    assert answer.content == "Hello."
