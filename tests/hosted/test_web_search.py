"""Web searches through a configured provider, in the three APIs. The provider is an HTTP server that answers
in the form of each search API's reference."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anthropic
import openai
import pytest

from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes
from tests.support.processes import wait_until
from tests.support.raw_http import connect, post_bytes, send
from tests.support.responses_client import check_events, fetch, read_stream
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
TEA, ADVERT = "https://tea.example.net/price?a=1", "https://spam.example.org/"
PROGRAM = (
    "```tool_code\nfor page in web_search('tea price'):\n    print(page['title'], page['url'])\n```"
)
ANSWER = f"It costs 4 pounds ([Tea prices]({TEA}))."
QUESTION = [{"role": "user", "content": "What does tea cost today?"}]
TEA_ROW = {"url": TEA, "title": "Tea prices", "content": "4 pounds", "description": "4 pounds"}
ROWS = [
    TEA_ROW,
    {**TEA_ROW, "url": ADVERT, "title": "Buy"},
    *({**TEA_ROW, "url": url} for url in ("file:///etc", "http://[", None)),
    {"title": "no page"},
    "no row",
]


class Provider:
    """One search API. ``answer`` is its status and body; ``searches`` are the queries and the headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: tuple[int, bytes] = (
            200,
            json.dumps({"results": ROWS, "web": {"results": ROWS}}).encode(),
        )
        self.searches: list[tuple[str, dict[str, str]]] = []
        self.is_silent = False
        """It never ends an answer, but sends a byte now and then."""
        self.was_left = threading.Event()
        """The proxy has closed the connection of an answer that never ends."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.search(parse_qs(urlsplit(self.path).query)["q"][0])

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.search(json.loads(body)["query"])

        def search(self, query: str) -> None:
            api.searches.append((query, {k.lower(): v for k, v in self.headers.items()}))
            status, body = api.answer
            self.send_response(status)
            while api.is_silent:
                try:
                    self.send_header("x-wait", "...")
                    self.flush_headers()
                except OSError:
                    api.was_left.set()
                    return
                threading.Event().wait(0.05)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api = Provider(f"http://127.0.0.1:{server.server_port}/search")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield api
    server.shutdown()
    server.server_close()
    thread.join()


def prompt(upstream: ScriptedUpstream, number: int = -1) -> str:
    return json.dumps(upstream.requests[number]["messages"])


@pytest.mark.parametrize(
    ("name", "token", "header"),
    [
        ("searxng", None, None),
        ("brave", "secret", ("x-subscription-token", "secret")),
        ("tavily", "secret", ("authorization", "Bearer secret")),
    ],
)
def test_a_program_searches_through_each_provider(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    provider: Provider,
    name: str,
    token: str | None,
    header: tuple[str, str] | None,
) -> None:
    url = start_proxy(web_search={"provider": name, "url": provider.url, "token": token})
    upstream.reply(PROGRAM, ANSWER)
    body = {"model": "m", "messages": QUESTION, "tools": [{"type": "web_search"}]}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, ANSWER)
    [(query, headers)] = provider.searches
    assert query == "tea price"
    assert header is None or headers[header[0]] == header[1]
    assert f"Tea prices {TEA}" in prompt(upstream)
    assert "file:///etc" not in prompt(upstream)


def test_responses_show_the_search_its_sources_and_citations_and_the_next_prompt_has_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider
) -> None:
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply(f"I look it up.\n\n{PROGRAM}", ANSWER, "You are welcome.")
    filters = {"allowed_domains": ["example.net"]}
    fields: Json = {
        "model": "m",
        "tools": [{"type": "web_search", "filters": filters}],
        "include": ["web_search_call.action.sources"],
        "stream": True,
    }
    history: list[Json] = [*QUESTION]
    status, data = fetch(f"{url}/v1/responses", {**fields, "input": history, "store": False})
    response = check_events(read_stream(data))
    assert status == 200
    _, search, message = response["output"]
    assert (search["type"], search["status"]) == ("web_search_call", "completed")
    assert search["action"]["query"] == "tea price"
    assert search["action"]["sources"] == [{"type": "url", "url": TEA}]
    part = message["content"][0]
    [citation] = part["annotations"]
    assert (citation["type"], citation["url"], citation["title"]) == (
        "url_citation",
        TEA,
        "Tea prices",
    )
    cited = part["text"][citation["start_index"] : citation["end_index"]]
    assert cited == f"[Tea prices]({TEA})"
    history += [*response["output"], {"role": "user", "content": "Thanks."}]
    fetch(f"{url}/v1/responses", {**fields, "input": history, "store": False})
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize("tool", ["web_search_20250305", "web_search_20260209"])
def test_messages_show_the_search_and_its_pages(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider, tool: str
) -> None:
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply(PROGRAM, ANSWER, "You are welcome.")
    tools: Any = [{"type": tool, "name": "web_search", "blocked_domains": ["spam.example.org"]}]
    messages: list[Any] = [*QUESTION]
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        with client.messages.stream(
            model="m", max_tokens=99, messages=messages, tools=tools
        ) as stream:
            answer = stream.get_final_message()
        use, result, text = answer.content
        assert (use.type, use.name, use.input) == (
            "server_tool_use",
            "web_search",
            {"query": "tea price"},
        )
        assert result.type == "web_search_tool_result"
        assert result.tool_use_id == use.id
        assert isinstance(result.content, list)
        assert [page.url for page in result.content] == [TEA]
        assert text.type == "text" and text.text == ANSWER
        [cited] = text.citations or []
        assert cited.type == "web_search_result_location"
        assert (cited.url, cited.title, cited.cited_text) == (TEA, "Tea prices", "4 pounds")
        messages += [
            {"role": "assistant", "content": answer.model_dump(exclude_none=True)["content"]},
            {"role": "user", "content": "Thanks."},
        ]
        client.messages.create(model="m", max_tokens=99, messages=messages, tools=tools)
    assert broken_prefixes(upstream.requests) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_cites_the_pages_that_its_answer_names(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider, stream: bool
) -> None:
    """Chat's web search had sources in the reasoning only."""
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply(f"I look it up.\n\n{PROGRAM}", ANSWER)
    body: Any = {"model": "m", "messages": QUESTION, "web_search_options": {}}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        if stream:
            deltas = [
                chunk.choices[0].delta
                for chunk in client.chat.completions.create(**body, stream=True)
            ]
            content = "".join(delta.content or "" for delta in deltas)
            annotations = [one for delta in deltas for one in getattr(delta, "annotations", ())]
        else:
            message = client.chat.completions.create(**body).choices[0].message
            content = message.content or ""
            annotations = [one.to_dict() for one in message.annotations or ()]
    [cited] = annotations
    place = cited["url_citation"]
    assert (cited["type"], place["url"], place["title"]) == ("url_citation", TEA, "Tea prices")
    assert content[place["start_index"] : place["end_index"]] == f"[Tea prices]({TEA})"


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b" " * (5 * 2**20))]
)
def test_a_provider_that_fails_is_a_failed_call_without_its_credentials(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    provider: Provider,
    answer: tuple[int, bytes],
) -> None:
    provider.answer = answer
    url = start_proxy(web_search={"provider": "tavily", "url": provider.url, "token": "secret"})
    upstream.reply(PROGRAM, "I could not look it up.")
    body = {"model": "m", "input": "What does tea cost?", "tools": [{"type": "web_search"}]}
    status, _, response = send(f"{url}/v1/responses", body)
    search, message = response["output"]
    assert (status, search["status"], message["type"]) == (200, "failed", "message")
    assert "The web search failed" in prompt(upstream)
    assert "secret" not in prompt(upstream) + json.dumps(response)


def test_a_client_that_disconnects_ends_its_search(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider
) -> None:
    provider.is_silent = True
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply(PROGRAM)
    body = {"model": "m", "messages": QUESTION, "tools": [{"type": "web_search"}]}
    with connect(url, post_bytes("/v1/chat/completions", body)):
        wait_until(lambda: provider.searches)
    assert provider.was_left.wait(10)


def test_a_search_has_one_deadline_however_often_the_provider_sends_something(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider
) -> None:
    provider.is_silent = True
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url, "timeout": 0.3})
    upstream.reply(PROGRAM, "I do not know.")
    body = {"model": "m", "messages": QUESTION, "tools": [{"type": "web_search"}]}
    send(f"{url}/v1/chat/completions", body)
    assert "The web search took longer than 0.3 s." in prompt(upstream)
    assert provider.was_left.wait(10)


def test_max_uses_limits_the_searches_of_an_answer(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider
) -> None:
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply("```tool_code\nfor q in 'abc':\n    web_search(query=q)\n```", "No.")
    tools: Any = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        client.messages.create(model="m", max_tokens=99, messages=QUESTION, tools=tools)  # type: ignore[arg-type]
    assert len({query for query, _ in provider.searches}) == len(provider.searches) == 2


def test_a_domain_that_no_page_can_have_allows_none(
    start_proxy: StartProxy, upstream: ScriptedUpstream, provider: Provider
) -> None:
    url = start_proxy(web_search={"provider": "searxng", "url": provider.url})
    upstream.reply("```tool_code\nprint(web_search(query='tea'))\n```", "Nothing.")
    search = {"type": "web_search", "filters": {"allowed_domains": ["["]}}
    body = {"model": "m", "input": "What does tea cost?", "tools": [search]}
    status, _, response = send(f"{url}/v1/responses", body)
    assert (status, response["output"][0]["status"]) == (200, "completed")
    assert TEA not in prompt(upstream)


@pytest.mark.parametrize("further", [[], [{"type": "function", "name": "f", "parameters": {}}]])
def test_without_a_provider_the_model_knows_that_it_has_no_web(
    proxy: str, upstream: ScriptedUpstream, further: list[Json]
) -> None:
    upstream.reply("I cannot look that up.")
    tools = [{"type": "web_search"}, *further]
    body = {
        "model": "m",
        "instructions": "Be kind.",
        "input": "What does tea cost?",
        "tools": tools,
    }
    status, headers, _ = send(f"{proxy}/v1/responses", body)
    assert (status, headers["x-emulator-dropped-tools"]) == (200, "web_search")
    assert "no web access" in prompt(upstream)
    assert "Be kind." in prompt(upstream)


def test_a_search_that_is_forced_without_a_provider_is_refused(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    tools: Any = [{"type": "web_search"}]
    with pytest.raises(openai.BadRequestError, match=r"\[web_search\]") as caught:
        client.responses.create(model="m", input="Tea?", tools=tools, tool_choice="required")
    assert caught.value.param == "tool_choice"
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"provider": "bing"}, "expected|must be one of searxng, brave, tavily"),
        ({"provider": "searxng"}, "url must start with"),
        ({"provider": "brave"}, "brave needs a token"),
    ],
)
def test_an_incomplete_table_is_an_error_at_the_start(table: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(web_search=table)
