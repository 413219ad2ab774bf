"""MCP servers of both kinds, and what they do wrong. The servers are real processes of the official SDK."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import openai
import pytest

from emulator.core.client_keys import KeyedClient
from emulator.core.errors import BadRequest, FailedDependency
from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.hosted_tool import HostedResult, HostedTools
from emulator.hosted.mcp_servers import MCPServers
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support import mcp_faults
from tests.support.mcp_faults import PNG, PRICE
from tests.support.processes import wait_until
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

NAMED: dict[str, Any] = {"type": "mcp", "server_label": "shop"}


def chat(*items: dict[str, Any]) -> ChatCompletionRequest:
    question = {"role": "user", "content": "What does tea cost?"}
    body = {"model": "m", "messages": [question], "tools": list(items)}
    return ChatCompletionRequest.model_validate(body)


@pytest.fixture
def servers() -> Iterator[Callable[..., MCPServers]]:
    with ExitStack() as opened:

        def open_servers(**settings: Any) -> MCPServers:
            made = MCPServers(Settings(**settings))
            return opened.enter_context(closing(made))

        yield open_servers


@pytest.fixture(scope="module", params=["stdio", "http"])
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MCPServers, Path]]:
    """A misbehaving server of each kind, named by the operator, and the file that tells what it was asked."""
    folder = tmp_path_factory.mktemp("shop")
    with ExitStack() as opened:
        if request.param == "stdio":
            row = mcp_faults.stdio(folder / "log")
        else:
            row = {"url": opened.enter_context(mcp_faults.http(folder))}
        row["timeout"] = 20
        made = MCPServers(Settings(mcp={"shop": row}))
        yield opened.enter_context(closing(made)), folder / "log"


def called(hosted: HostedTools, name: str, **arguments: Any) -> HostedResult:
    tool = next(tool for tool in hosted.tools if tool.name == name)
    return tool.start(arguments).result(60)


def test_the_tools_are_listed_with_their_hints_and_schemas(shop: tuple[MCPServers, Path]) -> None:
    """A tool whose schema cannot be used is left out; the others work, on whichever page they are."""
    hosted = shop[0].resolve(chat(NAMED), "")
    [listing] = hosted.listings
    names = [tool["name"] for tool in listing.tools]
    assert "price" in names
    assert "broken" not in names
    price = next(tool for tool in hosted.tools if tool.name == "price")
    function = price.definition["function"]
    assert function["annotations"] == {"readOnlyHint": True}
    assert function["output_schema"]["required"] == ["price"]
    assert not price.needs_approval
    stock = next(tool for tool in hosted.tools if tool.name == "shop.stock")
    assert stock.function_name == "shop_stock"


def test_a_structured_result_is_json_in_the_servers_own_notation(
    shop: tuple[MCPServers, Path],
) -> None:
    result = called(shop[0].resolve(chat(NAMED), ""), "price", article="tea")
    assert result == HostedResult(PRICE)


def test_images_are_parts_and_links_are_text(shop: tuple[MCPServers, Path]) -> None:
    result = called(shop[0].resolve(chat(NAMED), ""), "picture")
    assert result.content == [
        {"type": "text", "text": "[plan <file:///plan.txt>]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("fail", "no such article"),
        ("lie", """does not match the outputSchema: price: "a lot" is not of type "number\""""),
        ("omit", "does not match the outputSchema: there is no structured content"),
        ("regex", "does not match the outputSchema: text: "),
        ("big", "larger than 4"),
    ],
)
def test_a_failed_call_is_an_error_and_the_next_one_works(
    shop: tuple[MCPServers, Path], tool: str, why: str
) -> None:
    hosted = shop[0].resolve(chat(NAMED), "")
    failed = called(hosted, tool)
    assert failed.is_error
    assert why in str(failed.content)
    assert len(str(failed.content)) < 1000
    assert called(hosted, "price", article="tea").content == PRICE


def test_cancelling_a_call_cancels_it_at_the_server(shop: tuple[MCPServers, Path]) -> None:
    hosted = shop[0].resolve(chat(NAMED), "")
    slow = next(tool for tool in hosted.tools if tool.name == "slow")
    future = slow.start({"seconds": 60})
    wait_until(lambda: "slow {" in shop[1].read_text())
    assert future.cancel()
    wait_until(lambda: "slow was cancelled" in shop[1].read_text())


def test_a_list_is_used_again_until_the_server_reports_a_change(
    shop: tuple[MCPServers, Path],
) -> None:
    servers, log = shop
    servers.resolve(chat(NAMED), "")
    before = log.read_text().count("list")
    hosted = servers.resolve(chat(NAMED), "")
    assert log.read_text().count("list") == before
    assert "late" not in [tool.name for tool in hosted.tools]
    called(hosted, "change")
    wait_until(lambda: "late" in [tool.name for tool in servers.resolve(chat(NAMED), "").tools])


@pytest.mark.parametrize("how", ["refuse", "hang", "end"])
def test_a_server_that_sends_no_changes_keeps_its_tools(
    servers: Callable[..., MCPServers], tmp_path: Path, how: str
) -> None:
    """A server that refused the stream of changes, or did not answer, lost all its tools. A stream that had
    ended was never opened again."""
    log = tmp_path / "log"
    row = mcp_faults.stdio(log)
    room = servers(mcp={"shop": {**row, "env": {**row["env"], "LISTEN": how}}})
    hosted = room.resolve(chat(NAMED), "")
    assert called(hosted, "price", article="tea").content == mcp_faults.PRICE
    room.resolve(chat(NAMED), "")
    assert log.read_text().splitlines().count("list") == 1
    if how == "end":

        def has_changed() -> bool:
            called(hosted, "change")
            return "late" in [tool.name for tool in room.resolve(chat(NAMED), "").tools]

        wait_until(has_changed)


def test_a_server_listed_in_the_history_is_not_listed_again(shop: tuple[MCPServers, Path]) -> None:
    servers, log = shop
    before = log.read_text() if log.exists() else ""
    known = {"shop": [{"name": "price", "input_schema": {"type": "object"}}, {"name": 3}]}
    request = chat(NAMED).model_copy(update={"listed_servers": known})
    hosted = servers.resolve(request, KeyedClient("someone else"))
    assert [tool.name for tool in hosted.tools] == ["price"]
    assert hosted.listings == ()
    assert (log.read_text() if log.exists() else "") == before


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"allowed_tools": {"read_only": True}}, {"price": False}),
        ({"require_approval": {"never": {"read_only": True}}}, {"price": False, "order": True}),
    ],
)
def test_a_clients_list_does_not_decide_what_is_read_only(
    servers: Callable[..., MCPServers], tmp_path: Path, rule: Any, expected: dict[str, bool]
) -> None:
    """The operator's rule is about the server's own hints: a client could claim others."""
    shop = servers(mcp={"shop": {**mcp_faults.stdio(tmp_path / "log"), **rule}})
    claimed = {"name": "order", "input_schema": {}, "annotations": {"readOnlyHint": True}}
    request = chat(NAMED).model_copy(update={"listed_servers": {"shop": [claimed]}})
    hosted = shop.resolve(request, "")
    asks = {tool.name: tool.needs_approval for tool in hosted.tools}
    assert {name: asks[name] for name in ("price", "order") if name in asks} == expected


def test_tools_that_a_request_excludes_are_not_offered(
    servers: Callable[..., MCPServers], tmp_path: Path
) -> None:
    shop = servers(mcp={"shop": mcp_faults.stdio(tmp_path / "log")})
    everything = [tool.name for tool in shop.resolve(chat(NAMED), "").tools]
    item = {**NAMED, "excluded_tools": ["price"]}
    rest = [tool.name for tool in shop.resolve(chat(item), "").tools]
    assert {*everything} - {*rest} == {"price"}


def test_a_server_that_dies_is_started_again(
    servers: Callable[..., MCPServers], tmp_path: Path
) -> None:
    hosted = servers(mcp={"shop": mcp_faults.stdio(tmp_path / "log")}).resolve(chat(NAMED), "")
    died = called(hosted, "die")
    assert died.is_error
    assert "the connection was lost" in str(died.content)
    assert called(hosted, "price", article="tea").content == PRICE
    assert (tmp_path / "log").read_text().count("die") == 1


def test_clients_share_no_session(servers: Callable[..., MCPServers], tmp_path: Path) -> None:
    """Each client has a process of its own: one that dies is not the other's."""
    shop = servers(mcp={"shop": mcp_faults.stdio(tmp_path / "log")})
    one, other = (shop.resolve(chat(NAMED), KeyedClient(client)) for client in ("one", "other"))
    slow = next(tool for tool in other.tools if tool.name == "slow").start({"seconds": 1})
    called(one, "die")
    assert slow.result(60) == HostedResult("done")


def test_a_server_that_is_slow_is_an_error(
    servers: Callable[..., MCPServers], tmp_path: Path
) -> None:
    row = mcp_faults.stdio(tmp_path / "log") | {"timeout": 0.5}
    hosted = servers(mcp={"shop": row}).resolve(chat(NAMED), "")
    result = called(hosted, "slow", seconds=60)
    message = "MCP server 'shop' failed: it did not answer within 0.5 s."
    assert result == HostedResult(message, is_error=True, outcome="unknown")
    wait_until(lambda: "slow was cancelled" in (tmp_path / "log").read_text())


DOWN: list[tuple[dict[str, Any], str]] = [
    ({"url": "http://127.0.0.1:1/mcp"}, "All connection attempts failed"),
    (
        {"command": "nonesuch"},
        "its command 'nonesuch' cannot be started: No such file or directory",
    ),
    ({"command": "sh", "args": ["-c", "echo no database >&2"]}, "no database"),
]


@pytest.mark.parametrize(("row", "why"), DOWN)
def test_a_named_server_that_is_down_is_a_424_and_a_server_of_the_settings_is_omitted(
    servers: Callable[..., MCPServers], row: dict[str, Any], why: str
) -> None:
    named = servers(mcp={"shop": row})
    with pytest.raises(FailedDependency) as refused:
        named.resolve(chat(NAMED), "")
    assert (refused.value.status, refused.value.param) == (424, "tools[0]")
    assert refused.value.message.startswith("Error retrieving tool list from MCP server 'shop': ")
    assert why in refused.value.message
    assert servers(mcp={"shop": {**row, "always": True}}).resolve(chat(), "") == HostedTools()


def test_credentials_are_sent_and_a_refusal_names_the_setting(
    servers: Callable[..., MCPServers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret")
    with mcp_faults.http(tmp_path, token="s3cret") as url:
        host = url.split("/")[2]
        settings = {"mcp": {"shop": {"url": url}, "ours": {"url": url, "token": "${SHOP_TOKEN}"}}}
        shop = servers(**settings, mcp_hosts=(host,))
        own = {**NAMED, "server_label": "own", "server_url": url}
        for item, setting in (
            (NAMED, "set token in [mcp.shop]"),
            (own, "set tools[0].authorization"),
        ):
            with pytest.raises(FailedDependency) as refused:
                shop.resolve(chat(item), "")
            assert "HTTP 401" in refused.value.message
            assert setting in refused.value.message
        for item in ({**NAMED, "server_label": "ours"}, {**own, "authorization": "s3cret"}):
            assert called(shop.resolve(chat(item), ""), "price", article="tea").content == PRICE
        own["headers"] = {"Authorization": "Bearer s3cret"}
        assert called(shop.resolve(chat(own), ""), "price", article="tea").content == PRICE


URL: dict[str, Any] = {**NAMED, "server_url": "http://mcp.example.com/mcp"}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (URL | {"server_url": "http://127.0.0.1:9/mcp"}, "server_url", "mcp_hosts does not allow"),
    (URL | {"server_url": "http://mcp.example.com:81/"}, "server_url", "mcp_hosts"),
    (URL | {"server_url": "http://mcp.example.com.evil/"}, "server_url", "mcp_hosts"),
    (URL | {"server_url": "http://mcp.example.com@evil/"}, "server_url", "no user or password"),
    (URL | {"server_url": "file:///etc/passwd"}, "server_url", "must start with https://"),
    (URL | {"server_url": "http://[::1"}, "server_url", "must start with https://"),
    (URL | {"server_url": 3}, "server_url", "valid string"),
    (URL | {"headers": {"Host": "evil"}}, "headers", "may not contain 'Host'"),
    (
        URL | {"headers": {"X-Emulator-Client": "b"}},
        "headers",
        "may not contain 'X-Emulator-Client'",
    ),
    (
        URL | {"headers": {"x_emulator_client": "b"}},
        "headers",
        "may not contain 'x_emulator_client'",
    ),
    (URL | {"headers": {"A": "b\r\nC: d"}}, "headers", "no header value"),
    (URL | {"headers": {"A": "ü"}}, "headers", "no header value"),
    (URL | {"authorization": "a\nb"}, "authorization", "no header value"),
    (URL | {"authorization": "a "}, "authorization", "no header value"),
    (NAMED | {"allowed_tools": "price"}, "allowed_tools", "should be a valid list"),
    (
        NAMED | {"allowed_tools": {"tool_name": ["price"]}},
        "allowed_tools.tool_name",
        "not permitted",
    ),
    (URL | {"server_label": "no\nlabel"}, "server_label", "pattern"),
    (URL | {"require_approval": "sometimes"}, "require_approval", "'always' or 'never'"),
    (URL | {"require_approval": {"ever": {}}}, "require_approval.ever", "not permitted"),
    (URL | {"connector_id": "connector_gmail"}, "connector_id", "only at OpenAI"),
    (NAMED | {"server_label": "shops"}, "server_label", "is no server here: expected one of shop"),
    (NAMED | {"server_label": "private"}, "server_label", "is no server here"),
    (NAMED | {"authorization": "x"}, "authorization", "needs server_url"),
]


@pytest.mark.parametrize(("item", "place", "why"), REFUSED)
def test_an_item_that_is_not_allowed_is_a_400_with_its_place(
    servers: Callable[..., MCPServers], item: dict[str, Any], place: str, why: str
) -> None:
    row = {"command": "true"}
    rows = {"shop": row, "private": {**row, "keys": ["alice@*"]}}
    made = servers(mcp=rows, mcp_hosts=("mcp.example.com",))
    with pytest.raises(BadRequest) as refused:
        made.resolve(chat({"type": "function", "function": {"name": "f"}}, item), "")
    assert refused.value.param == f"tools[1].{place}"
    assert why in refused.value.message


def test_two_servers_with_one_label_are_a_400(servers: Callable[..., MCPServers]) -> None:
    with pytest.raises(BadRequest) as refused:
        servers(mcp={"shop": {"command": "true"}}).resolve(chat(NAMED, NAMED), "")
    assert refused.value.param == "tools[1].server_label"


READS = {"read_only": True}
RULES: list[tuple[dict[str, Any], dict[str, Any], list[str], list[str]]] = [
    # the operator's rules, the request's, the tools that are offered, those that wait for approval
    ({}, {}, ["order", "price"], []),
    ({"allowed_tools": ["price"]}, {}, ["price"], []),
    ({"allowed_tools": ["price"]}, {"allowed_tools": ["order", "price"]}, ["price"], []),
    ({}, {"allowed_tools": READS}, ["price"], []),
    ({}, {"allowed_tools": {"tool_names": ["order"]}}, ["order"], []),
    ({}, {"excluded_tools": ["order"]}, ["price"], []),
    (
        {"require_approval": "always"},
        {"require_approval": "never"},
        ["order", "price"],
        ["order", "price"],
    ),
    ({}, {"require_approval": "always"}, ["order", "price"], ["order", "price"]),
    (
        {"require_approval": {"always": {"tool_names": ["price"]}}},
        {},
        ["order", "price"],
        ["price"],
    ),
]


@pytest.mark.parametrize(("operators", "requests", "offered", "asked"), RULES)
def test_the_rules_of_the_operator_and_of_the_request_both_apply(
    servers: Callable[..., MCPServers],
    operators: dict[str, Any],
    requests: dict[str, Any],
    offered: list[str],
    asked: list[str],
) -> None:
    known = [
        {"name": "order", "input_schema": {}},
        {"name": "price", "input_schema": {}, "annotations": {"readOnlyHint": True}},
    ]
    request = chat(NAMED | requests).model_copy(update={"listed_servers": {"shop": known}})
    hosted = servers(mcp={"shop": {"command": "true", **operators}}).resolve(request, "")
    assert [tool.name for tool in hosted.tools] == offered
    assert [tool.name for tool in hosted.tools if tool.needs_approval] == asked


def test_a_url_in_a_request_needs_approval_by_default(
    servers: Callable[..., MCPServers],
) -> None:
    """As at OpenAI."""
    listed = {"shop": [{"name": "order", "input_schema": {}}]}
    made = servers(mcp_hosts=("mcp.example.com",))
    asked = [
        made.resolve(chat(item).model_copy(update={"listed_servers": listed}), "")
        .tools[0]
        .needs_approval
        for item in (URL, URL | {"require_approval": "never"})
    ]
    assert asked == [True, False]


def test_a_program_calls_a_server_that_the_operator_names(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Two dependent calls are one request of the client."""
    upstream.reply(
        '```tool_code\nprint(price(article="tea")["price"] * 2)\nprint(order(text="tea"))\n```'
    )
    upstream.reply("Tea costs 1.10.")
    proxy = start_proxy(mcp={"shop": {**mcp_faults.stdio(tmp_path / "log"), "always": True}})
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="any")
    asked: Any = [{"role": "user", "content": "Order tea. What does two cost?"}]
    answer = client.chat.completions.create(model="m", messages=asked)
    assert "Tea costs 1.10." in str(answer.choices[0].message.content)
    calls = [line for line in (tmp_path / "log").read_text().splitlines() if line != "list"]
    assert calls == ["price {'article': 'tea'}", "order {'text': 'tea'}"]
    assert "2.2" in str(upstream.requests[1]["messages"])
    prompt = str(upstream.requests[0]["messages"])
    assert "def price(article: str) -> dict" in prompt  # from its outputSchema


GZIP = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
BAD_REPLIES: list[tuple[str, list[tuple[str, str]], bytes, str]] = [
    ("503 Service Unavailable", [], b"<html>", "an error response (HTTP 503)"),
    ("200 OK", GZIP, gzip.compress(b"[]", mtime=0), "its reply is compressed (gzip)"),
]


@pytest.mark.parametrize(("status", "headers", "body", "why"), BAD_REPLIES)
def test_a_bad_reply_is_named(
    servers: Callable[..., MCPServers],
    status: str,
    headers: list[tuple[str, str]],
    body: bytes,
    why: str,
) -> None:
    """Compressed replies have no limit: a few bytes may become any number."""

    def bad(environ: Any, start_response: Any) -> list[bytes]:
        start_response(status, headers)
        return [body]

    with serve(bad) as url, pytest.raises(FailedDependency) as refused:
        servers(mcp={"shop": {"url": url}}).resolve(chat(NAMED), "")
    assert why in refused.value.message


def test_a_list_that_is_not_valid_is_an_error_with_its_place(
    servers: Callable[..., MCPServers],
) -> None:
    """Servers of earlier protocols answer `server/discover` with an error."""
    info = {"name": "old", "version": "1"}
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info},
        "tools/list": {"tools": [{"name": "price"}]},
    }

    def old(environ: Any, start_response: Any) -> list[bytes]:
        asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        if "id" not in asked:
            start_response("202 Accepted", [])
            return []
        found = results.get(asked["method"])
        error = {"code": -32601, "message": "Method not found"}
        reply = {"result": found} if found else {"error": error}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}).encode()]

    with serve(old) as url, pytest.raises(FailedDependency) as refused:
        servers(mcp={"shop": {"url": url}}).resolve(chat(NAMED), "")
    expected = "its reply does not follow the protocol: tools.0.inputSchema: Field required."
    assert refused.value.message.endswith(expected)


def test_a_redirect_to_another_host_is_not_followed(servers: Callable[..., MCPServers]) -> None:
    asked: list[str] = []

    def other(environ: Any, start_response: Any) -> list[bytes]:
        asked.append(environ["PATH_INFO"])
        start_response("404 Not Found", [])
        return []

    with serve(other) as elsewhere:

        def redirecting(environ: Any, start_response: Any) -> list[bytes]:
            path = f"{environ['PATH_INFO']}/?{environ['QUERY_STRING']}"
            start_response("307 Temporary Redirect", [("Location", elsewhere + path)])
            return []

        with serve(redirecting) as url, pytest.raises(FailedDependency) as refused:
            item = URL | {"server_url": f"{url}/k3y-in-a-path/mcp?key=k3y-in-a-query"}
            servers(mcp_hosts=(url.removeprefix("http://"),)).resolve(chat(item), "")
    assert f"Redirect to {elsewhere}" in refused.value.message
    assert "k3y" not in refused.value.message
    assert asked == []
