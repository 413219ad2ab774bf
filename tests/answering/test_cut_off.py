"""A truncated reply: no call of the truncated block is sent, and the model continues the block."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from emulator.reply.continuation import Continuation
from tests.conftest import StartProxy
from tests.support.chat import ASK, BOTH, calls
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL

TOOLS = [GET_WEATHER, SEND_MAIL]
JSON_CALL = '{"name": "get_weather", "arguments": {"location": "Paris"}}'
PARIS = [("get_weather", {"location": "Paris"})]

#: One call of the function in each syntax, whole.
SYNTAXES = {
    "fence": '```python\nget_weather(location="Paris")\n```',
    "fence of JSON": f"```json\n{JSON_CALL}\n```",
    "fence of YAML": "```yaml\nname: get_weather\narguments:\n  location: Paris\n```",
    "bare": 'get_weather(location="Paris")',
    "bare list": '[get_weather(location="Paris")]',
    "bare JSON": JSON_CALL,
    "JSON list": f"[{JSON_CALL}]",
    "JSON that says late that it calls": '{"type": "function", "function": ' + JSON_CALL + "}",
    "JSON within a line": f"I call {JSON_CALL}",
    "Hermes": f"<tool_call>\n{JSON_CALL}\n</tool_call>",
    "tool_code": '<tool_code>get_weather(location="Paris")</tool_code>',
    "Qwen3-Coder": "<tool_call>\n<function=get_weather>\n<parameter=location>\nParis\n</parameter>\n"
    "</function>\n</tool_call>",
    "Claude": '<function_calls>\n<invoke name="get_weather">\n<parameter name="location">Paris'
    "</parameter>\n</invoke>\n</function_calls>",
    "GLM": "<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value>Paris</arg_value>\n"
    "</tool_call>",
    "element": "<get_weather><location>Paris</location></get_weather>",
    "Mistral": f"[TOOL_CALLS][{JSON_CALL}]",
    "Mistral with a name": '[TOOL_CALLS]get_weather[ARGS]{"location": "Paris"}',
    "Llama": '<|python_tag|>get_weather(location="Paris")',
    "Llama in JSON": f"<|python_tag|>{JSON_CALL}<|eom_id|>",
    "Phi": f"<|tool_call|>[{JSON_CALL}]<|/tool_call|>",
    "functools": f"functools[{JSON_CALL}]",
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"location": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"location": "Paris"}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "gpt-oss": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"location": "Paris"}<|call|>',
    "Gemma": "<start_function_call>call:get_weather{location:<escape>Paris<escape>}"
    "<end_function_call>",
    "LFM": '<|tool_call_start|>[get_weather(location="Paris")]<|tool_call_end|>',
    "ReAct": "Action: get_weather\nAction Input: Paris",
    "ReAct in JSON": 'Action: get_weather\nAction Input: {"location": "Paris"}',
    "YAML": "name: get_weather\narguments:\n  location: Paris",
}
#: These end with the reply alone: whole as they are, they may have been about to go on.
ENDLESS = {
    *("bare", "bare list", "ReAct", "ReAct in JSON", "YAML"),
    *("Mistral", "Mistral with a name", "Llama", "functools"),
}

every_syntax = pytest.mark.parametrize("syntax", SYNTAXES)


def cuts(reply: str) -> list[int]:
    """Where a reply may be cut inside the call: at its value, before its end, and in between.

    A statement of Python has closed with its line, and has left by then.
    """
    value = reply.index("Paris")
    found = {value, value + 3, value + 5, value + 6}
    if not reply.startswith("```python"):
        found.add(len(reply) - 1)
    return sorted(cut for cut in found if cut < len(reply))


@pytest.fixture
def strict(start_proxy: StartProxy) -> openai.OpenAI:
    """A client of a proxy without a budget."""
    return openai.OpenAI(base_url=start_proxy(repair_attempts=0), api_key="k", max_retries=0)


@BOTH
@every_syntax
def test_a_truncated_call_is_not_sent(
    strict: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str
) -> None:
    reply = SYNTAXES[syntax]
    for cut in [*cuts(reply), *([len(reply)] if syntax in ENDLESS else [])]:
        upstream.reply(Reply(reply[:cut], finish_reason="length"))
        choice = ask(strict, model="m", messages=ASK, tools=TOOLS).choices[0]
        assert (choice.message.tool_calls or [], choice.finish_reason) == ([], "length"), cut
        assert "Par" not in (choice.message.content or ""), cut


@BOTH
@every_syntax
def test_the_model_continues_a_truncated_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str
) -> None:
    reply = SYNTAXES[syntax]
    for cut in cuts(reply):
        upstream.reply(Reply(reply[:cut], finish_reason="length"), reply[cut:])
        completion = ask(client, model="m", messages=ASK, tools=TOOLS)
        assert calls(completion) == PARIS, cut
        assert completion.choices[0].finish_reason == "tool_calls"
        told = upstream.requests[-1]["messages"]
        assert told[-2] == {"role": "assistant", "content": reply[:cut]}
        assert reply[:cut][-40:] in told[-1]["content"]


@every_syntax
def test_a_complete_call_is_sent_when_the_model_ends_its_reply(
    client: openai.OpenAI, upstream: ScriptedUpstream, syntax: str
) -> None:
    upstream.reply(SYNTAXES[syntax])
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == PARIS


def call(location: str) -> str:
    return f'```python\nget_weather(location="{location}")\n```'


GOING_ON = {
    "the very next character": 'is")\n```',
    "its last line again": 'get_weather(location="Paris")\n```',
    "the whole block again": call("Paris"),
    "a remark, and the block again": f"Sure, here it is again:\n\n{call('Paris')}",
    "another syntax": f"```json\n{JSON_CALL}\n```",
    "reasoning first": f'<think>Where was I? At `{call("Rome")}`.</think>is")\n```',
    "another cut": Reply('is"', finish_reason="length"),
}


@BOTH
@pytest.mark.parametrize("chunks", [None, 3])
@pytest.mark.parametrize("way", GOING_ON)
def test_a_model_may_continue_a_call_in_different_ways(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, way: str, chunks: int | None
) -> None:
    further = GOING_ON[way]
    written = further if isinstance(further, Reply) else Reply(further, chunks=chunks)
    upstream.reply(Reply(f"So:\n{call('Par')[:-6]}", finish_reason="length"))
    upstream.reply(written, *([")\n```"] if way == "another cut" else []))
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == PARIS
    assert completion.choices[0].message.content == "So:"


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_with_a_truncated_call_is_incomplete(
    strict: openai.OpenAI, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(Reply(SYNTAXES["Mistral"], finish_reason="length"))
    tool: Any = {"type": "function", "strict": None, **GET_WEATHER["function"]}
    answer: Any = strict.responses.create(
        model="m", input="Weather in Paris?", tools=[tool], stream=stream
    )
    response = list(answer)[-1].response if stream else answer
    assert (response.status, response.output) == ("incomplete", [])
    assert response.incomplete_details.reason == "max_output_tokens"


REASONS = ("length", "content_filter", "max_tokens", "insufficient_system_resource", "abort", None)


@pytest.mark.parametrize("reason", REASONS)
def test_every_finish_reason_but_the_models_own_end_means_truncation(
    strict: openai.OpenAI, upstream: ScriptedUpstream, reason: str | None
) -> None:
    upstream.reply(Reply("Action: get_weather\nAction Input: Par", finish_reason=reason))
    choice = strict.chat.completions.create(model="m", messages=ASK, tools=TOOLS).choices[0]
    assert choice.message.tool_calls is None
    assert choice.finish_reason == ("content_filter" if reason == "content_filter" else "length")


@BOTH
def test_calls_that_were_complete_before_the_cut_are_sent(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    hermes = f"<tool_call>{JSON_CALL}</tool_call>\n"
    upstream.reply(Reply(hermes + hermes[:-30], finish_reason="length"))
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == PARIS
    assert completion.choices[0].finish_reason == "length"


@BOTH
def test_truncated_words_are_sent_as_they_are(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(Reply("It is sunny in Par", finish_reason="length"))
    choice = ask(client, model="m", messages=ASK, tools=TOOLS).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("It is sunny in Par", "length")


@pytest.mark.parametrize(("limit", "asked"), [(3, 1), (4, 2)])
def test_the_clients_own_limit_on_tokens_is_the_budget_too(
    client: openai.OpenAI, upstream: ScriptedUpstream, limit: int, asked: int
) -> None:
    """A scripted reply counts as three tokens."""
    upstream.reply(Reply(call("Paris")[:-9], finish_reason="length"))
    upstream.reply(*[call("Paris")[-9:]] * (asked - 1))
    completion = client.chat.completions.create(
        model="m", messages=ASK, tools=TOOLS, max_tokens=limit
    )
    assert calls(completion) == PARIS * (asked - 1)
    assert [request["max_tokens"] for request in upstream.requests] == [limit, 1][:asked]


@pytest.mark.parametrize("size", range(1, 40, 3))
@pytest.mark.parametrize("further", [w for w in GOING_ON.values() if isinstance(w, str)])
def test_a_continuation_is_joined_the_same_however_it_is_cut(further: str, size: int) -> None:
    text = further + "\nAnd so on." * 100
    cut = call("Par")[:-6]
    whole = Continuation(cut, ["get_weather"])
    pieces = Continuation(cut, ["get_weather"])
    expected = whole.feed(text) + whole.close()
    joined = [pieces.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*joined, pieces.close()]) == expected
