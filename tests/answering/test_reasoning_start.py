"""Replies that begin inside reasoning, which the chat template has opened: no draft in it is called."""

from __future__ import annotations

import itertools
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.reading.events import BlockDelta, Event, Reasoning, Text
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from tests.support.chat import ASK, BOTH, LONDON, calls
from tests.support.examples import example_count
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

DRAFT = '```python\nget_weather(location="draft")\n```'
JSON_DRAFT = '{"name": "get_weather", "arguments": {"location": "draft"}}'
LONDON_CALL = [("get_weather", {"location": "London"})]

#: Thoughts with drafts of calls, each without the tag that opens them.
THOUGHTS = {
    "a fence": f"I could write\n{DRAFT}\nor not.\n",
    "a bare call": 'Maybe this:\nget_weather(location="draft")\nNo.\n',
    "JSON": f"Maybe\n{JSON_DRAFT}\nno.\n",
    "an element": f"Maybe\n<tool_call>\n{JSON_DRAFT}\n</tool_call>\nno.\n",
    "a fence that nobody closed": 'I could write\n```python\nget_weather(location="draft")\n',
    "an element that nobody closed": f"Maybe <tool_call>\n{JSON_DRAFT}\n",
    "ReAct": 'Maybe\nAction: get_weather\nAction Input: {"location": "draft"}\n',
    "a draft at once": f"{DRAFT}\nNo, that is silly.\n",
    "several drafts": f"First\n{DRAFT}\nthen\n{DRAFT}\nWait.\n",
}
every_thought = pytest.mark.parametrize("thought", THOUGHTS)


def content(completion: Any) -> str:
    return completion.choices[0].message.content or ""


@BOTH
@every_thought
@pytest.mark.parametrize("model", ["deepseek-r1", "qwq-32b", "glm-4.7"])
@pytest.mark.parametrize("chunks", [None, 5])
def test_a_draft_before_a_lone_closing_tag_is_not_called(
    client: openai.OpenAI,
    upstream: ScriptedUpstream,
    ask: Any,
    thought: str,
    model: str,
    chunks: int | None,
) -> None:
    upstream.reply(Reply(f"{THOUGHTS[thought]}</think>\n\nIt is fine.", chunks=chunks))
    completion = ask(client, model=model, messages=ASK, tools=[GET_WEATHER])
    assert (calls(completion), content(completion)) == ([], "It is fine.")
    assert completion.choices[0].message.reasoning_content == THOUGHTS[thought]


@BOTH
@every_thought
def test_a_call_after_a_lone_closing_tag_is_sent(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, thought: str
) -> None:
    upstream.reply(Reply(f"{THOUGHTS[thought]}</think>\n\n{LONDON}", chunks=3))
    completion = ask(client, model="deepseek-r1", messages=ASK, tools=[GET_WEATHER])
    assert (calls(completion), content(completion)) == (LONDON_CALL, "")


@BOTH
@pytest.mark.parametrize("thought", [name for name in THOUGHTS if name != "a draft at once"])
def test_an_unknown_models_call_after_words_waits_for_the_end_of_the_reply(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, thought: str
) -> None:
    upstream.reply(Reply(f"{THOUGHTS[thought]}</think>It is fine.", chunks=4))
    completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    assert calls(completion) == []
    assert content(completion).endswith("It is fine.")


@BOTH
def test_the_first_closing_tag_is_remembered(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply("Hm.</think>Hello.", Reply(f"{DRAFT}\nNo.</think>It is fine.", chunks=4))
    for answer in ("Hello.", "It is fine."):
        completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
        assert (calls(completion), content(completion)[-len(answer) :]) == ([], answer)
    assert content(completion) == "It is fine."


def test_the_start_of_reasoning_is_remembered_per_model_and_thinking_option(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """The same model may be told not to think; then its replies begin outside."""
    upstream.reply("Hm.</think>Hello.", LONDON, LONDON)
    request: Any = {"messages": ASK, "tools": [GET_WEATHER]}
    client.chat.completions.create(model="m", **request)
    other = client.chat.completions.create(model="other", **request)
    switched = {"chat_template_kwargs": {"enable_thinking": False}}
    off = client.chat.completions.create(model="m", extra_body=switched, **request)
    assert calls(other) == calls(off) == LONDON_CALL


@BOTH
def test_reasoning_streams_once_its_start_is_known(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply("Hm.</think>Hello.", Reply(chunks=["I ", "think."], fault="silent", after=2))
    ask(client, model="deepseek-r1", messages=ASK, tools=[GET_WEATHER])
    with client.chat.completions.create(
        model="deepseek-r1", messages=ASK, tools=[GET_WEATHER], stream=True
    ) as stream:
        read_deltas: Any = (chunk.choices[0].delta for chunk in stream if chunk.choices)
        thought = (
            delta.reasoning_content for delta in read_deltas if hasattr(delta, "reasoning_content")
        )
        assert "I think." in itertools.accumulate(thought)


@BOTH
@pytest.mark.parametrize("model", ["deepseek-r1", "qwen3", "m"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(f"Let me look.\n{LONDON}"),
        Reply(f"Let me look.\n{LONDON}", reasoning="Hm."),
        Reply(f"<think>{DRAFT}</think>Let me look.\n{LONDON}"),
        Reply(f"<think>\n{DRAFT}\n</think>\n\nLet me look.\n{LONDON}", chunks=3),
    ],
)
def test_a_model_whose_replies_begin_outside_reasoning_calls_as_before(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, model: str, reply: Reply
) -> None:
    upstream.reply(reply, reply)
    for _ in range(2):
        completion = ask(client, model=model, messages=ASK, tools=[GET_WEATHER])
        assert (calls(completion), content(completion)) == (LONDON_CALL, "Let me look.")


@BOTH
def test_a_draft_is_not_called_although_the_last_reply_began_outside(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """A router answers under one name with models that think and models that do not."""
    thought = Reply(f"I could write\n{DRAFT}\nor not.\n</think>It is fine.", chunks=4)
    for model in ("m", "qwen3"):
        upstream.reply("Hello.", thought, f"Let me look.\n{LONDON}")
        for expected in ([], [], LONDON_CALL):
            completion = ask(client, model=model, messages=ASK, tools=[GET_WEATHER])
            assert calls(completion) == expected


def test_prose_streams_when_the_last_reply_began_outside(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.", Reply(chunks=["Well, ", "yes."], fault="silent", after=2))
    client.chat.completions.create(model="qwen3", messages=ASK, tools=[GET_WEATHER])
    with client.chat.completions.create(
        model="qwen3", messages=ASK, tools=[GET_WEATHER], stream=True
    ) as stream:
        words = (chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert "Well, yes." in itertools.accumulate(words)


def test_calls_after_prose_stream_once_several_replies_began_outside(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    calling = Reply(chunks=["Let me look.\n", LONDON, "\n\nIt is"], fault="silent", after=3)
    upstream.reply(*["Hello."] * 4, calling)
    for _ in range(4):
        client.chat.completions.create(model="m", messages=ASK, tools=[GET_WEATHER])
    with client.chat.completions.create(
        model="m", messages=ASK, tools=[GET_WEATHER], stream=True
    ) as stream:
        assert any(chunk.choices[0].delta.tool_calls for chunk in stream if chunk.choices)


@BOTH
def test_a_name_under_which_a_reply_began_inside_is_never_trusted_again(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    thought = Reply(f"I could write\n{DRAFT}\nor not.\n</think>It is fine.", chunks=4)
    upstream.reply("Hm.</think>Hello.", *["Hello."] * 6, thought)
    for _ in range(8):
        completion = ask(client, model="m", messages=ASK, tools=[GET_WEATHER])
    assert calls(completion) == []


@BOTH
@pytest.mark.parametrize("model", ["deepseek-r1", "glm-4.7", "m"])
def test_a_draft_in_reasoning_that_was_cut_off_is_not_called(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, model: str
) -> None:
    upstream.reply(Reply(f"I could write\n{DRAFT}\nbut th", finish_reason="length"))
    completion = ask(client, model=model, messages=ASK, tools=[GET_WEATHER])
    assert (calls(completion), completion.choices[0].finish_reason) == ([], "length")


@BOTH
@pytest.mark.parametrize("chunks", [None, 3])
def test_a_reply_without_reasoning_is_an_answer_although_the_last_one_began_inside(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, chunks: int | None
) -> None:
    """The whole reply became reasoning, and the model was asked again."""
    upstream.reply(
        "Hm.</think>Hello.",
        Reply("It is fine.", chunks=chunks),
        "Hm.</think>Hello.",
        Reply(f"So.\n{LONDON}", chunks=chunks),
    )
    answers = [ask(client, model="m", messages=ASK, tools=[GET_WEATHER]) for _ in range(4)]
    assert [calls(answer) for answer in answers] == [[], [], [], LONDON_CALL]
    assert content(answers[1]) == "It is fine."
    assert len(upstream.requests) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_holds_the_draft_in_its_reasoning(
    client: openai.OpenAI, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(f"I could write\n{DRAFT}\n</think>It is fine.")
    tool: Any = {"type": "function", "strict": None, **GET_WEATHER["function"]}
    answer: Any = client.responses.create(
        model="deepseek-r1", input="Weather?", tools=[tool], stream=stream
    )
    response = list(answer)[-1].response if stream else answer
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text == "It is fine."


PIECES = st.sampled_from(
    [
        *("Well. ", "\n", "```python\n", "```", "get_weather(location='x')\n", "<tool_call>", "</"),
        *(
            "</tool_call>",
            "</think>",
            "<think>",
            "think>",
            '{"name": "get_weather"',
            "}",
            "f(",
            ")",
        ),
        *("\n</think>", '"""', "Action: get_weather\n", "[THINK]", "[/THINK]"),
    ]
)


def code(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, BlockDelta))


@settings(max_examples=example_count(300))
@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.sampled_from(ReasoningStart),
    st.booleans(),
    st.data(),
)
def test_the_calls_do_not_depend_on_how_the_reply_is_cut(
    reply: str, begins: ReasoningStart, cut_off: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=6)))
    if (
        begins is ReasoningStart.UNKNOWN
    ):  # thoughts begin with words: what stands before them leaves at once
        reply = f"Well. {reply}"
    pieces = [reply[start:end] for start, end in itertools.pairwise([0, *cuts, len(reply)])]
    found: list[list[Event]] = []
    for fed in ([reply], pieces):
        splitter = ReplySplitter(["get_weather"], begins)
        events = [event for piece in fed for event in splitter.feed(piece)]
        found.append([*events, *splitter.close(cut_off=cut_off)])
        raw = "".join(event.raw for event in found[-1])
        twice = begins is ReasoningStart.INSIDE and raw == reply + reply
        assert raw == reply or twice
    assert code(found[0]) == code(found[1])
    words = ["".join(e.text for e in events if isinstance(e, Text | Reasoning)) for events in found]
    assert words[0] == words[1]


@pytest.mark.parametrize(
    ("reply", "called"),
    [
        ("<tool_call>\n</think></tool_call></tool_call>", "</tool_call></tool_call>"),
        ("get_weather(location='x')\nWell. </tool_call>\n</think>", ""),
    ],
)
def test_a_draft_before_a_closing_tag_does_not_run_however_the_reply_is_cut(
    reply: str, called: str
) -> None:
    """What follows the closing tag, or a stray tag of a call before it, decided instead of the tag."""
    for pieces in ([reply], list(reply)):
        splitter = ReplySplitter(["get_weather"], ReasoningStart.INSIDE_UNTIL_SHOWN)
        events = [event for piece in pieces for event in splitter.feed(piece)]
        assert code([*events, *splitter.close()]) == called
