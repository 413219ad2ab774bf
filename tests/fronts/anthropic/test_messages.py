"""Messages as the official SDK asks for them and reads them, streamed and not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.conftest import StartProxy
from tests.support.places import needs_bubblewrap
from tests.support.raw_http import fetch, send
from tests.support.scripted import USAGE, Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api, request_body

GET_WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the current weather of a place.",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
ASK: list[Any] = [{"role": "user", "content": "What's the weather in London?"}]
LONDON = '```tool_code\nget_weather(location="London")\n```'
BOTH_CITIES = "```tool_code\n[get_weather(city) for city in ('London', 'Paris')]\n```"

Create = Callable[..., Any]


@pytest.fixture
def claude(proxy: str) -> Iterator[anthropic.Anthropic]:
    """The official client, pointed at `proxy`. It does not retry: a test sees what was answered."""
    with anthropic.Anthropic(base_url=proxy, api_key="client-key", max_retries=0) as connected:
        yield connected


def plain(claude: anthropic.Anthropic, **request: Any) -> Any:
    return claude.messages.create(model="m", max_tokens=512, **request)


def streamed(claude: anthropic.Anthropic, **request: Any) -> Any:
    with claude.messages.stream(model="m", max_tokens=512, **request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


EITHER = pytest.mark.parametrize("create", [plain, streamed])


def shown(message: Any) -> list[Any]:
    """The content blocks by what matters of each."""
    forms: dict[str, Callable[[Any], Any]] = {
        "text": lambda block: block.text,
        "thinking": lambda block: ("thinking", block.thinking),
        "tool_use": lambda block: (block.name, block.input),
        "server_tool_use": lambda block: ("server", block.name, block.input),
        "code_execution_tool_result": lambda block: ("ran", block.content.stdout),
    }
    return [forms[block.type](block) for block in message.content]


@EITHER
def test_a_model_without_tools_answers_with_a_tool_use(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply(f"I look it up.\n{LONDON}")
    message = create(claude, messages=ASK, tools=[GET_WEATHER], system="Be brief.")
    assert shown(message) == ["I look it up.", ("get_weather", {"location": "London"})]
    assert (message.stop_reason, message.role, message.model) == ("tool_use", "assistant", "m")
    sent = upstream.requests[0]
    assert "tools" not in sent
    assert "Be brief." in sent["messages"][0]["content"]
    assert sent["max_tokens"] == 512


@EITHER
def test_a_tool_result_leads_to_an_answer(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply(LONDON, "It is 12 degrees.")
    first = create(claude, messages=ASK, tools=[GET_WEATHER])
    result = {
        "type": "tool_result",
        "tool_use_id": first.content[0].id,
        "content": [{"type": "text", "text": "12 degrees"}],
    }
    history = [
        *ASK,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    second = create(claude, messages=history, tools=[GET_WEATHER])
    assert shown(second) == ["It is 12 degrees."]
    assert second.stop_reason == "end_turn"
    told = upstream.requests[1]["messages"][-1]["content"]
    assert "12 degrees" in told
    assert "And now?" in told


@EITHER
def test_a_program_resumes_with_its_results_without_the_model(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply(
        "```tool_code\nhere = get_weather('London')\nget_weather('near ' + here['place'])\n```"
    )
    first = create(claude, messages=ASK, tools=[GET_WEATHER])
    history = [
        *ASK,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": first.content[-1].id,
                    "content": '{"place": "Leeds"}',
                }
            ],
        },
    ]
    second = create(claude, messages=history, tools=[GET_WEATHER])
    assert shown(second) == [("get_weather", {"location": "near Leeds"})]
    assert len(upstream.requests) == 1


CHOICES: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "auto"}, [("get_weather", {"location": c}) for c in ("London", "Paris")]),
    ({"type": "any"}, [("get_weather", {"location": c}) for c in ("London", "Paris")]),
    (
        {"type": "tool", "name": "get_weather"},
        [("get_weather", {"location": c}) for c in ("London", "Paris")],
    ),
    (
        {"type": "auto", "disable_parallel_tool_use": True},
        [("get_weather", {"location": "London"})],
    ),
    ({"type": "none"}, [BOTH_CITIES]),
]


@EITHER
@pytest.mark.parametrize(("choice", "expected"), CHOICES, ids=[str(c) for c, _ in CHOICES])
def test_every_tool_choice_is_obeyed(
    claude: anthropic.Anthropic,
    upstream: ScriptedUpstream,
    create: Create,
    choice: dict[str, Any],
    expected: list[Any],
) -> None:
    upstream.reply(BOTH_CITIES)
    message = create(claude, messages=ASK, tools=[GET_WEATHER], tool_choice=choice)
    assert shown(message) == expected


@EITHER
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["plain", "with tools"])
def test_reasoning_becomes_thinking_blocks_if_the_client_requests_them(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create, tools: list[Any]
) -> None:
    given: dict[str, Any] = {"messages": ASK, **({"tools": tools} if tools else {})}
    for _ in range(2):
        upstream.reply(Reply("Mild.", reasoning="London is in England."))
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert shown(create(claude, **given, thinking=thinking)) == [
        ("thinking", "London is in England."),
        "Mild.",
    ]
    assert shown(create(claude, **given)) == ["Mild."]
    for _ in range(2):
        upstream.reply(Reply("\n<think>\nIn England.</think>\n\nMild.", chunks=1))
    assert shown(create(claude, **given, thinking=thinking)) == [
        ("thinking", "In England."),
        "Mild.",
    ]
    assert shown(create(claude, **given)) == ["Mild."]


TURN: list[Any] = [
    {"role": "system", "content": "Answer in French.", "clear_at": "next_user_message"},
    {"role": "system", "content": "Be brief.", "clear_at": "never"},
    {"role": "system", "output_config": {"effort": "high"}, "clear_at": "next_user_message"},
]


@EITHER
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["plain", "with tools"])
def test_a_system_message_may_apply_to_one_turn(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create, tools: list[Any]
) -> None:
    upstream.default = "Mild."
    given: dict[str, Any] = {"tools": tools} if tools else {}
    create(claude, messages=[*ASK, *TURN], output_config={"effort": "low"}, **given)
    later = [{"role": "assistant", "content": "Doux."}, {"role": "user", "content": "And now?"}]
    create(claude, messages=[*ASK, *TURN, *later], output_config={"effort": "low"}, **given)
    first, second = upstream.requests
    assert "French" in str(first["messages"]) and "Be brief." in str(first["messages"])
    assert "French" not in str(second["messages"]) and "Be brief." in str(second["messages"])
    assert [first["reasoning_effort"], second["reasoning_effort"]] == ["high", "low"]


@EITHER
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["plain", "with tools"])
def test_max_tokens_zero_warms_the_upstreams_cache_and_returns_no_text(
    proxy: str, upstream: ScriptedUpstream, create: Create, tools: list[Any]
) -> None:
    upstream.default = LONDON
    given: dict[str, Any] = {"tools": tools} if tools else {}
    request = {"model": "m", "messages": ASK, "stream": create is streamed, **given}
    with anthropic.Anthropic(base_url=proxy, api_key="k", max_retries=0) as client:
        answer = client.post("/v1/messages", body={**request, "max_tokens": 0}, cast_to=object)
        client.post("/v1/messages", body={**request, "max_tokens": 9}, cast_to=object)
    warmed, asked = upstream.requests
    assert (warmed["max_tokens"], asked["max_tokens"]) == (1, 9)
    assert warmed["messages"] == asked["messages"]
    if create is plain:
        assert (answer["content"], answer["stop_reason"]) == ([], "max_tokens")
        assert answer["usage"]["output_tokens"] == 0


def test_one_letter_is_one_token(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "x"}]
    assert claude.messages.count_tokens(model="m", messages=messages).input_tokens == 1


@EITHER
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["plain", "with tools"])
def test_stop_sequences_and_limits_have_their_reasons(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create, tools: list[Any]
) -> None:
    given: dict[str, Any] = {"messages": ASK, **({"tools": tools} if tools else {})}
    upstream.reply(Reply("It is mi", finish_reason="length"))
    assert create(claude, **given).stop_reason == "max_tokens"
    upstream.reply(Reply("One. END Two.", chunks=1))
    message = create(claude, **given, stop_sequences=["ENDING", "END"])
    assert shown(message) == ["One. "]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    # An upstream that cut the text itself would not say where.
    assert "stop" not in upstream.requests[-1]
    upstream.reply(Reply("It is the EN", chunks=1))
    message = create(claude, **given, stop_sequences=["END"])
    assert (shown(message), message.stop_reason) == (["It is the EN"], "end_turn")


def test_the_events_of_a_stream_come_in_anthropics_order(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(f"Looking.\n{LONDON}", reasoning="Hm."))
    body = {
        "model": "m",
        "max_tokens": 99,
        "stream": True,
        "messages": ASK,
        "tools": [GET_WEATHER],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    _, headers, data = fetch(f"{proxy}/v1/messages", body)
    assert headers["content-type"].split(";")[0] == "text/event-stream"
    frames = [frame.split("\n") for frame in data.decode().strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name.removeprefix("event: ") for name, _ in frames] == [e["type"] for e in events]
    kinds = [
        e["type"] for i, e in enumerate(events) if i == 0 or e["type"] != events[i - 1]["type"]
    ]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block * 3, "message_delta", "message_stop"]
    starts = [e for e in events if e["type"] == "content_block_start"]
    assert [(e["index"], e["content_block"]["type"]) for e in starts] == [
        (0, "thinking"),
        (1, "text"),
        (2, "tool_use"),
    ]


def test_long_arguments_are_sent_in_pieces(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    place = "x" * 3000
    upstream.reply(f"```tool_code\nget_weather({place!r})\n```")
    with claude.messages.stream(
        model="m", max_tokens=9, messages=ASK, tools=[GET_WEATHER]
    ) as stream:
        deltas = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    assert message.content[0].input == {"location": place}  # type: ignore[union-attr]
    assert len(deltas) > 5
    assert max(map(len, deltas)) < 600


def test_usage_separates_cached_from_new_input_tokens(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    usage = {**USAGE, "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}
    for _ in range(2):
        upstream.reply(Reply("Hello.", usage=usage))
    for create in (plain, streamed):
        told = create(claude, messages=ASK).usage
        assert (told.input_tokens, told.cache_read_input_tokens) == (40, 60)
        assert told.output_tokens == usage["completion_tokens"]


HOSTED = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    {
        "type": "computer_20250124",
        "name": "computer",
        "display_width_px": 1,
        "display_height_px": 1,
    },
]


def test_tools_that_another_service_runs_are_omitted_and_named(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(LONDON)
    body = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": [*HOSTED, GET_WEATHER]}
    status, headers, answer = send(f"{proxy}/v1/messages", body)
    assert (status, answer["content"][0]["name"]) == (200, "get_weather")
    assert headers["x-emulator-dropped-tools"] == "web_search_20250305, computer_20250124"


@pytest.mark.parametrize("stream", [False, True])
def test_the_betas_without_effect_are_named(
    proxy: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": ASK, "stream": stream}
    for sent, ignored in (
        ("", None),
        ("claude-code-20250219,mcp-client-2025-11-20, structured-outputs-2025-11-13", None),
        ("context-1m-2025-08-07,interleaved-thinking-2025-05-14", "context-1m-2025-08-07"),
        ("compact-2026-01-12, fast-mode-2026-02-01", "fast-mode-2026-02-01"),
        ("compact-2026-09-04,speed-2026-01-12,speed-2026-01-12", "speed-2026-01-12"),
        ("a b,<script>,x-2026-01-01", "x-2026-01-01"),
    ):
        upstream.reply("Hi.")
        _, headers, _ = fetch(f"{proxy}/v1/messages", body, {"anthropic-beta": sent})
        assert headers.get("x-emulator-ignored") == ignored, sent


CLIENT_TOOLS = [
    ({"type": "bash_20250124", "name": "bash"}, "bash(command='ls')", {"command": "ls"}),
    (
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        "str_replace_based_edit_tool(command='view', path='/a')",
        {"command": "view", "path": "/a"},
    ),
    (
        {"type": "memory_20250818", "name": "memory"},
        "memory(command='view', path='/memories')",
        {"command": "view", "path": "/memories"},
    ),
]


@EITHER
@pytest.mark.parametrize(("tool", "written", "arguments"), CLIENT_TOOLS)
def test_tools_of_anthropics_that_the_client_runs_are_called(
    claude: anthropic.Anthropic,
    upstream: ScriptedUpstream,
    create: Create,
    tool: dict[str, Any],
    written: str,
    arguments: dict[str, Any],
) -> None:
    upstream.reply(f"```tool_code\n{written}\n```")
    message = create(claude, messages=ASK, tools=[tool])
    assert shown(message) == [(tool["name"], arguments)]


BAD: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("no max_tokens", {"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
    (
        "an unknown role",
        {"messages": [{"role": "x", "content": ""}]},
        400,
        "invalid_request_error",
        "messages.0.role",
    ),
    (
        "a bad schema",
        {"tools": [{"name": "f", "input_schema": {"type": 7}}]},
        400,
        "invalid_request_error",
        "tools.0.input_schema",
    ),
    (
        "a tool without a schema",
        {"tools": [{"name": "f"}]},
        400,
        "invalid_request_error",
        "tools.0.input_schema",
    ),
    (
        "an example that the schema refuses",
        {"tools": [{**GET_WEATHER, "input_examples": [{"location": 7}]}]},
        400,
        "invalid_request_error",
        "tools.0.input_examples.0: the example does not match",
    ),
    (
        "a tool that is not there",
        {"tools": [GET_WEATHER], "tool_choice": {"type": "tool", "name": "g"}},
        400,
        "invalid_request_error",
        "tool_choice.name",
    ),
    (
        "a tool that cannot run here",
        {
            "tools": [{"type": "web_search_20250305", "name": "web_search"}, GET_WEATHER],
            "tool_choice": {"type": "tool", "name": "web_search"},
        },
        400,
        "invalid_request_error",
        "tool_choice.name is 'web_search', a tool that cannot run here",
    ),
    (
        "a block that does not say what it is",
        {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
        400,
        "invalid_request_error",
        "messages.0.content.0.type",
    ),
    (
        "an image of no source",
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "x"}}]}]},
        400,
        "invalid_request_error",
        "messages.0.content.0.source.type",
    ),
    (
        "a result without an id",
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        400,
        "invalid_request_error",
        "messages.0.content.0.tool_use_id",
    ),
]


@pytest.mark.parametrize(
    ("name", "change", "status", "kind", "place"), BAD, ids=[b[0] for b in BAD]
)
def test_errors_have_anthropics_shape_and_name_the_place(
    proxy: str, name: str, change: dict[str, Any], status: int, kind: str, place: str
) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": ASK, **change}
    got, headers, answer = send(f"{proxy}/v1/messages", body)
    assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert place in answer["error"]["message"]
    assert headers["request-id"] == answer["request_id"]


@pytest.mark.parametrize("api", APIS)
def test_examples_of_a_tool_are_in_its_stub(
    proxy: str, upstream: ScriptedUpstream, api: Api
) -> None:
    """Anthropic's field, which clients of the other APIs send as well."""
    upstream.reply("Hm.", "Hm.")
    function = {"name": "get_weather", "parameters": GET_WEATHER["input_schema"]}
    bodies = [
        request_body(api, {"type": "function", "function": {**function, **more}}, stream=False)
        for more in ({}, {"input_examples": [{"location": "Oslo, NO"}]})
    ]
    if api == "messages":
        bodies[1]["tools"][0]["input_examples"] = [{"location": "Oslo, NO"}]
    assert [send(proxy + PATHS[api], body)[0] for body in bodies] == [200, 200]
    plain, shown = (sent["messages"] for sent in upstream.requests)
    docstring = '"""Examples:\n        get_weather(location="Oslo, NO")\n    """'
    plain[0]["content"] = plain[0]["content"].replace("Any:\n    ...", f"Any:\n    {docstring}")
    assert shown == plain


def test_the_header_x_api_key_of_anthropics_clients_is_accepted(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(client_keys=("secret",))
    upstream.reply("Hello.")
    with anthropic.Anthropic(base_url=proxy, api_key="secret", max_retries=0) as claude:
        assert shown(plain(claude, messages=ASK)) == ["Hello."]
    with (
        anthropic.Anthropic(base_url=proxy, api_key="wrong", max_retries=0) as claude,
        pytest.raises(anthropic.AuthenticationError),
    ):
        plain(claude, messages=ASK)


def test_an_upstreams_refusal_keeps_its_status(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    for create in (plain, streamed):
        # 400: the proxy's own client tries others again.
        upstream.reply(Reply(status=400, body={"error": {"message": "Too long."}}))
        with pytest.raises(anthropic.BadRequestError, match=r"Too long\."):
            create(claude, messages=ASK)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(429, "rate_limit_error"), (529, "overloaded_error"), ("slow", "api_error"), (7, "api_error")],
)
@EITHER
def test_an_error_in_the_upstreams_stream_keeps_its_status(
    start_proxy: StartProxy, upstream: ScriptedUpstream, create: Create, code: Any, kind: str
) -> None:
    error = json.dumps({"error": {"code": code, "message": "Too much."}})
    upstream.default = Reply(frames=[f"data: {error}\n\n".encode()])
    url = start_proxy(upstream_retries=0)
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude,
        pytest.raises(anthropic.APIStatusError, match=r"Too much\.") as failed,
    ):
        create(claude, messages=ASK)
    assert failed.value.type == kind


@EITHER
def test_images_documents_and_errors_of_tools_reach_the_model(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply("Seen.")
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
    }
    paper = {
        "type": "document",
        "title": "Notes",
        "context": "Of March.",
        "source": {"type": "text", "media_type": "text/plain", "data": "Rain."},
    }
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "x"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "is_error": True,
        "content": "no such",
    }
    create(
        claude,
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, image, paper]},
            {"role": "assistant", "content": [{"type": "text", "text": "I ask."}, call]},
            {"role": "user", "content": [result]},
        ],
        tools=[GET_WEATHER],
    )
    sent = json.dumps(upstream.requests[0]["messages"])
    for words in (
        "data:image/png;base64,QQ==",
        "Notes",
        "Of March.",
        "Rain.",
        "I ask.",
        "Error:",
        "no such",
    ):
        assert words in sent


TEXT = {"type": "text", "text": "Hello."}
TEXT_FILE = {"type": "text", "media_type": "text/plain"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12"}
MALFORMED: list[tuple[str, Any, str]] = [
    ("user", ["Hello."], "messages.0.content.0'"),
    ("user", [TEXT, {"type": "text", "text": None}], "messages.0.content.1.text "),
    ("user", [TEXT, {"text": "Hello."}], "messages.0.content.1.type "),
    ("user", [TEXT, {"type": "input_audio"}], "messages.0.content.1.type is 'input_audio'"),
    ("user", [{"type": "document", "source": TEXT_FILE}], "messages.0.content.0.source.data "),
    (
        "user",
        [{"type": "document", "source": {"type": "content", "content": 3}}],
        "messages.0.content.0.source.content ",
    ),
    ("user", [{"type": "search_result", "content": {}}], "messages.0.content.0.content "),
    ("user", [{**RESULT, "is_error": "no"}], "messages.0.content.0.is_error "),
    ("user", [{**RESULT, "content": [{"type": "blob"}]}], "messages.0.content.0.content.0.type "),
    ("assistant", [{**CALL, "input": "{}"}], "messages.0.content.0.input "),
    ("assistant", [CALL, RESULT], "messages.0.content.1.type is 'tool_result'"),
    ("assistant", [{}], "messages.0.content.0.type "),
]


@pytest.mark.parametrize(("role", "content", "place"), MALFORMED)
def test_a_block_that_cannot_be_read_is_refused_at_its_place_and_never_skipped(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, role: str, content: Any, place: str
) -> None:
    messages: list[Any] = [{"role": role, "content": content}, *ASK]
    with pytest.raises(anthropic.BadRequestError, match=re.escape(place)) as refused:
        plain(claude, messages=messages, tools=[GET_WEATHER])
    assert refused.value.type == "invalid_request_error"
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"system": [{"type": "text", "text": 3}]}, "system.0.text "),
        ({"messages": [*ASK, {"role": "user"}]}, "messages.1.content "),
        ({"messages": [*ASK, {"role": "system"}]}, "messages.1 "),
        ({"messages": [{**ASK[0], "clear_at": "never"}]}, "messages.0.clear_at"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type "),
        ({"container": {"id": 3}}, "container.id"),
        ({"tools": [{**GET_WEATHER, "input_schema": None}]}, "tools.0.input_schema "),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_at_its_place(
    claude: anthropic.Anthropic, fields: Any, place: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=re.escape(place)):
        claude.beta.messages.create(**{"model": "m", "max_tokens": 9, "messages": ASK, **fields})


@pytest.mark.parametrize("name", ["response_format", "tools[0].function.parameters", "a[1].b"])
def test_an_error_quotes_what_the_client_wrote(claude: anthropic.Anthropic, name: str) -> None:
    choice: Any = {"type": "tool", "name": name}
    with pytest.raises(anthropic.BadRequestError) as refused:
        plain(claude, messages=ASK, tools=[GET_WEATHER], tool_choice=choice)
    body: Any = refused.value.body
    assert body["error"]["message"] == f"tool_choice.name is {name!r}, which is not in tools."


def test_an_output_format_is_named_as_the_client_sent_it(proxy: str) -> None:
    written = {"type": "json_schema", "schema": {"type": "x"}}
    for field, fields in (
        ("output_config.format", {"output_config": {"format": written}}),
        ("output_format", {"output_format": written}),
    ):
        body = {"model": "m", "max_tokens": 9, "messages": ASK, **fields}
        _, _, answer = send(f"{proxy}/v1/messages", body)
        assert answer["error"]["message"].startswith(f"{field}.schema.type: ")


def test_words_without_calls_go_to_the_upstream_without_an_empty_list_of_calls(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    """OpenAI's API refuses ``"tool_calls": null``, and so do some chat templates."""
    upstream.reply("Bye.")
    answer = {"role": "assistant", "content": [TEXT]}
    plain(claude, messages=[*ASK, answer, {"role": "user", "content": "Bye."}])
    assert upstream.requests[0]["messages"][1] == {"role": "assistant", "content": "Hello."}


@EITHER
def test_thinking_is_counted_and_may_be_omitted(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    usage = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 2}}
    for display, expected in (
        ("summarized", [("thinking", "Hm."), "Rain."]),
        ("omitted", ["Rain."]),
    ):
        upstream.reply(Reply("Rain.", reasoning="Hm.", usage=usage))
        thinking = {"type": "adaptive", "display": display}
        message = create(claude, messages=ASK, thinking=thinking)
        assert shown(message) == expected
        assert message.usage.output_tokens_details.thinking_tokens == 2


def test_a_picture_is_named_by_the_id_of_an_uploaded_file(
    claude: anthropic.Anthropic, client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("A dot.")
    file = client.files.create(file=("dot.png", b"\x89PNG"), purpose="vision")
    image: Any = {"type": "image", "source": {"type": "file", "file_id": file.id}}
    plain(claude, messages=[{"role": "user", "content": [image]}])
    assert "data:image/png;base64,iVBORw==" in json.dumps(upstream.requests[0]["messages"])


def test_the_token_count_grows_with_the_request(claude: anthropic.Anthropic) -> None:
    bare = claude.messages.count_tokens(model="m", messages=ASK).input_tokens
    tools = claude.messages.count_tokens(model="m", messages=ASK, tools=[GET_WEATHER]).input_tokens  # type: ignore[list-item]
    assert 0 < bare < tools


IMAGE = {"type": "base64", "media_type": "image/png", "data": "AAAA" * 100_000}
PAPER = {"type": "base64", "media_type": "application/pdf", "data": "AAAA" * 100_000}


@pytest.mark.parametrize(
    "block", [{"type": "image", "source": IMAGE}, {"type": "document", "source": PAPER}]
)
@EITHER
def test_the_bytes_of_an_image_are_not_counted_as_words(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create, block: Any
) -> None:
    """A client that counts 300 kB as 100,000 tokens summarizes its conversation."""
    messages: list[Any] = [
        {"role": "user", "content": [block, {"type": "text", "text": "London?"}]}
    ]
    assert 1 < claude.messages.count_tokens(model="m", messages=messages).input_tokens < 2_000
    # Without an upstream's own count: the reply is closed after the call.
    upstream.reply(Reply(f"{LONDON}\nI wait.", chunks=8, usage=None))
    message = create(claude, messages=messages, tools=[GET_WEATHER])
    assert message.stop_reason == "tool_use"
    assert 1 < message.usage.input_tokens < 2_000


@EITHER
def test_structured_output_is_checked_against_its_schema(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply('Sure: {"rain": "true"}')
    schema = {
        "type": "object",
        "properties": {"rain": {"type": "boolean"}},
        "required": ["rain"],
        "additionalProperties": False,
    }
    config = {"format": {"type": "json_schema", "schema": schema}}
    message = create(claude, messages=ASK, output_config=config)
    assert json.loads(message.content[0].text) == {"rain": True}


def test_the_async_client_streams_too(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(LONDON)

    async def answer() -> Any:
        async with (
            anthropic.AsyncAnthropic(base_url=proxy, api_key="k", max_retries=0) as claude,
            claude.messages.stream(
                model="m",
                max_tokens=9,
                messages=ASK,
                tools=[GET_WEATHER],  # type: ignore[list-item]
            ) as stream,
        ):
            return await stream.get_final_message()

    assert shown(asyncio.run(answer())) == [("get_weather", {"location": "London"})]


@needs_bubblewrap
@EITHER
def test_code_execution_runs_in_the_interpreter_and_keeps_its_container(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, create: Create
) -> None:
    upstream.reply("```tool_code\nx = 6 * 7\nprint(x)\n```", "It is 42.")
    tools = [{"type": "code_execution_20250522", "name": "code_execution"}]
    forced = {"type": "tool", "name": "code_execution"}
    first = create(claude, messages=ASK, tools=tools, tool_choice=forced)
    assert shown(first) == [
        ("server", "code_execution", {"code": "x = 6 * 7\nprint(x)\n"}),
        ("ran", "42\n"),
        "It is 42.",
    ]
    history = [
        *ASK,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": "And half of it?"},
    ]
    upstream.reply("```tool_code\nprint(x // 2)\n```", "21.")
    second = create(claude, messages=history, tools=tools, container=first.container.id)
    assert shown(second)[1:] == [("ran", "21\n"), "21."]
    told = json.dumps(upstream.requests[2]["messages"])
    assert "x = 6 * 7" in told
    assert "42" in told
