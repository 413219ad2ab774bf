"""Guards for weak models: one budget of repairs, and each fault described so that it can be corrected."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from emulator.answering.model_habits import ModelHabits
from tests.conftest import StartProxy
from tests.support import three_apis
from tests.support.chat import ASK, BOTH, LONDON, calls, plain
from tests.support.scripted import USAGE, Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL, function, strings

INVALID = '```python\nget_weather(town="London")\n```'


SHOWN = 'Like this:\n```python\nsend_mail(to="a@b.example", body="Hi.")\n```'
"""A block that is neither labelled nor alone: the model is asked about it."""
INVALID_MAIL = '```tool_code\nsend_mail(recipient="a@b.example")\n```'


@BOTH
@pytest.mark.parametrize(
    "later",
    [
        [Reply(status=400)],
        [INVALID_MAIL, Reply(status=400)],
        [INVALID_MAIL, INVALID_MAIL],
        [INVALID_MAIL, f"{INVALID_MAIL}\n", f"{INVALID_MAIL} "],
        [""],
    ],
    ids=["refused", "invalid then refused", "the same twice", "invalid", "empty"],
)
def test_words_stay_the_answer_when_the_question_about_their_block_fails(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, later: list[Any]
) -> None:
    upstream.reply(SHOWN, *later)
    completion = ask(client, model="m", messages=ASK, tools=[SEND_MAIL])
    assert completion.choices[0].message.content == SHOWN
    assert completion.choices[0].finish_reason == "stop"
    assert len(upstream.requests) == 1 + len(later)


@BOTH
def test_words_that_announce_a_call_are_an_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply("Let me check the weather.")
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    assert completion.choices[0].message.content == "Let me check the weather."
    assert len(upstream.requests) == 1


MARKED_INVALID = '```tool_code\nget_weather(town="London")\n```'


@BOTH
@pytest.mark.parametrize(
    "later",
    [[Reply(status=400)], [Reply(status=401)], ["*"], ["", ""]],
    ids=["refused", "not allowed", "the same twice", "empty"],
)
def test_words_are_the_answer_if_no_better_reply_comes(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, later: list[Any]
) -> None:
    """It ended in a 502, and the words were lost."""
    first = f"I look.\n\n{MARKED_INVALID}"
    upstream.reply(first, *(first if one == "*" else one for one in later))
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    shown = MARKED_INVALID.replace("tool_code", "python")
    assert completion.choices[0].message.content == f"I look.\n\n{shown}"
    assert completion.choices[0].finish_reason == "stop"
    assert len(upstream.requests) == 1 + len(later)


@BOTH
def test_a_required_call_that_cannot_be_repaired_is_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(INVALID, Reply(status=400))
    with pytest.raises(openai.APIError, match="wrote code that cannot be used") as caught:
        ask(client, model="m", messages=ASK, tools=[GET_WEATHER], tool_choice="required")
    assert caught.value.code == "model_invalid"


def test_a_refused_repair_does_not_count_in_the_usage(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(SHOWN, Reply(status=400))
    completion = client.chat.completions.create(model="m", messages=ASK, tools=[SEND_MAIL])
    assert completion.usage is not None
    assert completion.usage.to_dict() == USAGE


def circle(*results: str) -> list[Any]:
    """A history in which London's weather was asked for again and again."""
    history: list[Any] = [*ASK]
    for n, result in enumerate(results):
        function = {"name": "get_weather", "arguments": '{"location": "London"}'}
        call = {"id": f"call_{n}", "type": "function", "function": function}
        history += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{n}", "content": result},
        ]
    return history


@BOTH
def test_a_model_that_repeats_a_call_with_the_same_result_is_asked_to_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(LONDON, "It is 12 degrees.")
    completion = ask(client, model="m", messages=circle("12", "12"), tools=[GET_WEATHER])
    assert completion.choices[0].message.content == "It is 12 degrees."
    told = upstream.requests[1]["messages"][-1]["content"]
    assert "called like this before, with the same result each time" in told


@pytest.mark.parametrize("results", [("12",), ("12", "13"), ("pending", "12")])
def test_a_repeated_call_whose_result_changes_is_sent(
    client: openai.OpenAI, upstream: ScriptedUpstream, results: tuple[str, ...]
) -> None:
    upstream.reply(LONDON)
    completion = client.chat.completions.create(
        model="m", messages=circle(*results), tools=[GET_WEATHER]
    )
    assert calls(completion) == [("get_weather", {"location": "London"})]


WAITING = """\
```python
if "12" in get_weather("London"):
    get_weather("Oslo")
```"""


@BOTH
@pytest.mark.parametrize("first", [LONDON, WAITING], ids=["call", "program that waits for it"])
@pytest.mark.parametrize(
    "later",
    [[LONDON], [INVALID, INVALID], ["", ""], [Reply(status=400)], [Reply(status=401)]],
    ids=["again", "invalid", "empty", "refused", "not allowed"],
)
def test_a_repeated_call_is_sent_if_no_better_reply_comes(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, first: str, later: list[Any]
) -> None:
    """It is valid, and ended in a 502."""
    upstream.reply(first, *later)
    completion = ask(client, model="m", messages=circle("12", "12"), tools=[GET_WEATHER])
    assert calls(completion) == [("get_weather", {"location": "London"})]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert len(upstream.requests) == 1 + len(later)


def test_without_a_budget_a_repeated_call_is_sent_without_a_question(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(repair_attempts=0), api_key="k", max_retries=0)
    upstream.reply(LONDON)
    completion = plain(client, model="m", messages=circle("12", "12"), tools=[GET_WEATHER])
    assert calls(completion) == [("get_weather", {"location": "London"})]


def history(*made: tuple[str, str, str]) -> list[Any]:
    """Messages with one call each: name, argument, result."""
    messages: list[Any] = [*ASK]
    for n, (name, text, result) in enumerate(made):
        function = {"name": name, "arguments": json.dumps({"x": text})}
        call = {"id": f"call_{n}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{n}", "content": result},
        ]
    return messages


TEST, EDIT, POLL = (
    ("bash", "pytest", "1 failed"),
    ("edit", "a", "ok"),
    ("job_status", "7", "running"),
)
REPEATED: list[tuple[str, list[Any], str, int]] = [
    (
        "tests are run again after an edit",
        [TEST, EDIT, TEST, EDIT, TEST, EDIT],
        "bash('pytest')",
        1,
    ),
    ("a repetition without an edit in between", [EDIT, TEST, TEST], "bash('pytest')", 2),
    ("another call is another matter", [TEST, TEST], "bash('pytest -x')", 1),
    ("a job may be polled", [POLL] * 9, "job_status('7')", 1),
    ("a poll that never ends", [POLL] * 10, "job_status('7')", 2),
    ("a circle of two has something in between", [TEST, EDIT] * 3, "bash('pytest')", 1),
]


@pytest.mark.parametrize(
    ("made", "call", "requests"), [row[1:] for row in REPEATED], ids=[row[0] for row in REPEATED]
)
def test_a_repetition_counts_only_when_nothing_else_was_called_in_between(
    client: openai.OpenAI, upstream: ScriptedUpstream, made: Any, call: str, requests: int
) -> None:
    reply = f"```python\n{call}\n```"
    upstream.reply(*[reply] * requests)
    tools = [function(name, strings("x")) for name in ("bash", "edit", "job_status")]
    completion = plain(client, model="m", messages=history(*made), tools=tools)
    assert completion.choices[0].finish_reason == "tool_calls"
    assert len(upstream.requests) == requests


def test_equal_calls_of_one_message_are_not_a_repetition(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """Two throws of a die."""
    messages = history(("roll", "d6", "3"), ("roll", "d6", "3"))
    first, _, second, _ = messages[1:]
    first["tool_calls"] += second["tool_calls"]
    messages.remove(second)
    upstream.reply("```python\nroll('d6')\n```")
    completion = plain(client, model="m", messages=messages, tools=[function("roll", strings("x"))])
    assert calls(completion) == [("roll", {"x": "d6"})]


def test_a_repeated_program_resumes_after_its_first_call(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    program = "```python\nx = bash('pytest')\nedit(x)\n```"
    upstream.reply(program, program)
    tools = [function(name, strings("x")) for name in ("bash", "edit")]
    messages = history(TEST, TEST)
    message = plain(client, model="m", messages=messages, tools=tools).choices[0].message
    assert len(message.tool_calls) == 1
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "passed"},
    ]
    second = plain(client, model="m", messages=messages, tools=tools)
    assert calls(second) == [("edit", {"x": "passed"})]


def test_the_operator_sets_the_number_of_repairs(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(repair_attempts=0), api_key="k", max_retries=0)
    reply = "```python\nget_weather(town='x')\n```"
    upstream.reply(reply)
    completion = client.chat.completions.create(model="m", messages=ASK, tools=[GET_WEATHER])
    assert completion.choices[0].message.content == reply
    assert len(upstream.requests) == 1


def test_a_repair_beyond_the_context_length_reports_the_first_fault(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """If a call is required; otherwise the words are the answer."""
    too_long = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    upstream.reply("```python\nget_weather(town='x')\n```", Reply(status=400, body=too_long))
    request: Any = {"model": "m", "messages": ASK, "tools": [GET_WEATHER]}
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(**request, tool_choice="required")
    assert raised.value.code == "model_invalid"


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_answer_is_requested_again(
    client: openai.OpenAI, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(" \n", "Here I am.")
    request: Any = {"model": "m", "messages": ASK, "tools": [GET_WEATHER], "stream": stream}
    answer: Any = client.chat.completions.create(**request)
    if stream:
        assert "".join(c.choices[0].delta.content or "" for c in answer) == "Here I am."
    else:
        assert answer.choices[0].message.content == "Here I am."


TAGGED = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "London"}}\n</tool_call>'
CALL_AT_THE_END = f"The tool is right.\n{LONDON}"
THOUGHTS = {
    "a field": Reply("", reasoning=CALL_AT_THE_END),
    "tags": Reply(f"<think>\n{CALL_AT_THE_END}\n</think>\n\n"),
    "a field, and a line": Reply("\n", reasoning=CALL_AT_THE_END),
    "a model's own syntax": Reply("", reasoning=f"Let me call it.\n\n{TAGGED}\n"),
    "after a draft": Reply("", reasoning=f"{LONDON}\nNo.\n{CALL_AT_THE_END}"),
    "thinking that nothing closes": Reply(f"<think>\n{CALL_AT_THE_END}"),
}


@BOTH
@pytest.mark.parametrize("place", THOUGHTS)
def test_a_call_that_ends_the_reasoning_of_an_empty_answer_is_the_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, place: str
) -> None:
    """Qwen 3.5 does so often (vllm-project/vllm#39056)."""
    upstream.reply(THOUGHTS[place])
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    assert calls(completion) == [("get_weather", {"location": "London"})]


DRAFTS = {
    "words after it": f"{LONDON}\nThat is it.",
    "within a sentence": "I could call get_weather(location='London') here",
    "an open block": LONDON.removesuffix("```"),
    "no block": "Nothing.",
}


@BOTH
@pytest.mark.parametrize("draft", DRAFTS)
def test_a_draft_in_reasoning_is_no_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, draft: str
) -> None:
    upstream.reply(Reply("", reasoning=DRAFTS[draft]), "Yes?")
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    assert calls(completion) == []
    assert completion.choices[0].message.content == "Yes?"


def test_an_answer_outside_reasoning_is_never_overruled(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("It is fine.", reasoning=LONDON))
    completion = client.chat.completions.create(model="m", messages=ASK, tools=[GET_WEATHER])
    assert completion.choices[0].message.content == "It is fine."


def test_the_prompt_accepts_json_from_a_model_that_keeps_calling_in_json(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    called = json.dumps({"name": "get_weather", "arguments": {"location": "London"}})
    for model in ("json-model", "python-model"):
        for _ in range(5):
            upstream.reply(called if model == "json-model" else LONDON)
            client.chat.completions.create(model=model, messages=ASK, tools=[GET_WEATHER])
        told = upstream.requests[-1]["messages"][0]["content"]
        assert ("works too" in told) == (model == "json-model")


def test_habits_drop_the_least_recently_used_models() -> None:
    habits = ModelHabits()
    for n in range(1000):
        for _ in range(4):
            habits.record_dialects(f"model {n}", {"json"})
    assert (habits.usual_dialect("model 0"), habits.usual_dialect("model 999")) == (
        "python",
        "json",
    )
    habits.record_dialects("model 999", {"python"})
    assert habits.usual_dialect("model 999") == "python"


CUT = Reply("```python\nget_weather('a')\nget_weather('b", finish_reason="length")


@BOTH
def test_a_call_cut_off_by_the_token_limit_is_not_completed(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(CUT)
    completion = client.chat.completions.create(
        model="m", messages=ASK, tools=[GET_WEATHER, SEND_MAIL]
    )
    assert calls(completion) == [("get_weather", {"location": "a"})]


@pytest.mark.parametrize("tools", ["emulate", "native"])
@pytest.mark.parametrize("api", three_apis.APIS)
@pytest.mark.parametrize(
    ("reply", "quoted"),
    [
        ('I will\nnot\x07 call "it".', r'It wrote: "I will\nnot\u0007 call \"it\"."'),
        ("no " * 9000, 'It wrote: "no no no'),
        (" ", ""),
    ],
)
def test_a_failure_of_the_model_quotes_what_it_wrote(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    api: three_apis.Api,
    tools: str,
    reply: str,
    quoted: str,
) -> None:
    """A client saw that a required call was missing, but not why."""
    upstream.default = Reply(reply)
    choice: Any = {"type": "any"} if api == "messages" else "required"
    url = start_proxy(tools=tools)
    outcome = three_apis.ask(url, api, GET_WEATHER, stream=False, tool_choice=choice)
    assert outcome.status == 502
    assert quoted in outcome.error and len(outcome.error) < 600
    assert ("It wrote" in outcome.error) == bool(quoted)
