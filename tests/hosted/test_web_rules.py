"""The rules of a request for web search and web fetch: domains, sources of URLs, uses; and what Messages say
of a call that a rule or a server refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.support import mcp_library
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

Json = dict[str, Any]
TEA = "https://tea.example.net/price"
SERVE: Json = {
    "web_search": mcp_library.SEARCH,
    "web_fetch": {"tool": "library.read", "url": "address"},
}
SEARCH: Json = {"type": "web_search_20250305", "name": "web_search"}
FETCH: Json = {"type": "web_fetch_20260318", "name": "web_fetch"}
LOOK_UP: Json = {"name": "look_up", "input_schema": {"type": "object"}}
LONG = f"{TEA}?{'x' * 2048}"


@pytest.fixture
def ask(start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path) -> Callable[..., Any]:
    """Sends a question to a proxy with the library, whose model runs ``code``; returns status and answer."""

    def ask(
        tools: list[Json], code: str, user: str = TEA, *, between: Any = (), **settings: Any
    ) -> tuple[int, Json]:
        settings = {"mcp": {"library": mcp_library.stdio(tmp_path / "log")}, **settings}
        url = start_proxy(**{"serve": SERVE, **settings})
        upstream.reply(f"```tool_code\n{code}\n```", "Done.")
        messages = [{"role": "user", "content": user}, *between]
        body = {"model": "m", "max_tokens": 99, "messages": messages, "tools": tools}
        status, _, answer = send(f"{url}/v1/messages", body)
        return status, answer

    return ask


def outcomes(answer: Json) -> list[str]:
    """Of each call: the code of its error, or ""."""
    results = [one["content"] for one in answer["content"] if one["type"].endswith("_tool_result")]
    return [one.get("error_code", "") if isinstance(one, dict) else "" for one in results]


def fetched(url: str = TEA) -> str:
    return f"web_fetch(url={url!r})"


ERRORS: dict[str, tuple[list[Json], str, list[str]]] = {
    "searches beyond max_uses": (
        [{**SEARCH, "max_uses": 1}],
        "web_search(query='tea')\nweb_search(query='coffee')",
        ["", "max_uses_exceeded"],
    ),
    "fetches beyond max_uses": (
        [{**FETCH, "max_uses": 1}],
        f"{fetched()}\n{fetched(TEA + '/')}",
        ["", "max_uses_exceeded"],
    ),
    "a blocked domain": (
        [{**FETCH, "blocked_domains": ["example.net"]}],
        fetched(),
        ["url_not_allowed"],
    ),
    "a domain that is not allowed": (
        [{**FETCH, "allowed_domains": ["example.org"]}],
        fetched(),
        ["url_not_allowed"],
    ),
    "a URL of the model": ([FETCH], fetched(f"{TEA}?said=42"), ["url_not_in_prior_context"]),
    "a long URL": ([FETCH], fetched(LONG), ["url_too_long"]),
    "a long query": ([SEARCH], f"web_search(query={'x' * 1001!r})", ["query_too_long"]),
    "no such page": ([FETCH], fetched("https://nowhere.example/"), ["url_not_accessible"]),
}


@pytest.mark.parametrize(("tools", "code", "expected"), ERRORS.values(), ids=ERRORS)
def test_messages_say_why_a_search_or_a_fetch_failed_and_count_those_that_did_not(
    ask: Callable[..., Any], tools: list[Json], code: str, expected: list[str]
) -> None:
    """Each failed search was unavailable, each failed fetch not accessible, and all were counted."""
    status, answer = ask(tools, code, f"{LONG} {TEA} https://nowhere.example/")
    assert (status, outcomes(answer)) == (200, expected), answer
    ran = sum(answer["usage"].get("server_tool_use", {}).values())
    assert ran == expected.count("")


def rate_limited(environ: Any, start_response: Any) -> list[bytes]:
    """An MCP server of an earlier protocol that lists one tool, whose calls are too many."""
    asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0)) or "{}")
    info = {"name": "busy", "version": "1"}
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    results: Json = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info},
        "tools/list": {"tools": [{"name": "find", "inputSchema": schema}]},
    }
    if "id" not in asked:
        start_response("202 Accepted", [])
        return []
    if asked["method"] == "tools/call":
        start_response("429 Too Many Requests", [])
        return []
    found = results.get(asked["method"])
    reply = {"result": found} if found else {"error": {"code": -32601, "message": "no"}}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}).encode()]


def provider(environ: Any, start_response: Any) -> list[bytes]:
    start_response("429 Too Many Requests", [])
    return [b"{}"]


def test_a_rate_limit_is_known_by_its_status(ask: Callable[..., Any]) -> None:
    code = "web_search(query='tea')"
    with serve(rate_limited) as url:
        row = {"mcp": {"busy": {"url": url}}, "serve": {"web_search": "busy.find"}}
        assert outcomes(ask([SEARCH], code, **row)[1]) == ["too_many_requests"]
    with serve(provider) as url:
        table = {"provider": "searxng", "url": f"{url}/search"}
        assert outcomes(ask([SEARCH], code, serve={}, web_search=table)[1]) == ["too_many_requests"]


DOMAINS: dict[str, tuple[str, str, bool]] = {
    "a domain": ("example.net", TEA, True),
    "a subdomain": ("coffee.example.net", TEA, False),
    "a path": ("tea.example.net/price", TEA, True),
    "below a path": ("example.net/blog", "https://tea.example.net/blog/1", True),
    "beside a path": ("tea.example.net/blog", TEA, False),
    "a longer name": ("tea.example.net/blog", "https://tea.example.net/blogs", False),
    "out of a path": ("example.net/blog", "https://tea.example.net/blog/%2e%2e/price", False),
    "a wildcard": ("example.net/*/1", "https://tea.example.net/blog/1", True),
    "beside a wildcard": ("example.net/*/1", "https://tea.example.net/blog/2", False),
    "a dot at the end": ("example.net", "https://tea.example.net./price", True),
}


@pytest.mark.parametrize(("domain", "url", "is_inside"), DOMAINS.values(), ids=DOMAINS)
@pytest.mark.parametrize("kind", ["allowed_domains", "blocked_domains"])
def test_a_domain_may_have_a_path(
    ask: Callable[..., Any], kind: str, domain: str, url: str, is_inside: bool
) -> None:
    """``tea.example.net/blog`` allowed all of tea.example.net."""
    _, answer = ask([{**FETCH, kind: [domain]}], fetched(url), url)
    is_refused = outcomes(answer) == ["url_not_allowed"]
    assert is_refused == (is_inside == (kind == "blocked_domains"))


REFUSED: dict[str, tuple[Json, str]] = {
    "a wildcard for a subdomain": ({"allowed_domains": ["*.example.net"]}, ".allowed_domains.0"),
    "a wildcard in a name": ({"blocked_domains": ["a.b", "ex*.com"]}, ".blocked_domains.1"),
    "two wildcards": ({"allowed_domains": ["example.net/*/news/*"]}, ".allowed_domains.0"),
    "both lists": ({"allowed_domains": ["a.b"], "blocked_domains": ["c.d"]}, ""),
}
SOURCES: dict[str, tuple[Json, str]] = {
    "an unknown source": ({"elsewhere": {"type": "all"}}, ".elsewhere"),
    "an unknown rule": ({"user_input": {"type": "only"}}, ".user_input.type"),
    "no list": ({"server_tool_results": {"type": "except"}}, ".server"),
    "an unknown tool": (
        {
            "client_tool_results": {
                "type": "only",
                "tools": [{"type": "tool_reference", "name": "x"}],
            }
        },
        ".client_tool_results.tools.0.name",
    ),
}
CASES = [(tool | fields, place) for fields, place in REFUSED.values() for tool in (SEARCH, FETCH)]
CASES += [
    ({**FETCH, "url_sources": one}, f".url_sources{place}") for one, place in SOURCES.values()
]


@pytest.mark.parametrize(("tool", "place"), CASES)
def test_a_rule_that_cannot_be_kept_is_a_400_with_its_place(
    ask: Callable[..., Any], tool: Json, place: str
) -> None:
    status, answer = ask([tool], "pass")
    assert (status, f"tools.0{place}" in answer["error"]["message"]) == (400, True), answer


def result_of(name: str, kind: str, content: Any) -> list[Json]:
    """The blocks of a call in an earlier answer and of its result, which names the page."""
    use: Json = {"id": "srvtoolu_01", "name": name, "input": {}}
    result: Json = {"type": kind, "tool_use_id": "srvtoolu_01", "content": content}
    if kind == "tool_result":
        blocks = [{"type": "tool_use", **use}], [result]
    else:
        blocks = (
            [{"type": "server_tool_use", **use}, result],
            [{"type": "text", "text": "Read it."}],
        )
    return [{"role": "assistant", "content": blocks[0]}, {"role": "user", "content": blocks[1]}]


PAGE: Json = {
    "type": "web_fetch_result",
    "url": "https://links.example/",
    "content": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": f"See {TEA}."},
    },
}
BETWEEN: dict[str, list[Json]] = {
    "user_input": [],
    "client_tool_results": result_of("look_up", "tool_result", TEA),
    "server_tool_results": result_of("web_fetch", "web_fetch_tool_result", PAGE),
}
ONLY: Json = {
    "client_tool_results": {
        "type": "only",
        "tools": [{"type": "tool_reference", "name": "look_up"}],
    },
    "server_tool_results": {
        "type": "except",
        "tools": [{"type": "tool_reference", "name": "web_search"}],
    },
}
NONE: Json = {"type": "none"}


@pytest.mark.parametrize("source", BETWEEN)
def test_the_request_says_where_a_url_to_fetch_may_come_from(
    ask: Callable[..., Any], source: str
) -> None:
    """``url_sources`` was ignored."""
    user = TEA if source == "user_input" else "Tea?"
    others = {one: NONE for one in BETWEEN if one != source}
    for sources, expected in (
        ({source: NONE}, "url_not_in_prior_context"),
        (others, ""),
        ({source: ONLY.get(source, {"type": "all"})}, ""),
    ):
        tools = [{**FETCH, "url_sources": sources}, SEARCH, LOOK_UP]
        _, answer = ask(tools, f"print({fetched()})", user, between=BETWEEN[source])
        assert outcomes(answer)[-1:] == [expected], (sources, answer)


def test_what_a_search_finds_in_the_same_answer_is_a_servers_result(
    ask: Callable[..., Any],
) -> None:
    code = "for page in web_search(query='tea'):\n    print(web_fetch(url=page['url']))"
    for rule, expected in ((NONE, "url_not_in_prior_context"), ({"type": "all"}, "")):
        tools = [{**FETCH, "url_sources": {"server_tool_results": rule}}, SEARCH]
        assert outcomes(ask(tools, code, "Tea?")[1]) == ["", expected]
