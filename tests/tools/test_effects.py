"""The effects of a tool's calls: declared, or inferred from name, description and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.tools.effects import Effect
from emulator.tools.toolset import Toolset
from tests.support.tools import strings

READS, ACTS, ORDERED = Effect.READS, Effect.ACTS, Effect.ORDERED

NAMES: list[tuple[Effect, str, str, tuple[str, ...]]] = [
    # name, description, arguments
    (READS, "get_weather", "", ("city",)),
    (READS, "getWeather", "", ("city",)),
    (READS, "GetWeather", "", ("city",)),
    (READS, "mcp__github__get_issue", "Get an issue.", ("id",)),
    (READS, "github.list_issues", "", ()),
    (READS, "web-search", "", ("query",)),
    (READS, "search", "Searches the web.", ("query",)),
    (READS, "look_up_word", "", ("word",)),
    (READS, "lookup", "", ("word",)),
    (READS, "file_read", "", ("path",)),
    (READS, "Grep", "", ("pattern",)),
    (READS, "ls", "", ()),
    (READS, "calculate_bmi", "", ("height",)),
    (READS, "ticket_get_login_status", "Get the login status.", ()),
    (READS, "check_availability", "", ("day",)),
    (READS, "get_order", "Get an order by its id.", ("id",)),
    (READS, "search_and_rank", "", ("query",)),
    (READS, "current_weather", "Returns the weather of a city.", ("city",)),
    (READS, "weather", "This tool allows you to look up the weather.", ("city",)),
    (READS, "stock_price", "Use this tool to fetch a price.", ("symbol",)),
    (READS, "orders", "A tool that lists all orders and books of a user.", ()),
    (READS, "search_book", "Search for a book.", ("title",)),
    (READS, "get_last_commit", "", ("branch",)),
    (READS, "calculate_area", "", ("shape", "method")),
    (READS, "query_docs", "Query the documentation.", ("query",)),
    (ACTS, "book_flight", "", ("id",)),
    (ACTS, "send_mail", "", ("to",)),
    (ACTS, "write_file", "", ("path",)),
    (ACTS, "frobnicate", "", ()),
    (ACTS, "frobnicate", "Frobnicates a thing.", ("id",)),
    (ACTS, "get_or_create_user", "", ("name",)),
    (ACTS, "find_and_replace", "", ("text",)),
    (ACTS, "search_replace", "", ("text",)),
    (ACTS, "read_write", "", ()),
    (ACTS, "todo_list_create", "", ("item",)),
    (ACTS, "check_in", "Check in a guest.", ("guest",)),
    (ACTS, "check_out_book", "", ("book",)),
    (ACTS, "mark_as_read", "", ("id",)),
    (ACTS, "get_ready", "Books a table and tells the guests.", ()),
    (ACTS, "read_inbox", "Reads the inbox and marks all messages as read.", ()),
    (ACTS, "get_message", "Gets the next message. It is fetched and then deleted, or removed.", ()),
    (ACTS, "order_status", "Cancel or confirm.", ("id",)),
    (ORDERED, "bash", "", ("command",)),
    (ORDERED, "run_tests", "", ()),
    (ORDERED, "python", "", ("source",)),
    (ORDERED, "executeCommand", "", ("text",)),
    (ORDERED, "get_output", "Get the output of a command.", ("command",)),
    (ORDERED, "read_via_script", "", ("script",)),
    (ORDERED, "find", "Find things.", ("action", "id")),
    (ORDERED, "search_database", "Run an SQL query.", ("query",)),
    (ORDERED, "query", "Query the Postgres database.", ("query",)),
    (ORDERED, "get_rows", "Get rows.", ("sql",)),
    (ORDERED, "fetch_url", "Fetch a URL.", ("url", "method")),
    (ORDERED, "cd", "", ("folder",)),
    (ORDERED, "browser_click", "", ("ref",)),
    (ORDERED, "type_text", "", ("text",)),
    (ORDERED, "add_to_watchlist", "", ("stock",)),
    (ORDERED, "setHeadlights", "", ("mode",)),
    (ORDERED, "wait", "", ("seconds",)),
]


def tool(name: str, description: str = "", arguments: tuple[str, ...] = (), **more: Any) -> Any:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": strings(*arguments),
            **more,
        },
    }


def effect(described: Any) -> Effect:
    [read] = Toolset.parse([described]).tools
    return read.effect


@pytest.mark.parametrize(("expected", "name", "description", "arguments"), NAMES)
def test_the_effect_follows_from_name_description_and_arguments(
    expected: Effect, name: str, description: str, arguments: tuple[str, ...]
) -> None:
    assert effect(tool(name, description, arguments)) is expected


DECLARED: list[tuple[str, Effect, Any]] = [
    (
        "annotations in the function",
        READS,
        tool("frobnicate", annotations={"readOnlyHint": True}),
    ),
    (
        "annotations next to the function",
        READS,
        {**tool("frobnicate"), "annotations": {"readOnlyHint": True}},
    ),
    (
        "annotations in the shape of Responses",
        READS,
        {"type": "function", "name": "frobnicate", "annotations": {"readOnlyHint": True}},
    ),
    (
        "a command that only reads",
        READS,
        tool("bash", arguments=("command",), annotations={"readOnlyHint": True}),
    ),
    ("not only reading", ACTS, tool("get_it", annotations={"readOnlyHint": False})),
    ("destructive", ACTS, tool("get_it", annotations={"destructiveHint": True})),
    ("idempotent means that it acts", ACTS, tool("get_it", annotations={"idempotentHint": True})),
    ("not destructive says little", READS, tool("get", annotations={"destructiveHint": False})),
    ("hints that are none", READS, tool("get_it", annotations={"readOnlyHint": "no"})),
    ("annotations that are none", READS, tool("get_it", annotations=["readOnlyHint"])),
    (
        "x-read-only in the schema",
        READS,
        tool("frobnicate") | {"function": {"name": "f", "parameters": {"x-read-only": True}}},
    ),
    ("x-read-only next to it", ACTS, tool("get_it", **{"x-read-only": False})),
    (
        "a custom tool takes free text, often a command",
        ORDERED,
        {"type": "custom", "custom": {"name": "get_it", "description": "Get it."}},
    ),
    (
        "a custom tool that only reads",
        READS,
        {"type": "custom", "custom": {"name": "f", "annotations": {"readOnlyHint": True}}},
    ),
]


@pytest.mark.parametrize(
    ("expected", "described"), [row[1:] for row in DECLARED], ids=[row[0] for row in DECLARED]
)
def test_a_declared_effect_takes_precedence(expected: Effect, described: Any) -> None:
    assert effect(described) is expected
