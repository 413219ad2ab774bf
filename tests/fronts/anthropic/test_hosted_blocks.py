"""MCP in Messages: ``mcp_servers`` and toolsets, and hosted calls as blocks of answers and of the history.

The order of the events is that of a recorded stream of Anthropic's (vercel/ai, packages/anthropic, fixture
``anthropic-mcp.1``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage

from emulator.conversation.client_history import ClientHistory
from emulator.core.errors import BadRequest
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    HostedCallFinished,
    HostedCallStarted,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    call_id,
)
from emulator.core.protocol import Message, validated
from emulator.fronts.anthropic.blocks import add_messages
from emulator.fronts.anthropic.code_calls import Cells
from emulator.fronts.anthropic.message import collect
from emulator.fronts.anthropic.request import MessagesRequest, at_client_place, chat_request
from emulator.fronts.anthropic.writer import MessageWriter

Json = dict[str, Any]

A, B, C = (call_id("ab" * 32, place) for place in range(3))
USE_A, USE_B = f"mcptoolu_{A[5:]}", f"mcptoolu_{B[5:]}"
ROLL: Json = {"name": "roll", "description": "Roll dice.", "input_schema": {"type": "object"}}
STARTED_A = HostedCallStarted(A, "mcp", "dice", "roll", {"sides": 6})
STARTED_B = HostedCallStarted(B, "mcp", "dice", "roll", {"sides": 20})
STOP = Finish("stop", Usage(5, 7))


def use(key: str, sides: int) -> Json:
    fields = {"id": key, "name": "roll", "server_name": "dice", "input": {"sides": sides}}
    return {"type": "mcp_tool_use", **fields}


def result(key: str, *texts: str, is_error: bool = False) -> Json:
    content = [{"type": "text", "text": text} for text in texts]
    fields = {"tool_use_id": key, "is_error": is_error, "content": content}
    return {"type": "mcp_tool_result", **fields}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def written(*answer: AnswerEvent, shows_lists: bool = True) -> list[Json]:
    writer = MessageWriter("m", thinks=False, shows_lists=shows_lists)
    return [e for e in writer.write([UpstreamAccepted(), *answer, STOP]) if isinstance(e, dict)]


def called(*calls: tuple[str, int | None], words: str | None = None) -> Json:
    made = [
        (key, "dice", "roll", f'{{"sides":{sides}}}') if sides else (key, None, "f", "{}")
        for key, sides in calls
    ]
    return {"role": "assistant", "content": words, "calls": made}


def returned(key: str, content: Any, *, is_error: bool = False) -> Json:
    return {"role": "tool", "key": key, "content": content, "is_error": is_error}


def shown(message: Message) -> Json:
    if message.role == "tool":
        assert message.tool_call_id and isinstance(message.is_error, bool)
        return returned(message.tool_call_id, message.content, is_error=message.is_error)
    calls = [
        (call.id, call.server_label, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.function
    ]
    return {"role": message.role, "content": message.content} | ({"calls": calls} if calls else {})


CLIENT_CALL = [ToolCall(C, "f", {})]
CLIENT_USE = {"type": "tool_use", "id": C, "name": "f", "input": {}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

ANSWERS: list[tuple[str, Sequence[AnswerEvent], list[Json], list[Json]]] = [
    (
        "a call between words",
        [ContentDelta("I roll."), STARTED_A, HostedCallFinished(A, "4"), ContentDelta("A four.")],
        [text("I roll."), use(USE_A, 6), result(USE_A, "4"), text("A four.")],
        [
            called((A, 6), words="I roll."),
            returned(A, "4"),
            {"role": "assistant", "content": "A four."},
        ],
    ),
    (
        "a call that failed",
        [STARTED_A, HostedCallFinished(A, "no dice", is_error=True)],
        [use(USE_A, 6), result(USE_A, "no dice", is_error=True)],
        [called((A, 6)), returned(A, "no dice", is_error=True)],
    ),
    (
        "a result with an image",
        [STARTED_A, HostedCallFinished(A, [text("4"), IMAGE])],
        [use(USE_A, 6), result(USE_A, "4", "[an image]")],
        [called((A, 6)), returned(A, [text("4"), text("[an image]")])],
    ),
    (
        "calls at the same time: results in the order of the calls",
        [STARTED_A, STARTED_B, HostedCallFinished(B, "13"), HostedCallFinished(A, "4")],
        [use(USE_A, 6), use(USE_B, 20), result(USE_A, "4"), result(USE_B, "13")],
        [called((A, 6), (B, 20)), returned(A, "4"), returned(B, "13")],
    ),
    (
        "a call that ends while a call of the client is written",
        [STARTED_A, *CLIENT_CALL[:2], HostedCallFinished(A, "4"), *CLIENT_CALL[2:]],
        [use(USE_A, 6), CLIENT_USE, result(USE_A, "4")],
        [called((A, 6), (C, None)), returned(A, "4")],
    ),
    (
        "a call that ends before a call of the client is written",
        [STARTED_A, HostedCallFinished(A, "4"), *CLIENT_CALL],
        [use(USE_A, 6), result(USE_A, "4"), CLIENT_USE],
        [called((A, 6), (C, None)), returned(A, "4")],
    ),
    (
        "a list",
        [ToolsListed("mcpl_1", "dice", (ROLL,))],
        [{"type": "mcp_tool_listing", "mcp_server_name": "dice", "tools": [ROLL]}],
        [],
    ),
    ("a server that is down", [ToolsListed("mcpl_1", "dice", (), "down")], [], []),
]
EACH_ANSWER = pytest.mark.parametrize(
    ("answer", "blocks", "history"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)


@EACH_ANSWER
def test_hosted_calls_become_blocks_and_blocks_become_calls(
    answer: Sequence[AnswerEvent], blocks: list[Json], history: list[Json]
) -> None:
    made = collect(written(*answer))
    assert made["content"] == blocks
    BetaMessage.model_validate(made, strict=True)
    read = ClientHistory()
    add_messages(read, "assistant", made["content"], "messages[1].content", Cells((), read))
    assert [shown(message) for message in read.messages] == history


@EACH_ANSWER
def test_a_block_ends_before_the_next_begins(
    answer: Sequence[AnswerEvent], blocks: list[Json], history: list[Json]
) -> None:
    is_open, count = False, 0
    for event in written(*answer)[1:-2]:
        kind = event["type"].removeprefix("content_block_")
        assert is_open == (kind != "start")
        assert event["index"] == (count if kind == "start" else count - 1)
        is_open = kind != "stop"
        count += kind == "start"
    assert (is_open, count) == (False, len(blocks))


def test_lists_of_tools_are_only_for_clients_that_know_them() -> None:
    listed = ToolsListed("mcpl_1", "dice", (ROLL,))
    assert collect(written(listed, shows_lists=False))["content"] == []


# Requests

DICE: Json = {"type": "url", "name": "dice", "url": "https://dice.test/mcp"}
TOOLSET: Json = {"type": "mcp_toolset", "mcp_server_name": "dice"}
ITEM: Json = {
    "type": "mcp",
    "server_label": "dice",
    "server_url": "https://dice.test/mcp",
    "require_approval": "never",
}
CLIENT_SEARCH: Json = {"type": "tool_search", "execution": "client"}
OLD_BETA = "other-beta,mcp-client-2025-04-04"


def request(servers: Sequence[Json], *tools: Json, blocks: Sequence[Json] = ()) -> MessagesRequest:
    history = [{"role": "assistant", "content": [*blocks]}] if blocks else []
    fields = {"messages": [*history, {"role": "user", "content": "Roll."}], "tools": [*tools]}
    body = {"model": "m", "max_tokens": 9, "mcp_servers": [*servers], **fields}
    return validated(MessagesRequest, body)


@pytest.mark.parametrize(
    ("servers", "tools", "betas", "expected"),
    [
        ([DICE], [TOOLSET], "", [{**ITEM, "excluded_tools": []}]),
        (
            [{**DICE, "authorization_token": "t"}],
            [TOOLSET],
            "",
            [{**ITEM, "authorization": "t", "excluded_tools": []}],
        ),
        (
            [DICE],
            [{**TOOLSET, "configs": {"a": {"enabled": False}, "b": {"defer_loading": True}}}],
            "",
            [{**ITEM, "excluded_tools": ["a"], "deferred_tools": {"b": True}}, CLIENT_SEARCH],
        ),
        (
            [DICE],
            [
                {
                    **TOOLSET,
                    "default_config": {"enabled": False, "defer_loading": True},
                    "configs": {"a": {"enabled": True}, "b": {}},
                }
            ],
            "",
            [{**ITEM, "defer_loading": True, "allowed_tools": ["a"]}, CLIENT_SEARCH],
        ),
        (
            [],
            [TOOLSET],
            "",
            [
                {
                    "type": "mcp",
                    "server_label": "dice",
                    "require_approval": "never",
                    "excluded_tools": [],
                }
            ],
        ),
        ([DICE], [], OLD_BETA, [ITEM]),
        (
            [{**DICE, "tool_configuration": {"allowed_tools": ["a"]}}],
            [],
            "",
            [{**ITEM, "allowed_tools": ["a"]}],
        ),
        (
            [{**DICE, "tool_configuration": {"enabled": False}}],
            [],
            OLD_BETA,
            [{**ITEM, "allowed_tools": []}],
        ),
    ],
)
def test_servers_become_tools(
    servers: list[Json], tools: list[Json], betas: str, expected: list[Json]
) -> None:
    assert chat_request(request(servers, *tools), betas=betas).tools == expected


@pytest.mark.parametrize(
    ("servers", "tools", "place"),
    [
        ([DICE], [], "mcp_servers[0]"),
        ([DICE, {**DICE, "name": "other"}], [TOOLSET], "mcp_servers[1]"),
        ([DICE, {**DICE, "url": "https://x.test"}], [TOOLSET], "mcp_servers[1].name"),
        ([DICE], [TOOLSET, TOOLSET], "tools[1].mcp_server_name"),
        ([DICE], [{"type": "mcp_toolset"}], "tools[0].mcp_server_name"),
        ([DICE], [{**TOOLSET, "configs": {"a": {"enabled": []}}}], "tools[0].configs.a.enabled"),
        ([{**DICE, "type": "stdio"}], [TOOLSET], "mcp_servers[0].type"),
        ([{"type": "url", "name": "dice"}], [TOOLSET], "mcp_servers[0].url"),
    ],
)
def test_an_unusable_server_is_an_error_that_names_the_place(
    servers: list[Json], tools: list[Json], place: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        chat_request(request(servers, *tools))
    assert caught.value.param == place
    assert caught.value.message.count(place) == 1


@pytest.mark.parametrize(
    ("servers", "tools", "place", "expected"),
    [
        ([DICE], [TOOLSET], "tools[0].server_url", "mcp_servers[0].url"),
        ([DICE], [TOOLSET], "tools[0].authorization", "mcp_servers[0].authorization_token"),
        ([DICE], [TOOLSET], "tools[0].server_label", "tools[0].mcp_server_name"),
        ([], [TOOLSET], "tools[0].server_label", "tools[0].mcp_server_name"),
        ([DICE], [], "tools[0].server_url", "mcp_servers[0].url"),
        ([DICE], [], "tools[0]", "mcp_servers[0]"),
        ([], [{"name": "a"}], "tools[0].function.name", "tools[0].name"),
    ],
)
def test_an_error_about_a_server_names_the_clients_place(
    servers: list[Json], tools: list[Json], place: str, expected: str
) -> None:
    made = request(servers, *tools)
    error = at_client_place(BadRequest(f"{place} is bad.", place), made, made.offered_tools())
    assert (error.param, error.message) == (expected, f"{expected} is bad.")


def test_a_tool_list_in_the_request_is_used_instead_of_the_servers() -> None:
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "dice", "tools": [ROLL]}
    other = {**TOOLSET, "mcp_server_name": "other", "tools": [ROLL]}
    chat = chat_request(request([DICE], TOOLSET, other, blocks=[listing]))
    assert chat.listed_servers == {"dice": [ROLL], "other": [ROLL]}
