"""Anthropic's tool search in Messages: deferred tools are found by words or by a regular expression."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.support.agents import broken_prefixes
from tests.support.mcp_faults import stdio
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]


def tool(name: str, description: str, **fields: Any) -> Json:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    return {"name": name, "description": description, "input_schema": schema, **fields}


DEFERRED = [
    tool("merge_customers", "Merge two customers.", defer_loading=True),
    tool("refund_order", "Pay an order back.", defer_loading=True),
]
CLOCK = tool("clock", "The time at a place.")
REGEX: Json = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25: Json = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def ask(url: str, messages: list[Any], search: Json, stream: bool) -> Any:
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="k") as client:
        request: Json = {"model": "m", "max_tokens": 99, "messages": messages}
        request["tools"] = [search, *DEFERRED, CLOCK]
        if not stream:
            return client.messages.create(**request)
        with client.messages.stream(**request) as streamed:
            return streamed.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("search", "query"), [(REGEX, "(?i)MERGE.*custom"), (BM25, "merging customers")]
)
def test_tools_found_by_a_search_stay_available(
    start_proxy: Any, upstream: ScriptedUpstream, search: Json, query: str, stream: bool
) -> None:
    upstream.reply(
        f"I look.\n\n```tool_code\nsearch_tools(query={query!r})\n```",
        "```tool_code\nmerge_customers(id='c1')\n```",
        "Merged.",
        "Bye.",
    )
    url, messages = start_proxy(), [{"role": "user", "content": "Merge c1."}]
    kinds: list[str] = []
    for said in ("ok", "Thanks.", ""):
        answer = ask(url, messages, search, stream)
        kinds += [block.type for block in answer.content]
        if said == "ok":
            _, use, result, call = answer.content
            assert (use.name, use.input, use.id) == (
                search["name"],
                {"query": query},
                result.tool_use_id,
            )
            assert [one.tool_name for one in result.content.tool_references] == ["merge_customers"]
            content: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": said}]
        else:
            content = said
        blocks = [block.model_dump(exclude_none=True) for block in answer.content]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": content}]
    assert kinds == [
        "text",
        "server_tool_use",
        "tool_search_tool_result",
        "tool_use",
        "text",
        "text",
    ]
    assert broken_prefixes(upstream.requests) == []
    first, *_, last = (str(request["messages"]) for request in upstream.requests)
    assert "def clock(" in first
    assert "def merge_customers(" not in first
    assert last.count("def merge_customers(") == 1
    assert "def refund_order(" not in last


@pytest.mark.parametrize("pattern", ["(", "(a+)+$" * 40, "(?=merge)"])
def test_a_pattern_that_cannot_be_searched_is_an_error_that_the_model_sees(
    start_proxy: Any, upstream: ScriptedUpstream, pattern: str
) -> None:
    upstream.reply(f"```tool_code\nsearch_tools(query={pattern!r})\n```", "I found none.")
    said = [{"role": "user", "content": "Merge."}]
    _, result, text = ask(start_proxy(), said, REGEX, False).content
    assert result.content.error_code == "invalid_tool_input"
    assert "is no regular expression" in result.content.error_message
    assert text.text == "I found none."
    assert "is no regular expression" in str(upstream.requests[1]["messages"][-1])


@pytest.mark.parametrize(("search", "query"), [(REGEX, "("), (REGEX, "tea"), (BM25, "tea")])
def test_a_search_without_a_result_is_the_same_in_the_next_prompt(
    start_proxy: Any, upstream: ScriptedUpstream, search: Json, query: str
) -> None:
    upstream.reply(f"```tool_code\nsearch_tools(query={query!r})\n```", "I found none.", "Bye.")
    url, messages = start_proxy(), [{"role": "user", "content": "Tea."}]
    blocks = [block.model_dump() for block in ask(url, messages, search, False).content]
    answer = {"role": "assistant", "content": blocks}
    ask(url, [*messages, answer, {"role": "user", "content": "Bye."}], search, False)
    assert len(upstream.requests) == 3
    assert broken_prefixes(upstream.requests) == []


FIND = tool("find_tools", "Find tools for a goal.")


@pytest.mark.parametrize("texts", [[], [{"type": "text", "text": "One tool."}]])
def test_a_clients_own_search_returns_references(
    start_proxy: Any, upstream: ScriptedUpstream, texts: list[Json]
) -> None:
    upstream.reply(
        "```tool_code\nfind_tools(id='merge')\n```",
        "```tool_code\nmerge_customers(id='c1')\n```",
        "Merged.",
        "Bye.",
    )
    url, messages = start_proxy(), [{"role": "user", "content": "Merge c1."}]
    reference = {"type": "tool_reference", "tool_name": "merge_customers"}
    for said in ([*texts, reference], "ok", None, None):
        answer = ask(url, messages, FIND, False)
        [block] = answer.content
        content: Any = "Thanks."
        if block.type == "tool_use":
            content = [{"type": "tool_result", "tool_use_id": block.id, "content": said}]
        blocks = [block.model_dump(exclude_none=True)]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": content}]
    assert [m["content"][0]["type"] for m in messages[1::2]] == ["tool_use"] * 2 + ["text"] * 2
    assert broken_prefixes(upstream.requests) == []
    first, *_, last = (str(request["messages"]) for request in upstream.requests)
    assert "def find_tools(" in first
    assert "merge_customers" in first
    assert "def merge_customers(" not in first
    assert last.count("def merge_customers(") == 1
    assert last.count("One tool.") == len(texts)
    assert "def refund_order(" not in last


def test_a_toolset_defers_its_tools_by_default_or_one_by_one(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply("Hello.", "Hello.")
    url = start_proxy(mcp={"shop": stdio(tmp_path / "log")})
    toolset = {"type": "mcp_toolset", "mcp_server_name": "shop"}
    deferred, loaded = {"defer_loading": True}, {"defer_loading": False}
    for options in (
        {"configs": {"order": deferred}},
        {"default_config": deferred, "configs": {"order": loaded}},
    ):
        with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="k") as client:
            tools: Any = [BM25, {**toolset, **options}]
            said: Any = [{"role": "user", "content": "Hi."}]
            client.beta.messages.create(model="m", max_tokens=9, messages=said, tools=tools)
    first, second = (str(request["messages"][0]) for request in upstream.requests)
    assert ("def order(" in first, "def order(" in second) == (False, True)
    assert first.count("def ") > 2
    assert second.count("def ") == 2


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_are_all_deferred_can_be_called_although_nothing_finds_them(
    proxy: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply("```tool_code\nrefund_order(id='o1')\n```")
    request: Json = {"model": "m", "max_tokens": 99, "tools": DEFERRED}
    request["messages"] = [{"role": "user", "content": "Refund o1."}]
    with anthropic.Anthropic(base_url=proxy, api_key="k", max_retries=0) as client:
        if stream:
            with client.messages.stream(**request) as streamed:
                answer: Any = streamed.get_final_message()
        else:
            answer = client.messages.create(**request)
    assert [(block.name, block.input) for block in answer.content] == [
        ("refund_order", {"id": "o1"})
    ]
    assert "- refund_order: Pay an order back." in upstream.requests[0]["messages"][0]["content"]
