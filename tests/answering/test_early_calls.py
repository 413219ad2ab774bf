"""Calls that are streamed while the model writes them: which arguments are sent early, all of them true."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.events import ArgumentsDelta, CallStarted, serialize_arguments
from emulator.reply.early_call import EarlyCall
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.examples import example_count
from tests.support.scripted import Reply, ScriptedUpstream

TEXT = {"type": "string"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("write_file", path=TEXT, content=TEXT, mode={"type": "integer"}),
    tool("bounded", text={"type": "string", "maxLength": 9000}),
    tool("typed", text={"type": ["string", "integer"]}),
    tool("listed", texts={"type": "array", "items": TEXT}),
    {"type": "custom", "name": "run"},
    {
        "type": "custom",
        "name": "held",
        "format": {"type": "grammar", "syntax": "regex", "definition": "(?s).*"},
    },
]
TOOLSET = Toolset.parse(TOOLS)
LINES = "".join(f'line {n} of the file, with "quotes", \\ and é\n' for n in range(20))


def fed(text: str, size: int, dialect: str = "python") -> tuple[EarlyCall, list[Any]]:
    early = EarlyCall(
        dialect,
        TOOLSET,
        "call_1",
        is_free=lambda *_: True,
        quotes=lambda text: "quoted" in text,
        streams=True,
    )
    events = [
        event for at in range(0, len(text), size) for event in early.feed(text[at : at + size])
    ]
    return early, events


def told(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, ArgumentsDelta))


def triple(text: str) -> str:
    return '"""' + text.replace("\\", "\\\\").replace('"""', '\\"""') + '"""'


def tagged(**arguments: Any) -> str:
    call = {"name": "write_file", "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


ESCAPES = "\\x41\\u00e9\\N{BULLET}\\101\\\n" * 40
REGEX = "\\d+ \\n\n" * 60
SMILES = LINES + "😀" * 20
TAG = '[TOOL_CALLS]{"name": "run", "arguments": {"input": '

WRITTEN: list[tuple[str, str, dict[str, Any]]] = [
    ("python", f"write_file(path='a', content={triple(LINES)})", {"path": "a", "content": LINES}),
    ("python", f"x = write_file('a', {LINES!r})", {"path": "a", "content": LINES}),
    (
        "python",
        f"print(write_file(mode=3, path=('a'\n{LINES!r})))",
        {"mode": 3, "path": "a" + LINES},
    ),
    ("python", f"# It.\nwrite_file('a', {LINES!r}, 7)", {"path": "a", "content": LINES, "mode": 7}),
    ("python", f'write_file("a", r"""{REGEX}""")', {"path": "a", "content": REGEX}),
    ("python", f'write_file("a", "{ESCAPES}")', {"path": "a", "content": "Aé•A" * 40}),
    ("python", f"write_file({triple(LINES)})", {"path": LINES}),
    ("python", f"run({triple(LINES)})", {"input": LINES}),
    ("markup", tagged(path="a", content=SMILES), {"path": "a", "content": SMILES}),
    ("markup", f"{TAG}{json.dumps(LINES)}}}}}", {"input": LINES}),
]


@pytest.mark.parametrize("size", [1, 7, 50, 300])
@pytest.mark.parametrize(("dialect", "text", "arguments"), WRITTEN)
def test_a_long_argument_is_streamed_as_it_arrives(
    dialect: str, text: str, arguments: dict[str, Any], size: int
) -> None:
    name = "run" if "input" in arguments else "write_file"
    early, events = fed(f"{text}\n", size, dialect)
    assert events[0] == CallStarted("call_1", name, "custom" if name == "run" else "function")
    assert early.matches(name, arguments)
    whole = serialize_arguments(arguments, events[0].kind)
    assert whole.startswith(told(events))
    assert len(told(events)) > len(whole) - 30
    assert max(len(event.text) for event in events[1:]) <= 256
    assert not early.matches(name, {**arguments, "path": "other", "input": "other"})


CONTENTS = st.text(st.sampled_from("ab\\\"'\n\r\t{}é😀\x00"), max_size=80).map(("x" * 400).__add__)


@pytest.mark.parametrize("written", [repr, triple, json.dumps], ids=["single", "triple", "json"])
@given(content=CONTENTS, size=st.integers(1, 90))
@settings(max_examples=example_count(40))
def test_any_argument_is_streamed_exactly_however_the_reply_is_cut(
    written: Callable[[str], str], content: str, size: int
) -> None:
    if written is json.dumps:
        arguments = json.dumps({"path": "a", "content": content})
        early, events = fed(
            f'<tool_call>{{"name": "write_file", "arguments": {arguments}', size, "markup"
        )
    else:
        early, events = fed(f'write_file("a", content={written(content)})\n', size)
    if written is triple:  # as Python reads it
        content = content.replace("\r\n", "\n").replace("\r", "\n")
    assert early.started is not None
    assert early.matches("write_file", {"path": "a", "content": content}), told(events)


@pytest.mark.parametrize(
    "text",
    [
        f"bounded({LINES!r})",
        f"typed({LINES!r})",
        f"listed([{LINES!r}])",
        f"held({LINES!r})",
        f"write_file(content={LINES!r})",
        f"write_file(path='a', town={LINES!r})",
        f"write_file(path='a', mode='x', content={LINES!r})",
        f"write_file(path=name, content={LINES!r})",
        f"write_file('a', f{LINES!r})",
        f"write_file('a', 'x' + {LINES!r})",
        f"write_file(*{LINES!r})",
        f"unknown({LINES!r})",
        f"y = 1; run({LINES!r})",
        f"if ready:\n    run({LINES!r})",
        f"run(run({LINES!r}))",
        f"run('quoted {LINES}')",
        "run('short')",
    ],
)
def test_an_uncertain_call_is_not_streamed_early(text: str) -> None:
    for size in (1, 300):
        early, events = fed(text, size)
        assert (early.started, events) == (None, [])


# Over HTTP, in all three APIs

FILE = "".join(f"print('line {n}', \"{{}}\")\n" for n in range(60))
PYTHON = f"I write it.\n```tool_code\nx = write_file(path='a.py', content={triple(FILE)})\n```\n"
PARAMETERS = {
    "type": "object",
    "properties": {"path": TEXT, "content": TEXT},
    "required": ["path", "content"],
    "additionalProperties": False,
}
NAMED: dict[str, Any] = {"name": "write_file", "parameters": PARAMETERS, "strict": True}
ASKED = "Write a.py."


@dataclass(frozen=True)
class Api:
    """How one API tells of calls."""

    deltas: Callable[[str], Iterator[str]]
    """The texts of a stream's argument deltas."""
    whole: Callable[[str], tuple[str, Any]]
    """Why the answer ended and the arguments, as the official SDK's stream helper has them."""


def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def claude(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)


CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": ASKED}],
    "tools": [{"type": "function", "function": NAMED}],
}
RESPONSES: dict[str, Any] = {"model": "m", "input": ASKED, "tools": [{"type": "function", **NAMED}]}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 999,
    "messages": CHAT["messages"],
    "tools": [{"name": "write_file", "input_schema": PARAMETERS}],
}


def chat_deltas(url: str) -> Iterator[str]:
    with openai_client(url).chat.completions.create(**CHAT, stream=True) as chunks:
        for chunk in chunks:
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or ():
                    yield call.function.arguments


def responses_deltas(url: str) -> Iterator[str]:
    with openai_client(url).responses.create(**RESPONSES, stream=True) as events:
        for event in events:
            if event.type == "response.failed":
                raise openai.OpenAIError(event.response.error.message)
            if event.type == "response.function_call_arguments.delta":
                yield event.delta


def messages_deltas(url: str) -> Iterator[str]:
    with claude(url).messages.create(**MESSAGES, stream=True) as events:
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                yield event.delta.partial_json


def chat_whole(url: str) -> tuple[str, Any]:
    with openai_client(url).chat.completions.stream(**CHAT) as stream:
        for _ in stream:
            pass
        [choice] = stream.get_final_completion().choices
    [call] = choice.message.tool_calls
    return choice.finish_reason, json.loads(call.function.arguments)


def responses_whole(url: str) -> tuple[str, Any]:
    with openai_client(url).responses.stream(**RESPONSES) as stream:
        for _ in stream:
            pass
        response = stream.get_final_response()
    return response.status, json.loads(response.output[-1].arguments)


def messages_whole(url: str) -> tuple[str, Any]:
    with claude(url).messages.stream(**MESSAGES) as stream:
        for _ in stream:
            pass
        message = stream.get_final_message()
    return message.stop_reason, message.content[-1].input


APIS = pytest.mark.parametrize(
    "api",
    [
        pytest.param(Api(chat_deltas, chat_whole), id="chat"),
        pytest.param(Api(responses_deltas, responses_whole), id="responses"),
        pytest.param(Api(messages_deltas, messages_whole), id="messages"),
    ],
)


@pytest.fixture
def early(start_proxy: StartProxy, upstream: ScriptedUpstream) -> str:
    """The URL of a proxy that knows how the model's replies begin: until then it holds them back, since code
    in them may be a draft. Who has left is seen at a ping."""
    url = start_proxy(stream_calls="delta", ping_seconds=0.5)
    upstream.reply(*["Hello!"] * 4)
    for _ in range(4):
        openai_client(url).chat.completions.create(**CHAT)
    return url


@APIS
def test_a_client_sees_a_file_while_the_model_still_writes_it(
    early: str, upstream: ScriptedUpstream, api: Api
) -> None:
    upstream.reply(Reply(PYTHON, chunks=20, fault="silent", after=len(PYTHON) // 40))
    seen, deltas = "", api.deltas(early)
    while "line 12" not in seen:
        seen += next(deltas)
    deltas.close()  # type: ignore[attr-defined]
    assert seen.startswith('{"path":"a.py","content":"print(')


@APIS
@pytest.mark.parametrize("chunks", [None, 1, 17])
@pytest.mark.parametrize(
    "text", [PYTHON, tagged(path="a.py", content=FILE)], ids=["python", "tags"]
)
def test_the_call_is_that_of_a_stream_without_early_calls(
    early: str, upstream: ScriptedUpstream, api: Api, text: str, chunks: int | None
) -> None:
    upstream.default = Reply(text, chunks=chunks)
    reason, arguments = api.whole(early)
    assert reason in ("tool_calls", "completed", "tool_use")
    assert arguments == {"path": "a.py", "content": FILE}
    deltas = [*api.deltas(early)]
    assert json.loads("".join(deltas)) == arguments
    assert max(map(len, deltas)) <= 256


@APIS
@pytest.mark.parametrize(
    "further", [".format(1)", ", town='Oslo'", " + other", " oops oops", "[0]"]
)
def test_a_call_that_contradicts_its_streamed_start_ends_the_stream_with_an_error(
    early: str, upstream: ScriptedUpstream, api: Api, further: str
) -> None:
    call = f"```tool_code\nwrite_file(path='a.py', content={triple(FILE)}{further})\n```\n"
    # So slow that the call has begun before what follows it has come.
    upstream.reply(Reply(call, chunks=30, delay=0.01))
    seen = ""
    with pytest.raises((openai.OpenAIError, anthropic.APIError)):
        for text in api.deltas(early):
            seen += text
    with pytest.raises(json.JSONDecodeError):
        json.loads(seen)
    assert len(upstream.requests) == 5  # asked again, the model might call something else


@APIS
def test_a_streamed_call_that_is_truncated_ends_with_an_error(
    early: str, upstream: ScriptedUpstream, api: Api
) -> None:
    half = PYTHON[: len(PYTHON) // 2]
    upstream.default = Reply(half, chunks=30, finish_reason="length")
    with pytest.raises(json.JSONDecodeError):
        json.loads("".join(api.deltas(early)))
    assert len(upstream.requests) == 5


def test_a_truncated_call_makes_its_response_incomplete(
    early: str, upstream: ScriptedUpstream
) -> None:
    upstream.default = Reply(PYTHON[: len(PYTHON) // 2], chunks=30, finish_reason="length")
    *_, last = openai_client(early).chat.completions.create(**CHAT, stream=True)
    assert last.choices[0].finish_reason == "length"
    *_, event = openai_client(early).responses.create(**RESPONSES, stream=True)
    assert event.type == "response.incomplete"
    assert event.response.output[-1].status == "incomplete"
    *_, delta, _ = claude(early).messages.create(**MESSAGES, stream=True)
    assert delta.delta.stop_reason == "max_tokens"


def test_without_a_stream_a_truncated_call_is_not_sent(
    early: str, upstream: ScriptedUpstream
) -> None:
    upstream.default = Reply(PYTHON[: len(PYTHON) // 2], finish_reason="length")
    answer = openai_client(early).chat.completions.create(**CHAT)
    assert answer.choices[0].message.tool_calls is None


def test_a_quotation_is_not_streamed_early(early: str, upstream: ScriptedUpstream) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": f"What does this do?\n{PYTHON}"}]}
    upstream.reply(Reply(PYTHON, chunks=30), "It writes a file.")
    chunks = openai_client(early).chat.completions.create(**body, stream=True)
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices)


def test_a_response_with_early_calls_is_replayed_unchanged(
    early: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(PYTHON, chunks=30))
    client = openai_client(early)
    events = [event.to_dict() for event in client.responses.create(**RESPONSES, stream=True)]
    again = client.responses.retrieve(events[0]["response"]["id"], stream=True)  # type: ignore[index]
    assert [event.to_dict() for event in again] == events
