"""The types of tools that vendors host, served by tools of a real MCP server, over each API that has them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support import mcp_library
from tests.support.agents import broken_prefixes
from tests.support.approver import Approver
from tests.support.processes import ROOT
from tests.support.raw_http import send
from tests.support.responses_client import check_events, fetch, read_stream
from tests.support.scripted import Reply, ScriptedUpstream

Json = dict[str, Any]
TEA = "https://tea.example.net/price"
READ_PAGES = "Read Tea.example.net/price and https://nowhere.example."
SERVE: Json = {
    "web_search": mcp_library.SEARCH,
    "web_fetch": {"tool": "library.read", "url": "address"},
    "image_generation": {"tool": "library.draw", "prompt": "text", "size": "dimensions"},
    "file_search": {
        "tool": "library.lookup",
        "query": "q",
        "max_num_results": "limit",
        "vector_store_ids": "stores",
        "stores": {"*": ["vs_public"], "boss": ["vs_secret"]},
        "results": "hits",
        "file_id": "id",
        "filename": "name",
        "scope": "client",
    },
}


@pytest.fixture
def library(start_proxy: StartProxy, tmp_path: Path) -> Any:
    """Starts a proxy whose types the library serves; its log is what the library was asked."""

    class Library:
        def __call__(self, serve: Json | None = None, **settings: Any) -> str:
            row = mcp_library.stdio(tmp_path / "log")
            row |= settings.pop("row", {})
            return start_proxy(mcp={"library": row}, serve=serve or SERVE, **settings)

        @property
        def log(self) -> list[str]:
            file = tmp_path / "log"
            return file.read_text().splitlines() if file.exists() else []

    return Library()


def block(code: str) -> str:
    return f"```tool_code\n{code}\n```"


def prompt(upstream: ScriptedUpstream, number: int = -1) -> str:
    return json.dumps(upstream.requests[number]["messages"])


RESPONSES: dict[str, tuple[Json, str, str, Json]] = {
    "web_search": (
        {"type": "web_search"},
        "for page in web_search(query='tea'):\n    print(page['title'], page['url'])",
        f"See {TEA}.",
        {
            "type": "web_search_call",
            "action": {
                "type": "search",
                "query": "tea",
                "queries": ["tea"],
                "sources": [{"type": "url", "url": TEA}],
            },
        },
    ),
    "file_search": (
        {"type": "file_search", "vector_store_ids": ["vs_public"], "max_num_results": 1},
        "for hit in file_search(query='office'):\n    print(hit['filename'], hit['text'])",
        "At nine (handbook.md).",
        {
            "type": "file_search_call",
            "queries": ["office"],
            "results": [
                {
                    "attributes": None,
                    "file_id": "file-0",
                    "filename": "handbook.md",
                    "score": 1,
                    "text": "The office opens at nine.",
                }
            ],
        },
    ),
    "image_generation": (
        {"type": "image_generation", "size": "8x8", "quality": "high"},
        "print(image_generation(prompt='a red door'))",
        "There it is.",
        {
            "type": "image_generation_call",
            "revised_prompt": "a red door",
            "output_format": "png",
            "result": mcp_library.picture("a red door"),
        },
    ),
}
READ = {
    "web_search": f"Tea prices {TEA}",
    "file_search": "handbook.md The office opens at nine.",
    "image_generation": "The image is made, and the user sees it.",
}
ANNOTATED = {"web_search": "url_citation", "file_search": "file_citation"}


PLACE = {"type": "approximate", "city": "Oslo", "country": "NO"}
NEAR = {"tool": "library.find_near", "city": "town", "country": "where"}
FIELDS: dict[str, tuple[str, Json, Any, str, set[str]]] = {
    "a place that the server takes": (
        "responses",
        {"web_search": NEAR},
        {"tools": [{"type": "web_search", "user_location": PLACE, "search_context_size": "low"}]},
        "find_near tea, Oslo, NO",
        {"web_search.search_context_size"},
    ),
    "a place in chat's options": (
        "chat/completions",
        {"web_search": NEAR},
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": PLACE}}},
        "find_near tea, Oslo, NO",
        set(),
    ),
    "a place that the server does not take": (
        "responses",
        {"web_search": {"tool": "library.find_near"}},
        {"tools": [{"type": "web_search", "user_location": PLACE, "external_web_access": False}]},
        "find_near tea, -, -",
        {"web_search.user_location", "web_search.external_web_access"},
    ),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_a_type_reach_the_server_or_are_named(
    library: Any, upstream: ScriptedUpstream, name: str
) -> None:
    """They were dropped without a word."""
    path, rows, fields, asked, ignored = FIELDS[name]
    url = library(rows)
    upstream.reply(block("print(web_search(query='tea'))"), "Done.")
    question: Json = {"messages": [{"role": "user", "content": "Tea?"}], "input": "Tea?"}
    question.pop("messages" if path == "responses" else "input")
    status, headers, answer = send(f"{url}/v1/{path}", {"model": "m", **question, **fields})
    assert status == 200, answer
    assert library.log == [asked]
    assert {*filter(None, headers.get("x-emulator-ignored", "").split(", "))} == ignored


def test_a_picture_has_the_format_that_the_server_takes_or_that_is_named(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    upstream.reply(block("image_generation(prompt='a door')"), "Done.")
    wanted = {"output_format": "jpeg", "partial_images": 2, "size": "8x8", "moderation": None}
    tools = [{"type": "image_generation", **wanted}]
    _, headers, _ = send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": tools})
    named = {"image_generation.output_format", "image_generation.partial_images"}
    assert {*headers["x-emulator-ignored"].split(", ")} == named


INCLUDE = ["web_search_call.action.sources", "file_search_call.results"]


@pytest.mark.parametrize("name", ["web_search", "file_search"])
def test_sources_and_results_are_for_who_includes_them(
    library: Any, upstream: ScriptedUpstream, name: str
) -> None:
    tool, code, words, _ = RESPONSES[name]
    url = library()
    upstream.reply(block(code), words, "You are welcome.")
    body: Json = {"model": "m", "tools": [tool], "input": "Please."}
    response = send(f"{url}/v1/responses", body)[2]
    place = f"{url}/v1/responses/{response['id']}"
    names = "&".join(f"include={one}" for one in INCLUDE)
    without, whole = send(place)[2]["output"][0], send(f"{place}?{names}")[2]["output"][0]
    assert response["output"][0] == without
    found = (
        (lambda item: item["action"].get("sources"))
        if name == "web_search"
        else (lambda item: item["results"])
    )
    assert (found(without), bool(found(whole))) == (None, True)
    again = {**body, "previous_response_id": response["id"], "input": "Thanks."}
    send(f"{url}/v1/responses", again)
    assert READ[name] in prompt(upstream)
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("name", RESPONSES)
def test_responses_report_the_vendors_item_and_the_next_prompt_has_the_result(
    library: Any, upstream: ScriptedUpstream, name: str, stream: bool
) -> None:
    tool, code, words, expected = RESPONSES[name]
    url = library()
    upstream.reply(block(code), words, "You are welcome.")
    body: Json = {"model": "m", "tools": [tool], "stream": stream, "store": False}
    body["include"] = INCLUDE
    history: list[Json] = [{"role": "user", "content": "Please."}]
    status, data = fetch(f"{url}/v1/responses", {**body, "input": history})
    assert status == 200, data
    response = check_events(read_stream(data)) if stream else json.loads(data)
    item, message = response["output"]
    assert {**expected, "id": item["id"], "status": "completed"} == item
    part = message["content"][0]
    assert part["text"] == words
    assert [one["type"] for one in part["annotations"]] == [
        ANNOTATED[name] for _ in range(name in ANNOTATED)
    ]
    assert READ[name] in prompt(upstream)
    history += [*response["output"], {"role": "user", "content": "Thanks."}]
    fetch(f"{url}/v1/responses", {**body, "input": history})
    assert broken_prefixes(upstream.requests) == []


CHOICES: dict[str, Any] = {
    "the type": lambda name: {"type": name},
    "required": lambda name: "required",
    "allowed": lambda name: {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": name}],
    },
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", RESPONSES)
def test_a_served_type_can_be_chosen(
    library: Any, upstream: ScriptedUpstream, name: str, choice: str
) -> None:
    """The choice of a type, also of a web search by a provider, was refused."""
    tool, code, words, expected = RESPONSES[name]
    url = library()
    upstream.reply("I would rather not.", block(code), words)
    body = {"model": "m", "tools": [tool], "input": "?", "tool_choice": CHOICES[choice](name)}
    status, _, response = send(f"{url}/v1/responses", body)
    assert status == 200, response
    assert [item["type"] for item in response["output"]] == [expected["type"], "message"]


def test_a_choice_may_name_another_version(library: Any, upstream: ScriptedUpstream) -> None:
    url = library()
    upstream.reply(block("print(web_search(query='tea'))"), "4 pounds.")
    tools, choice = [{"type": "web_search"}], {"type": "web_search_preview"}
    body = {"model": "m", "tools": tools, "input": "Tea?", "tool_choice": choice}
    assert send(f"{url}/v1/responses", body)[0] == 200


@pytest.mark.parametrize("name", RESPONSES)
def test_a_native_model_calls_served_types_too(
    library: Any, upstream: ScriptedUpstream, name: str
) -> None:
    tool, _, words, expected = RESPONSES[name]
    url = library(tools="native")
    arguments = {
        "web_search": {"query": "tea"},
        "file_search": {"query": "office"},
        "image_generation": {"prompt": "a red door"},
    }
    upstream.reply(Reply(tool_calls=[{"name": name, "arguments": arguments[name]}]), words)
    body = {"model": "m", "tools": [tool], "input": "Please."}
    status, _, response = send(f"{url}/v1/responses", body)
    assert status == 200, response
    assert [item["type"] for item in response["output"]] == [expected["type"], "message"]


@pytest.mark.parametrize("name", RESPONSES)
def test_the_sdks_events_describe_a_served_call(
    library: Any, upstream: ScriptedUpstream, name: str
) -> None:
    tool, code, words, expected = RESPONSES[name]
    url = library()
    upstream.reply(block(code), words)
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="Please.", tools=[tool]) as stream,  # type: ignore[list-item]
    ):
        kinds = [event.type for event in stream]
    works = "generating" if name == "image_generation" else "searching"
    steps = [kind for kind in kinds if f".{expected['type']}." in kind]
    assert [step.rpartition(".")[2] for step in steps] == ["in_progress", works, "completed"]


def test_arguments_go_under_the_servers_names_and_only_those_that_are_mapped(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    upstream.reply(block("print(image_generation(prompt='a door'))"), "Done.")
    tool = {"type": "image_generation", "size": "8x8", "quality": "high", "background": "opaque"}
    send(f"{url}/v1/responses", {"model": "m", "input": "Draw.", "tools": [tool]})
    assert library.log == ["draw a door 8x8"]


@pytest.mark.parametrize("version", ["web_search_20250305", "web_search_20260318"])
def test_messages_show_a_served_search(
    library: Any, upstream: ScriptedUpstream, version: str
) -> None:
    url = library()
    upstream.reply(block("print(web_search(query='tea'))"), "4 pounds.", "Welcome.")
    tools: Any = [{"type": version, "name": "web_search"}]
    answer = ask_messages(url, tools, [{"role": "user", "content": "Tea?"}])
    use, result, text = answer.content
    assert (use.type, use.name, use.input) == ("server_tool_use", "web_search", {"query": "tea"})
    assert [page.url for page in result.content] == [TEA]
    assert text.text == "4 pounds."
    assert answer.usage.server_tool_use.web_search_requests == 1
    content = answer.model_dump(exclude_none=True)["content"]
    messages = [{"role": "assistant", "content": content}, {"role": "user", "content": "Thanks."}]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools}
    _, headers, _ = send(f"{url}/v1/messages", body)
    assert "x-emulator-ignored" not in headers


def ask_messages(url: str, tools: Any, messages: Any) -> Any:
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=999, messages=messages, tools=tools) as stream,
    ):
        return stream.get_final_message()


def test_messages_show_a_fetched_page_and_the_next_prompt_has_its_text(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    upstream.reply(block(f"print(web_fetch(url={TEA!r}))"), "4 pounds.", "Welcome.")
    tools: Any = [{"type": "web_fetch_20260318", "name": "web_fetch", "max_uses": 3}]
    messages: list[Any] = [{"role": "user", "content": f"What does it cost at {TEA}?"}]
    answer = ask_messages(url, tools, messages)
    use, result, text = answer.content
    assert (use.type, use.name, use.input) == ("server_tool_use", "web_fetch", {"url": TEA})
    assert (result.type, result.tool_use_id) == ("web_fetch_tool_result", use.id)
    document = result.content.content
    assert (result.content.url, document.type) == (TEA, "document")
    assert document.source.data == "Tea prices A pound of tea costs 4 pounds."
    assert text.text == "4 pounds."
    assert answer.usage.server_tool_use.web_fetch_requests == 1
    content = answer.model_dump(exclude_none=True)["content"]
    messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "Thanks."}]
    ask_messages(url, tools, messages)
    assert broken_prefixes(upstream.requests) == []
    assert prompt(upstream).count("A pound of tea costs 4 pounds.") == 1


@pytest.mark.parametrize(
    ("tool", "code", "problem"),
    [
        ({}, "print(web_fetch(url='https://nowhere.example/'))", "there is no such page"),
        ({}, f"print(web_fetch(url='{TEA}?said=42'))", "neither in a message of the user nor"),
        ({"blocked_domains": ["example.net"]}, f"print(web_fetch(url={TEA!r}))", "not allowed"),
        ({"allowed_domains": ["example.org"]}, f"print(web_fetch(url={TEA!r}))", "not allowed"),
    ],
)
def test_a_page_that_cannot_be_fetched_is_an_error_of_the_vendors_form(
    library: Any, upstream: ScriptedUpstream, tool: Json, code: str, problem: str
) -> None:
    url = library()
    upstream.reply(block(code), "I cannot read it.")
    tools: Any = [{"type": "web_fetch_20250910", "name": "web_fetch", **tool}]
    answer = ask_messages(url, tools, [{"role": "user", "content": READ_PAGES}])
    assert answer.content[1].content.type == "web_fetch_tool_result_error"
    assert problem in prompt(upstream)
    assert ("no such page" in problem) == (library.log != [])


def test_a_page_is_fetched_that_a_search_found_in_this_answer_or_before(
    library: Any, upstream: ScriptedUpstream
) -> None:
    """What only the model names could send what it knows to whoever wrote a page."""
    url = library()
    tools: Any = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
    ]
    fetched = block(f"print(web_fetch(url={TEA!r}))")
    upstream.reply(fetched, block("print(web_search(query='tea'))"), fetched, "4 pounds.")
    messages: list[Any] = [{"role": "user", "content": "Tea?"}]
    answer = ask_messages(url, tools, messages)
    kinds = [one.content.type for one in answer.content if one.type == "web_fetch_tool_result"]
    assert kinds == ["web_fetch_tool_result_error", "web_fetch_result"]
    content = answer.model_dump(exclude_none=True)["content"]
    found = [one for one in content if "fetch" not in json.dumps(one)]
    for history, kind in (
        (content, "web_fetch_result"),
        (found, "web_fetch_result"),
        (f"I could read {TEA}.", "web_fetch_tool_result_error"),
    ):
        further = [{"role": "assistant", "content": history}, {"role": "user", "content": "Again."}]
        upstream.reply(fetched, "4 pounds.")
        again = ask_messages(url, tools, [*messages, *further])
        assert again.content[1].content.type == kind


def test_a_page_is_cut_at_the_tokens_that_the_request_allows(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    upstream.reply(block(f"print(web_fetch(url={TEA!r}))"), "Tea.")
    tools: Any = [{"type": "web_fetch_20250910", "name": "web_fetch", "max_content_tokens": 3}]
    ask_messages(url, tools, [{"role": "user", "content": READ_PAGES}])
    assert "Tea prices A" in prompt(upstream)
    assert "pounds" not in prompt(upstream)


def test_a_page_that_another_service_fetched_is_shown_when_its_session_is_resumed(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """A session that began at Anthropic lost what it had read."""
    upstream.reply("4 pounds.")
    source = {"type": "text", "media_type": "text/plain", "data": "Tea costs 4 pounds."}
    page = {
        "type": "web_fetch_result",
        "url": TEA,
        "content": {"type": "document", "source": source},
    }
    key = "srvtoolu_01WYG3ziw53XMcoyKL4XcZmE"
    content = [
        {"type": "server_tool_use", "id": key, "name": "web_fetch", "input": {"url": TEA}},
        {"type": "web_fetch_tool_result", "tool_use_id": key, "content": page},
        {"type": "text", "text": "I have read it."},
    ]
    messages = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "What does it cost?"},
    ]
    body = {"model": "m", "max_tokens": 99, "messages": messages}
    status, headers, _ = send(f"{proxy}/v1/messages", body)
    assert status == 200
    assert "x-emulator-ignored" not in headers
    assert "Tea costs 4 pounds." in prompt(upstream) and TEA in prompt(upstream)


@pytest.mark.parametrize(
    "fields", [{"web_search_options": {}}, {"tools": [{"type": "web_search"}]}]
)
def test_chat_searches_too(library: Any, upstream: ScriptedUpstream, fields: Json) -> None:
    url = library()
    upstream.reply(block("print(web_search(query='tea'))"), "4 pounds.")
    messages = [{"role": "user", "content": "Tea?"}]
    status, _, answer = send(
        f"{url}/v1/chat/completions", {"model": "m", "messages": messages, **fields}
    )
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "4 pounds.")
    assert library.log == ["find tea"]


def test_a_search_whose_result_is_text_shows_the_text_and_its_addresses(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library({"web_search": "library.find_text"})
    upstream.reply(block("print(web_search(query='tea'))"), "4 pounds.")
    body = {"model": "m", "input": "Tea?", "tools": [{"type": "web_search"}], "include": INCLUDE}
    _, _, response = send(f"{url}/v1/responses", body)
    assert response["output"][0]["action"]["sources"] == [{"type": "url", "url": TEA}]
    assert "A pound of tea costs 4 pounds." in prompt(upstream)


@pytest.mark.parametrize(
    "serve", [SERVE, {"web_search": "library.find_text"}], ids=["rows", "text"]
)
def test_domains_of_the_request_hold_for_what_the_model_reads(
    library: Any, upstream: ScriptedUpstream, serve: Json
) -> None:
    url = library(serve)
    upstream.reply(block("print(web_search(query='pound'))"), "4 pounds.")
    tool = {"type": "web_search", "filters": {"allowed_domains": ["tea.example.net"]}}
    send(f"{url}/v1/responses", {"model": "m", "input": "Tea?", "tools": [tool]})
    assert TEA in prompt(upstream)
    assert "offee" not in prompt(upstream)


def test_a_clients_function_keeps_its_name(library: Any, upstream: ScriptedUpstream) -> None:
    url = library()
    upstream.reply(block("print(library_web_search(query='tea'))"), "4 pounds.")
    own = {"type": "function", "name": "web_search", "parameters": {"type": "object"}}
    tools = [own, {"type": "web_search"}]
    _, _, response = send(f"{url}/v1/responses", {"model": "m", "input": "Tea?", "tools": tools})
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]


def test_a_type_that_is_not_served_is_dropped_and_named(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library({"web_search": "library.find_text"})
    upstream.reply("I cannot.")
    tools = [{"type": "file_search", "vector_store_ids": []}, {"type": "image_generation"}]
    body = {"model": "m", "input": "Draw.", "tools": tools}
    _, headers, _ = send(f"{url}/v1/responses", body)
    assert headers["x-emulator-dropped-tools"] == "file_search, image_generation"


@pytest.mark.parametrize("ids", [["vs_secret"], ["vs_public", "vs_secret"], ["vs_unknown"]])
def test_a_vector_store_of_others_does_not_exist(
    library: Any, upstream: ScriptedUpstream, ids: list[str]
) -> None:
    url = library()
    tools = [{"type": "file_search", "vector_store_ids": ids}]
    status, _, answer = send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": tools})
    place = f"tools[0].vector_store_ids[{len(ids) - 1}]"
    assert (status, answer["error"]["param"]) == (400, place)
    assert library.log == []


FILES: Json = SERVE["file_search"]


@pytest.mark.parametrize("fields", [{}, {"vector_store_ids": []}], ids=["missing", "empty"])
@pytest.mark.parametrize(
    ("stores", "searched"),
    [({"*": ["vs_public"], "boss": ["vs_secret"]}, ["vs_public"]), ({"boss": ["vs_secret"]}, None)],
    ids=["some", "none"],
)
def test_a_request_without_stores_searches_those_of_its_key(
    library: Any, upstream: ScriptedUpstream, fields: Json, stores: Json, searched: list[str] | None
) -> None:
    """The server got an empty list, which to most servers means all stores."""
    url = library({"file_search": {**FILES, "stores": stores}})
    tools = [{"type": "file_search", **fields}]
    if searched:
        upstream.reply(block("print(file_search(query='office'))"), "At nine.")
    status, _, answer = send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": tools})
    if searched:
        assert (status, len(library.log)) == (200, 1)
        assert f"lookup office {searched} for" in library.log[0]
    else:
        assert (status, answer["error"]["param"]) == (400, "tools[0].vector_store_ids")
        assert library.log == []


def test_stores_that_no_argument_gets_are_refused(library: Any, upstream: ScriptedUpstream) -> None:
    """They were ignored, and all files were searched."""
    url = library({"file_search": {"tool": "library.find_text", "scope": "shared"}})
    tools = [{"type": "file_search", "vector_store_ids": ["vs_public"]}]
    status, _, answer = send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": tools})
    assert (status, answer["error"]["param"]) == (400, "tools[0].vector_store_ids[0]")
    assert library.log == []


RAW: Json = {"type": "mcp", "server_label": "library", "require_approval": "never"}
TOOLSET: Json = {"type": "mcp_toolset", "mcp_server_name": "library"}
CALL = block("print(lookup(q='x', stores=['vs_secret']))")
NAMINGS: dict[str, tuple[str, Json]] = {
    "responses": ("/v1/responses", {"input": "?", "tools": [RAW]}),
    "allowed_tools": (
        "/v1/responses",
        {"input": "?", "tools": [RAW | {"allowed_tools": ["lookup"]}]},
    ),
    "history": (
        "/v1/responses",
        {
            "input": [
                {
                    "type": "mcp_list_tools",
                    "id": "mcpl_1",
                    "server_label": "library",
                    "tools": [{"name": "lookup", "input_schema": {"type": "object"}}],
                },
                {"role": "user", "content": "?"},
            ],
            "tools": [RAW],
        },
    ),
    "tool search": (
        "/v1/responses",
        {"input": "?", "tools": [RAW | {"defer_loading": True}, {"type": "tool_search"}]},
    ),
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "?"}], "tools": [RAW]},
    ),
    "always": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "?"}]}),
    "messages": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "tools": [TOOLSET]},
    ),
}


@pytest.mark.parametrize(
    "limit", [{"scope": "client"}, {"scope": "shared"}], ids=["scope", "stores"]
)
@pytest.mark.parametrize("naming", NAMINGS)
def test_a_tool_that_serves_some_clients_alone_is_offered_in_no_other_way(
    library: Any, upstream: ScriptedUpstream, naming: str, limit: Json
) -> None:
    """Any key called it raw, with any arguments: past the list of stores and the scope."""
    row = {"always": naming == "always"}
    url = library({"file_search": {**FILES, **limit}}, row=row)
    searches = naming == "tool search"
    searched = [block("print(search_tools(query='lookup'))")] * searches
    replies = iter([*searched, CALL])
    upstream.default = lambda _: next(replies, "I cannot.")
    path, body = NAMINGS[naming]
    status, _, answer = send(f"{url}{path}", {"model": "m", **body})
    assert status == 200, answer
    shown = json.dumps([request["messages"] for request in upstream.requests])
    assert "def lookup" not in shown
    assert ("def find" in shown) == (naming not in ("allowed_tools", "history", "tool search"))
    assert library.log == []


def test_nor_is_it_offered_by_its_url(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with mcp_library.http(tmp_path) as address:
        host = address.split("/")[2]
        row = {"url": address}
        url = start_proxy(mcp={"library": row}, serve={"file_search": FILES}, mcp_hosts=(host,))
        replies = iter([CALL])
        upstream.default = lambda _: next(replies, "I cannot.")
        tools = [{**RAW, "server_label": "own", "server_url": f"{address}?own"}]
        body = {"model": "m", "input": "?", "tools": tools}
        status, _, answer = send(f"{url}/v1/responses", body)
    assert status == 200, answer
    assert "find_text" in prompt(upstream, 0) and "lookup" not in prompt(upstream, 0)
    assert not (tmp_path / "log").exists(), "no tool was called"


def test_a_tool_that_serves_all_clients_may_be_named_too(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library({"web_search": "library.find_text"})
    upstream.reply(block("print(find_text(query='tea'))"), "4 pounds.")
    send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": [RAW]})
    assert library.log == ["find_text tea"]


def test_an_argument_may_name_the_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Neither the model nor the request sets it."""
    serve = {
        "web_search": {
            "tool": "library.remember",
            "results": "items",
            "scope": "client",
            "client": "user",
        }
    }
    row = mcp_library.stdio(tmp_path / "log")
    url = start_proxy(mcp={"library": row}, serve=serve, client_keys=("key-a", "key-b"))
    tools = [{"type": "web_search", "user": "boss", "client": "boss"}]
    for key in ("key-a", "key-b"):
        for call in ("web_search(query='tea')", "web_search(query='tea', user='boss')"):
            upstream.reply(block(f"print({call})"), "Nothing.")
            body = {"model": "m", "input": "?", "tools": tools, "user": "boss"}
            headers = {"authorization": f"Bearer {key}"}
            assert send(f"{url}/v1/responses", body, headers)[0] == 200
    assert "user" not in json.dumps(upstream.requests[0]["messages"][0])
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first != second
    assert all(len(line.removeprefix("remember tea of ")) == 32 for line in (first, second))


@pytest.mark.parametrize("place", ["data.0.b64_json", "url"])
def test_an_image_is_found_inside_lists_and_as_an_address(
    library: Any, upstream: ScriptedUpstream, place: str
) -> None:
    url = library(
        {"image_generation": {"tool": "library.sketch", "prompt": "text", "result": place}}
    )
    upstream.reply(block("print(image_generation(prompt='a door'))"), "Done.")
    body = {"model": "m", "input": "Draw.", "tools": [{"type": "image_generation"}]}
    _, _, response = send(f"{url}/v1/responses", body)
    assert response["output"][0]["result"] == mcp_library.picture("a door")


def test_the_fields_of_a_result_may_be_deep(library: Any, upstream: ScriptedUpstream) -> None:
    row = {"tool": "library.browse", "results": "found", "url": "meta.link", "title": "titles.0"}
    url = library({"web_search": row})
    upstream.reply(block("print(web_search(query='tea')[0])"), "Done.")
    tools = [{"type": "web_search"}]
    body = {"model": "m", "input": "Tea?", "tools": tools, "include": INCLUDE}
    _, _, response = send(f"{url}/v1/responses", body)
    assert {"type": "url", "url": TEA} in response["output"][0]["action"]["sources"]
    assert "Tea prices" in prompt(upstream)


def test_filters_that_are_not_applied_are_refused(library: Any, upstream: ScriptedUpstream) -> None:
    url = library()
    filters = {"type": "eq", "key": "author", "value": "me"}
    tools = [{"type": "file_search", "vector_store_ids": ["vs_public"], "filters": filters}]
    status, _, answer = send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": tools})
    assert (status, answer["error"]["param"]) == (400, "tools[0].filters")


@pytest.mark.parametrize("place", ["process", "http"])
def test_a_server_that_separates_clients_learns_who_asks_from_the_proxy_alone(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path, place: str
) -> None:
    log = tmp_path / "log"

    def ask(url: str, key: str) -> str:
        code = "print(file_search(query='notes'))"
        upstream.reply(block(code), "Done.")
        tool = {"type": "file_search", "vector_store_ids": ["vs_public"]}
        headers = {"authorization": f"Bearer {key}", "x-emulator-client": "boss"}
        body = {
            "model": "m",
            "input": "My notes?",
            "tools": [tool],
            "include": INCLUDE,
            "metadata": {"client": "boss"},
        }
        status, _, response = send(f"{url}/v1/responses", body, headers)
        assert status == 200, response
        hits = response["output"][0]["results"]
        return next(hit["text"] for hit in hits if hit["filename"] == "notes.md")

    def check(row: Json) -> None:
        url = start_proxy(mcp={"library": row}, serve=SERVE, client_keys=("key-a", "key-b"))
        first, second = ask(url, "key-a"), ask(url, "key-b")
        assert ask(url, "key-a") == first != second
        assert "key-" not in log.read_text() and "boss" not in log.read_text()
        assert "None" not in first and second not in prompt(upstream)

    if place == "process":
        check(mcp_library.stdio(log))
    else:
        with mcp_library.http(tmp_path) as address:
            check({"url": address})


def test_an_image_that_needs_approval_waits_for_a_person_in_the_inspector(
    library: Any, upstream: ScriptedUpstream
) -> None:
    """A client of OpenAI's type expects no request for approval."""
    url = library(row={"require_approval": "always"}, inspector="open")
    upstream.reply(block("print(image_generation(prompt='a door'))"), "Done.")
    person = Approver(url)
    body = {"model": "m", "input": "Draw.", "tools": [{"type": "image_generation"}]}
    asked = person.ask("/v1/responses", body)
    person.decide("approve")
    response = json.loads(asked.result(30)[2])
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["image_generation_call", "reasoning", "message"]
    assert library.log == ["draw a door 1x1"]


def test_a_request_that_is_repeated_draws_one_image(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    body = {"model": "m", "input": "Draw.", "tools": [{"type": "image_generation"}]}
    images = []
    for _ in range(2):
        upstream.reply(block("print(image_generation(prompt='a door'))"), "Done.")
        _, _, response = send(f"{url}/v1/responses", body, {"idempotency-key": "one"})
        images.append(response["output"][0]["result"])
    assert images == [mcp_library.picture("a door")] * 2
    assert library.log == ["draw a door 1x1"]


def test_a_server_that_draws_no_image_is_a_failed_call(
    library: Any, upstream: ScriptedUpstream
) -> None:
    url = library()
    upstream.reply(block("print(image_generation(prompt='nothing'))"), "It drew none.")
    body = {"model": "m", "input": "Draw.", "tools": [{"type": "image_generation"}]}
    _, _, response = send(f"{url}/v1/responses", body)
    item = response["output"][0]
    assert (item["status"], item["result"]) == ("failed", None)


def test_an_image_is_an_image(library: Any, upstream: ScriptedUpstream) -> None:
    url = library()
    upstream.reply(block("image_generation(prompt='a door')"), "Done.")
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        answer = client.responses.create(
            model="m",
            input="Draw.",
            tools=[{"type": "image_generation"}],  # type: ignore[list-item]
        )
    [image] = [item.result for item in answer.output if item.type == "image_generation_call"]
    assert image is not None and base64.b64decode(image).startswith(b"\x89PNG")


WRONG: list[tuple[Json, str]] = [
    ({"web_search": "library.serch"}, "library has no tool 'serch'"),
    ({"web_search": "library.find"}, "has no argument 'query': set query to its name for it (q)"),
    ({"web_fetch": "library.draw"}, "has no argument 'url'"),
    (
        {"file_search": {"tool": "library.lookup", "query": "q", "scope": "shared"}},
        "requires 'stores', which is not sent",
    ),
    (
        {"web_search": {"tool": "library.find_all", "query": "queries"}},
        "takes 'queries' as array; query is sent as string",
    ),
    (
        {"web_search": "library.find_all"},
        "takes 'query' as null or object; query is sent as string",
    ),
    (
        {"image_generation": {"tool": "library.draw", "prompt": "text", "size": "seconds"}},
        "takes 'seconds' as number; size is sent as string",
    ),
    (
        {"web_search": {"tool": "library.browse", "results": "fuond"}},
        "the outputSchema of library.browse has nothing at 'fuond': correct results",
    ),
    (
        {"web_search": {"tool": "library.browse", "results": "found.0.meta"}},
        "has object at 'found.0.meta': correct results",
    ),
    (
        {"web_search": {"tool": "library.browse", "results": "found"}},
        "has no 'url' in its results: correct url",
    ),
    (
        {
            "web_search": {
                "tool": "library.browse",
                "results": "found",
                "url": "meta.link",
                "title": "meta.title",
            }
        },
        "has no 'meta.title' in its results: correct title",
    ),
    (
        {"image_generation": {"tool": "library.browse", "prompt": "query", "result": "found"}},
        "has array at 'found': correct result",
    ),
    (
        {"image_generation": {"tool": "library.draw", "size": "text", "prompt": "text"}},
        "prompt and size both name the argument 'text'",
    ),
]


@pytest.mark.parametrize(("serve", "problem"), WRONG)
@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_a_mapping_that_does_not_bind_is_an_error_at_the_start(
    tmp_path: Path, serve: Json, problem: str, command: str
) -> None:
    row = mcp_library.stdio(tmp_path / "log")
    file = tmp_path / "emulator.toml"
    [(name, value)] = serve.items()
    file.write_text(
        f"[mcp.library]\ncommand = {json.dumps(row['command'])}\nargs = {json.dumps(row['args'])}\n"
        f"env = {{ PYTHONPATH = {json.dumps(row['env']['PYTHONPATH'])} }}\n"
        + (
            f"[serve]\n{name} = {json.dumps(value)}\n"
            if isinstance(value, str)
            else f"[serve.{name}]\n"
            + "".join(f"{key} = {json.dumps(one)}\n" for key, one in value.items())
        )
    )
    arguments = [] if command == "serve" else [command]
    flags = ["--base-url", "http://127.0.0.1:9/v1"] + (["--port", "0"] if not arguments else [])
    ended = subprocess.run(
        [sys.executable, "app.py", *arguments, *flags],
        cwd=ROOT,
        env={"PATH": "", "HOME": str(tmp_path), "EMULATOR_CONFIG": str(file)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0
    assert problem in ended.stdout + ended.stderr
    assert f"serve.{name}" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"serve": {"web_search": "shop.find"}}, r"add \[mcp.shop\]"),
        ({"serve": {"web_search": "find"}}, "write SERVER.TOOL"),
        (
            {"serve": {"file_search": {"tool": "shop.find", "vector_store_ids": "ids"}}},
            "needs stores",
        ),
        (
            {"serve": {"file_search": {"tool": "shop.find", "stores": {"*": ["a"]}}}},
            "stores needs vector_store_ids",
        ),
        (
            {"serve": {"web_search": {"tool": "shop.find", "client": "user"}}},
            'client needs scope = "client"',
        ),
        (
            {"serve": {"web_search": {"tool": "shop.find", "scope": "client", "client": "query"}}},
            "query and client both name the argument 'query'",
        ),
        ({"serve": {"computer": "shop.click"}}, "Extra inputs"),
        *(
            (
                {
                    "mcp": {"shop": {"url": "http://127.0.0.1:1"}},
                    "serve": {"file_search": "shop.find"},
                    **passing,
                },
                "needs a scope",
            )
            for passing in (
                {"pass_client_key": True},
                {"upstreams": ({"base_url": "http://127.0.0.1:1", "pass_client_key": True},)},
            )
        ),
        (
            {
                "mcp": {"shop": {"url": "http://127.0.0.1:1"}},
                "serve": {"file_search": "shop.find"},
                "client_keys": ("a", "b"),
            },
            "needs a scope",
        ),
        (
            {
                "mcp": {"shop": {"url": "http://127.0.0.1:1"}},
                "serve": {"web_search": "shop.find"},
                "web_search": {"provider": "searxng", "url": "http://127.0.0.1:1"},
            },
            "both name who searches",
        ),
        ({"web_search": {"provider": "mcp:shop.find"}}, 'write serve.web_search = "shop.find"'),
    ],
)
def test_settings_that_contradict_each_other_are_errors(settings: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(**settings)


def test_two_clients_share_a_server_only_if_it_is_shared(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    serve = {"file_search": {**SERVE["file_search"], "scope": "shared"}}
    row = mcp_library.stdio(tmp_path / "log")
    url = start_proxy(mcp={"library": row}, serve=serve, client_keys=("key-a", "key-b"))
    upstream.reply(block("print(file_search(query='notes'))"), "Done.")
    tool = {"type": "file_search", "vector_store_ids": ["vs_public"]}
    headers = {"authorization": "Bearer key-a"}
    send(f"{url}/v1/responses", {"model": "m", "input": "?", "tools": [tool]}, headers)
    assert "for None" in (tmp_path / "log").read_text()
