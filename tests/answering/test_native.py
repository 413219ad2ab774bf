"""Upstreams that call tools themselves: valid replies pass unchanged, faulty ones never reach a client.

The faults are those of published threads, each named in its row; the upstream makes them over real HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import read_page, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function

GET_WEATHER = function(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
LIST_TABLES = function("list_tables", {"type": "object", "properties": {}})
TOOLS = [GET_WEATHER, LIST_TABLES]
QUESTION: list[Any] = [{"role": "user", "content": "How is the weather?"}]
LONDON = ("get_weather", {"city": "London"})
OSLO = ("get_weather", {"city": "Oslo"})


def frames(*deltas: dict[str, Any], finish: str | None = "tool_calls", **extra: Any) -> Reply:
    """A stream of exactly these deltas."""
    told = [*({"delta": delta, "finish_reason": None} for delta in deltas)]
    told.append({"delta": {}, "finish_reason": finish})
    chunks = [
        {
            "id": "c-7",
            "created": 5,
            "system_fingerprint": "fp",
            **extra,
            "choices": [{"index": 0, **part}],
        }
        for part in told
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Reply(frames=[*lines, b"data: [DONE]\n\n"])


def piece(
    name: str | None = None, arguments: Any = None, index: Any = 0, key: str | None = None
) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if index is not None:
        written["index"] = index
    if key:
        written |= {"id": key, "type": "function"}
    inner = {n: v for n, v in (("name", name), ("arguments", arguments)) if v is not None}
    return {"tool_calls": [{**written, "function": inner}]}


def call(name: str, arguments: Any, index: Any = 0, key: str | None = None) -> dict[str, Any]:
    return piece(name, arguments, index, f"k{index}" if key is None else key)


def again(*words: str) -> Reply:
    """The reply to a request to mend what was wrong."""
    return frames(call("get_weather", '{"city": "London"}'), extra_word=" ".join(words))


@dataclass
class Fault:
    reply: Reply
    calls: list[tuple[str, Any]] = field(default_factory=lambda: [LONDON])
    counted: tuple[str, ...] = ()
    mended_by: tuple[Reply, ...] = ()
    """What the model says when it is asked again."""
    content: str = ""


def two_calls(counted: str, *marks: tuple[Any, str]) -> Fault:
    """London's weather and Oslo's, with these indices and ids."""
    calls = [
        call("get_weather", json.dumps({"city": city}), *mark)
        for city, mark in zip(("London", "Oslo"), marks, strict=True)
    ]
    return Fault(frames(*calls), [LONDON, OSLO], (counted,))


FAULTS = {
    "index 0 for all calls (ollama/ollama#15457, ai-dynamo/dynamo#4723)": two_calls(
        "index", (0, "a"), (0, "b")
    ),
    "no index at all (ollama/ollama#7881)": two_calls("index", (None, "a"), (None, "b")),
    "neither index nor id tells calls apart": Fault(
        frames(
            piece("get_weather", '{"city": "London"}', None),
            piece("get_weather", '{"city": "Oslo"}', None),
        ),
        [LONDON, OSLO],
        ("index", "id"),
    ),
    "indices with a hole": Fault(
        frames(call("get_weather", '{"city": "London"}', 1)), counted=("index",)
    ),
    "the name in every piece (NousResearch/hermes-agent#8259)": Fault(
        frames(
            call("get_weather", ""),
            piece("get_weather", '{"city": '),
            piece("get_weather", '"London"}'),
        ),
        counted=("name",),
    ),
    "the name in pieces (continuedev/continue#5849)": Fault(
        frames(call("get_wea", ""), piece("ther", ""), piece(None, '{"city": "London"}')),
        counted=("name",),
    ),
    "the name doubled": Fault(
        frames(call("get_weatherget_weather", '{"city": "London"}')), counted=("name",)
    ),
    "a namespace before the name": Fault(
        frames(call("functions.get_weather", '{"city": "London"}')), counted=("name",)
    ),
    "an object for arguments": Fault(
        frames(call("get_weather", {"city": "London"})), counted=("arguments",)
    ),
    "arguments encoded twice (tailcallhq/forgecode#2764)": Fault(
        frames(call("get_weather", json.dumps('{"city": "London"}'))), counted=("arguments",)
    ),
    "an empty object before the arguments": Fault(
        frames(call("get_weather", "{}"), piece(None, '{"city": "London"}')), counted=("arguments",)
    ),
    "arguments that are Python (mistralai/mistral-vibe#615)": Fault(
        frames(call("get_weather", "{'city': 'London',}")), counted=("arguments",)
    ),
    "no arguments (vllm-project/vllm#11392)": Fault(
        frames(piece("list_tables", None, 0, "k")), [("list_tables", {})], ("arguments",)
    ),
    "a number as text": Fault(
        frames(call("get_weather", '{"city": "London", "days": "3"}')),
        [("get_weather", {"city": "London", "days": 3})],
        ("schema",),
    ),
    "no id": Fault(frames(piece("get_weather", '{"city": "London"}')), counted=("id",)),
    "one id for two calls": two_calls("id", (0, "a"), (1, "a")),
    'finished with "stop" (ollama/ollama#7963, sgl-project/sglang#2877)': Fault(
        frames(call("get_weather", '{"city": "London"}'), finish="stop"),
        counted=("finish_reason",),
    ),
    "markup in content (vllm-project/vllm#17161)": Fault(
        frames(
            {"content": "I look.\n<tool_"},
            {"content": 'call>\n{"name": "get_weather", "arguments": {"city": '},
            {"content": '"London"}}\n</tool_call>'},
            finish="stop",
        ),
        counted=("markup",),
        content="I look.",
    ),
    "XML in content (vllm-project/vllm#21571)": Fault(
        frames(
            {
                "content": "<tool_call>\n<function=get_weather>\n<parameter=city>\nLondon\n</parameter>"
            },
            {"content": "\n</function>\n</tool_call>"},
            finish="stop",
        ),
        counted=("markup",),
    ),
    "arguments beyond reading (ggml-org/llama.cpp#22072)": Fault(
        frames(call("get_weather", '{"city": "Lon')),
        counted=("dropped", "asked_invalid"),
        mended_by=(again(),),
    ),
    "a function that was not offered": Fault(
        frames(call("launch_rocket", "{}")), counted=("asked_invalid",), mended_by=(again(),)
    ),
    "an argument that is missing": Fault(
        frames(call("get_weather", '{"town": "London"}')),
        counted=("asked_invalid",),
        mended_by=(again(),),
    ),
    "wrong twice": Fault(
        frames(call("launch_rocket", "{}")),
        counted=("asked_invalid",),
        mended_by=(frames(call("get_weather", '{"days": 1}')), again()),
    ),
    "an empty answer": Fault(
        frames({"content": ""}, finish="stop"), counted=("asked_empty",), mended_by=(again(),)
    ),
    "only reasoning": Fault(
        frames({"reasoning_content": "Hm."}, finish="stop"),
        counted=("asked_empty",),
        mended_by=(again(),),
    ),
    "one call of two beyond reading": Fault(
        frames(call("get_weather", '{"city": "London"}'), call("launch_rocket", "{}", 1)),
        counted=("dropped",),
    ),
}


@pytest.fixture
def native(start_proxy: StartProxy) -> Iterator[openai.OpenAI]:
    url = start_proxy(tools="native")
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        yield client


def counts(client: openai.OpenAI) -> dict[str, float]:

    address = str(client.base_url).removesuffix("/v1/") + "/metrics"
    lines = read_page(address).splitlines()
    begin = 'emulator_native_repairs_total{kind="'
    return {
        line.removeprefix(begin).partition('"')[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(begin)
    }


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, list[tuple[str, Any]], str]:
    """Content, calls and finish reason, put together as OpenAI's own helper does."""
    with client.chat.completions.stream(
        model="m", messages=QUESTION, tools=TOOLS, **fields
    ) as events:
        for _ in events:
            pass
        [choice] = events.get_final_completion().choices
    return _told(choice)


def _told(choice: Any) -> tuple[str, list[tuple[str, Any]], str]:
    calls = choice.message.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    made = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    return choice.message.content or "", made, choice.finish_reason


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_native_reply_never_reaches_the_client(
    native: openai.OpenAI, upstream: ScriptedUpstream, fault: str
) -> None:
    case = FAULTS[fault]
    before = counts(native)
    upstream.reply(case.reply, *case.mended_by, case.reply, *case.mended_by)
    content, calls, finish = streamed(native)
    assert (content.strip(), calls, finish) == (case.content, case.calls, "tool_calls")
    plain = native.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS)
    assert _told(plain.choices[0]) == (content, calls, finish)
    after = counts(native)
    assert {kind for kind in case.counted if after.get(kind, 0) == before.get(kind, 0)} == set()
    if case.mended_by:
        assert upstream.requests[1]["tools"] == TOOLS
        assert [m["role"] for m in upstream.requests[1]["messages"]] == [
            "user",
            "assistant",
            "user",
        ]


def test_without_parallel_tool_calls_one_native_call_is_sent(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    two = [call("get_weather", '{"city": "London"}'), call("get_weather", '{"city": "Oslo"}', 1)]
    upstream.reply(frames(*two))
    assert streamed(native, parallel_tool_calls=False)[1] == [LONDON]
    assert upstream.requests[0]["parallel_tool_calls"] is False


@pytest.mark.parametrize("field", ["responses", "messages"])
def test_the_other_apis_get_native_calls_too(
    start_proxy: StartProxy, upstream: ScriptedUpstream, field: str
) -> None:
    url = start_proxy(tools="native")
    upstream.reply(
        frames({"content": "I look."}, call("functions.get_weather", '{"city": "London"}'))
    )
    tool = GET_WEATHER["function"]
    if field == "responses":
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        tools: Any = [{"type": "function", **tool}]
        words, made = client.responses.create(model="m", input="?", tools=tools).output
        assert (made.type, made.name, made.arguments) == (  # type: ignore[union-attr]
            "function_call",
            "get_weather",
            '{"city":"London"}',
        )
        assert words.content[0].text == "I look."  # type: ignore[union-attr, index]
    else:
        body = {
            "model": "m",
            "max_tokens": 99,
            "messages": QUESTION,
            "tools": [{"name": "get_weather", "input_schema": tool["parameters"]}],
        }
        _, _, answer = send(f"{url}/v1/messages", body, {"content-type": "application/json"})
        assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
        assert answer["content"][1]["input"] == {"city": "London"}
        assert answer["stop_reason"] == "tool_use"


def test_a_function_whose_name_other_servers_refuse_is_sent_under_another(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """A full stop, which the tools of a namespace have: in tools, tool_choice and history."""
    client = openai.OpenAI(base_url=f"{start_proxy(tools='native')}/v1", api_key="k", max_retries=0)
    find = {"type": "function", "name": "find", "parameters": GET_WEATHER["function"]["parameters"]}
    tools: Any = [
        {"type": "namespace", "name": "crm", "description": "d", "tools": [find]},
        {**find, "name": "crm_find"},
    ]
    earlier = {"type": "function_call", "call_id": "c", "name": "gone", "namespace": "old"}
    items: Any = [
        {**earlier, "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
        {"role": "user", "content": "?"},
    ]
    choice: Any = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "find", "namespace": "crm"}],
    }
    upstream.reply(frames(call("crm_find_2", '{"city": "London"}')))
    fields: Any = {"input": items, "tools": tools, "tool_choice": choice}
    [made] = client.responses.create(model="m", **fields).output
    assert (made.type, made.name, made.namespace) == ("function_call", "find", "crm")  # type: ignore[union-attr]
    sent = upstream.requests[0]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["crm_find_2", "crm_find"]
    allowed = sent["tool_choice"]["allowed_tools"]["tools"]
    assert allowed == [{"type": "function", "function": {"name": "crm_find_2"}}]
    assert sent["messages"][0]["tool_calls"][0]["function"]["name"] == "old_gone"


def test_fields_that_only_the_proxy_reads_are_not_sent_to_other_servers(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=f"{start_proxy(tools='native')}/v1", api_key="k", max_retries=0)
    parameters = GET_WEATHER["function"]["parameters"]
    tool: Any = {
        "type": "function",
        "name": "get_weather",
        "parameters": parameters,
        "strict": None,
        "description": None,
        "output_schema": {"type": "object"},
        "allowed_callers": ["direct"],
    }
    upstream.reply("Hello.")
    client.responses.create(model="m", input="?", tools=[tool])
    function = {"name": "get_weather", "parameters": parameters}
    assert upstream.requests[0]["tools"] == [{"type": "function", "function": function}]


def joined(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours with nothing but words as one: they may have arrived together."""
    found: list[dict[str, Any]] = []
    for delta in deltas:
        if found and delta.keys() == found[-1].keys() == {"content"}:
            found[-1] = {"content": found[-1]["content"] + delta["content"]}
        else:
            found.append(delta)
    return found


def test_a_right_reply_and_its_request_pass_untouched(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    deltas = [
        {"role": "assistant", "content": None, "odd": {"kept": 1}},
        {"reasoning_content": "Hm. "},
        {"content": "It  is\n"},
        {"content": "```python\nget_weather(city='a')\n"},
        {"content": "```\n"},
        call("get_weather", "", 0, "call_abc"),
        piece(None, '{"city": '),
        piece(None, '"London"}'),
        call("get_weather", '{ "city":"Oslo"}', 1, "call_def"),
    ]
    upstream.reply(frames(*deltas))
    history = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "list_tables", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "x", "content": "a, b"},
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": True,
        "stop": ["END"],
        "temperature": 0.5,
        "response_format": {"type": "text"},
    }
    with native.chat.completions.with_streaming_response.create(
        model="m", messages=history, stream=True, **fields
    ) as raw:
        events = [line[6:] for line in raw.iter_lines() if line.startswith("data: {")]
    got = [json.loads(event) for event in events]
    assert got[0]["id"] == "c-7"
    assert {chunk["system_fingerprint"] for chunk in got} == {"fp"}
    assert joined([chunk["choices"][0]["delta"] for chunk in got]) == joined([*deltas, {}])
    [sent] = upstream.requests
    assert {name: sent[name] for name in fields} == fields
    assert sent["messages"] == history


def test_a_schema_in_another_field_is_sent_where_servers_expect_it(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("Hello!"))
    function = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
    tools: Any = [{"type": "function", "function": function}]
    native.chat.completions.create(model="m", messages=QUESTION, tools=tools)
    sent = upstream.requests[0]["tools"][0]["function"]
    assert sent == {"name": "f", "parameters": function["input_schema"]}


@pytest.mark.parametrize(
    ("description", "sent"),
    [("Do f.", 'Do f.\n\nExamples:\n{"a": "Ås"}'), (None, 'Examples:\n{"a": "Ås"}')],
)
def test_examples_are_sent_in_the_description(
    native: openai.OpenAI, upstream: ScriptedUpstream, description: str | None, sent: str
) -> None:
    upstream.reply(Reply("Hello!"))
    plain = {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}
    shown: Any = {**plain, "description": description, "input_examples": [{"a": "Ås"}]}
    tools: Any = [{"type": "function", "function": shown}]
    native.chat.completions.create(model="m", messages=QUESTION, tools=tools)
    assert upstream.requests[0]["tools"][0]["function"] == {**plain, "description": sent}


def test_fields_that_are_null_inside_of_tools_stay(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    tool = function(
        "f", {"type": "object", "properties": {"a": {"enum": ["x", None], "default": None}}}
    )
    upstream.reply(frames({"content": "Hi."}, finish="stop"))
    native.chat.completions.create(model="m", messages=QUESTION, tools=[tool])
    assert upstream.requests[0]["tools"] == [tool]


def test_a_native_call_that_stays_invalid_is_an_error_after_the_budget(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(tools="native", repair_attempts=1)
    upstream.default = frames(call("launch_rocket", "{}"))
    body = {"model": "m", "messages": QUESTION, "tools": TOOLS}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (502, "model_invalid")
    assert "launch_rocket" in answer["error"]["message"]
    assert len(upstream.requests) == 2


def test_a_truncated_native_reply_sends_only_its_complete_calls(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        frames({"content": "Yes."}, call("get_weather", '{"city": "London"'), finish="length"),
        frames(
            call("get_weather", '{"city": "London"}'),
            call("get_weather", '{"ci', 1),
            finish="length",
        ),
        frames({"reasoning_content": "Hm."}, finish="length"),
        frames(call("get_weather", '{"ci'), finish="length"),
    )
    for calls, finish in (
        ([], "length"),
        ([LONDON], "length"),
        *[([], "length")] * 2,
    ):  # as emulated: test_cut_off.py
        answer = native.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS)
        assert _told(answer.choices[0])[1:] == (calls, finish)


def test_a_call_that_quotes_a_message_stays_words(
    native: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """A model that repeats the markup of a tool's result calls nothing."""
    markup = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "London"}}\n</tool_call>'
    messages: list[Any] = [{"role": "user", "content": f"What does this mean?\n{markup}"}]
    upstream.reply(frames({"content": f"You wrote:\n{markup}"}, finish="stop"))
    answer = native.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0]
    assert answer.message.tool_calls is None
    assert markup in (answer.message.content or "")


RIGHT = frames(call("track_parcel", '{"number": "7Q-4481"}'))
WORDS = frames({"content": "7Q-4481"}, finish="stop")


@pytest.mark.parametrize(
    ("replies", "is_native"),
    [
        ([RIGHT] * 2, True),
        ([frames(call("track_parcel", "{'number': '7Q-4481'}"))] * 2, True),
        ([WORDS] * 2, False),
        ([frames(call("track_parcel", '{"number": "4481"}'))] * 2, False),
        ([frames(call("other", "{}"))] * 2, False),
        ([RIGHT, WORDS, RIGHT], True),
        ([RIGHT, WORDS, WORDS], False),
        ([Reply(status=400)], False),
        ([Reply(status=404)], False),
    ],
    ids=[
        "calls",
        "loosely",
        "words",
        "wrong argument",
        "another function",
        "2 of 3",
        "1 of 3",
        "400",
        "404",
    ],
)
def test_auto_asks_until_two_replies_agree_and_remembers(
    start_proxy: StartProxy, upstream: ScriptedUpstream, replies: list[Reply], is_native: bool
) -> None:
    url = start_proxy(tools="auto")
    body = {"model": "m", "messages": QUESTION, "tools": [GET_WEATHER]}
    upstream.reply(*replies, "Hello.", "Hello.")
    for _ in range(2):
        assert send(f"{url}/v1/chat/completions", body)[0] == 200
    probe, rest = upstream.requests[0], upstream.requests[len(replies) :]
    assert probe["tools"][0]["function"]["name"] == "track_parcel"
    assert [("tools" in request) for request in rest] == [is_native, is_native]


def test_auto_does_not_remember_an_inconclusive_probe(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(tools="auto", upstream_retries=0)
    body = {"model": "m", "messages": QUESTION, "tools": [GET_WEATHER]}
    upstream.reply(Reply(status=503), "Hello.", RIGHT, RIGHT, "Hello.")
    for _ in range(2):
        assert send(f"{url}/v1/chat/completions", body)[0] == 200
    assert [("tools" in request) for request in upstream.requests] == [
        True,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "deltas", [["word"] * 600, ["x" * 2000] * 20], ids=["chunks", "characters"]
)
def test_a_probe_ends_where_the_model_writes_without_end(
    start_proxy: StartProxy, upstream: ScriptedUpstream, deltas: list[str]
) -> None:
    """The upstream is silent after these deltas: a probe that waits for more makes one request."""
    url = start_proxy(tools="auto")
    endless = Reply(chunks=[*deltas, "x"], fault="silent", after=len(deltas))
    upstream.reply(endless, endless, "Hello.")
    body = {"model": "m", "messages": QUESTION, "tools": [GET_WEATHER]}
    assert send(f"{url}/v1/chat/completions", body)[0] == 200
    assert ["tools" in request for request in upstream.requests] == [True, True, False]
    assert all(exchange.aborted.wait(60) for exchange in upstream.exchanges[:2])


def test_the_result_of_the_auto_probe_survives_a_restart(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    body = {"model": "m", "messages": QUESTION, "tools": [GET_WEATHER]}
    upstream.reply(RIGHT, RIGHT, "Hello.", "Hello.")
    for _ in range(2):
        url = start_proxy(tools="auto", database=str(tmp_path / "kept.sqlite"))
        assert send(f"{url}/v1/chat/completions", body)[0] == 200
    assert [len(request["tools"]) for request in upstream.requests] == [3, 3, 1, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "custom", "custom": {"name": "run"}}]},
        {"tools": [GET_WEATHER], "n": 2},
        {"functions": [GET_WEATHER["function"]]},
    ],
    ids=["custom", "n", "functions"],
)
def test_fields_that_upstreams_do_not_support_are_emulated(
    start_proxy: StartProxy, upstream: ScriptedUpstream, fields: dict[str, Any]
) -> None:
    url = start_proxy(tools="native")
    upstream.default = "Hello."
    status, _, _ = send(
        f"{url}/v1/chat/completions", {"model": "m", "messages": QUESTION, **fields}
    )
    assert status == 200
    assert not {"tools", "functions"} & upstream.requests[0].keys()


def test_the_faults_of_a_call_in_markup_are_sentences(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The model and the client read the representation of a Python object."""
    url = start_proxy(tools="native", repair_attempts=1)
    markup = '<tool_call>\n{"name": "get_weather", "arguments": {"town": 1}}\n</tool_call>'
    upstream.default = frames({"content": markup}, finish="stop")
    body = {"model": "m", "messages": QUESTION, "tools": TOOLS, "tool_choice": "required"}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    asked = upstream.requests[1]["messages"][-1]["content"]
    assert status == 502
    for words in (asked, answer["error"]["message"]):
        assert 'unknown argument "town"' in words
        assert "Diagnostic(" not in words
