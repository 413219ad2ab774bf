"""MCP servers over each API: what clients get, and what nobody gets to see. All parts are real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from emulator.core import logs
from tests.conftest import StartProxy
from tests.support import mcp_faults
from tests.support.inspected import stored
from tests.support.processes import wait_until
from tests.support.raw_http import connect, fetch, post_bytes, send
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
TOKEN = "tok-3n-of-a-client"
PRICE = '```tool_code\nprint(price(article="tea")["price"])\n```'
QUESTION = "What does tea cost?"
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
EACH_API = pytest.mark.parametrize("api", PATHS)


def body(api: str, item: Json) -> Json:
    """A request that names a server, in the words of each API."""
    said: Json = {"role": "user", "content": QUESTION}
    if api == "responses":
        return {"model": "m", "input": QUESTION, "tools": [item]}
    if api == "chat":
        return {"model": "m", "messages": [said], "tools": [item]}
    server: Json = {"type": "url", "name": item["server_label"], "url": item.get("server_url")}
    if "authorization" in item:
        server["authorization_token"] = item["authorization"]
    toolset = {"type": "mcp_toolset", "mcp_server_name": item["server_label"]}
    servers = {"mcp_servers": [server]} if "server_url" in item else {}
    return {"model": "m", "max_tokens": 99, "messages": [said], "tools": [toolset], **servers}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that requires `TOKEN`."""
    with mcp_faults.http(tmp_path_factory.mktemp("guarded"), TOKEN) as url:
        yield url


def named(url: str, **fields: Any) -> Json:
    item = {"type": "mcp", "server_label": "shop", "server_url": url}
    return {**item, "require_approval": "never", **fields}


@EACH_API
@pytest.mark.parametrize("stream", [False, True])
def test_a_server_named_by_a_request_is_used(
    start_proxy: StartProxy, upstream: ScriptedUpstream, guarded: str, api: str, stream: bool
) -> None:
    upstream.reply(PRICE, "It costs 1.10.")
    proxy = start_proxy(mcp_hosts=(guarded.split("/")[2],))
    request = body(api, named(guarded, authorization=TOKEN)) | {"stream": stream}
    status, _, raw = fetch(proxy + PATHS[api], request)
    assert status == 200, raw
    assert b"It costs 1.10." in raw
    assert "1.1" in str(upstream.requests[1]["messages"][-1])


@EACH_API
def test_credentials_are_never_stored_logged_traced_or_shown(
    start_app: Any,
    upstream: ScriptedUpstream,
    guarded: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    api: str,
) -> None:
    """Neither those that work nor those that are refused; not in a URL either."""
    logs.configure("debug")
    upstream.reply(PRICE, "It costs 1.10.")
    proxy, services = start_app(
        mcp_hosts=(guarded.split("/")[2],),
        database=str(tmp_path / "store.sqlite"),
        log_bodies=True,
        inspector="open",
    )
    secret = "k3y-in-the-path"
    for item in (
        named(guarded, authorization=TOKEN),
        named(f"{guarded}?key={secret}", authorization=secret),
        named(guarded, headers={"X-Key": secret, "Authorization": f"Basic {secret}"}),
    ):
        _, headers, answer = send(proxy + PATHS[api], body(api, item))
        shown = json.dumps([answer, dict(headers)])
        if answer.get("object") == "response":
            _, _, again = fetch(f"{proxy}/v1/responses/{answer['id']}")
            shown += again.decode()
            tool = answer["tools"][0]
            assert tool["server_url"] == f"http://{guarded.split('/')[2]}/<redacted>"
        traces = stored(services.requests.reader)
        shown += str([vars(trace) for trace in traces])
        for view in ("pipeline", "program", "repairs", "timing", "stream", "copy"):
            shown += fetch(f"{proxy}/inspector/requests/{traces[0].id}/{view}")[2].decode()
        shown += capsys.readouterr().err
        assert QUESTION in shown
        assert TOKEN not in shown
        assert secret not in shown
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not any(word.encode() in data for word in (TOKEN, secret) for data in files)


DOWN = "Error retrieving tool list from MCP server 'shop': All connection attempts failed."


@EACH_API
def test_a_named_server_that_is_down_is_an_error_in_the_apis_shape(
    start_proxy: StartProxy, api: str
) -> None:
    proxy = start_proxy(mcp={"shop": {"url": "http://127.0.0.1:1/mcp"}})
    item = {"type": "mcp", "server_label": "shop"}
    status, _, answer = send(proxy + PATHS[api], body(api, item))
    assert status == (400 if api == "messages" else 424)
    assert answer["error"]["message"].endswith(DOWN)
    if api != "messages":
        details = {"type": "external_connector_error", "param": "tools[0]", "code": "http_error"}
        assert answer["error"] == {"message": DOWN, **details}


@pytest.mark.parametrize(
    ("api", "place"),
    [
        ("chat", "tools[0].server_url"),
        ("responses", "tools[0].server_url"),
        ("messages", "mcp_servers.0.url"),
    ],
)
def test_a_url_that_is_not_allowed_is_a_400_that_names_the_setting(
    start_proxy: StartProxy, api: str, place: str
) -> None:
    status, _, answer = send(start_proxy() + PATHS[api], body(api, named("http://127.0.0.1:1/mcp")))
    expected = f"{place}: the setting mcp_hosts does not allow the host 127.0.0.1:1."
    assert (status, answer["error"]["message"]) == (400, expected)


def test_a_client_that_disconnects_cancels_its_call_at_the_server(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply("```tool_code\nslow(seconds=60)\n```")
    log = tmp_path / "log"
    proxy = start_proxy(mcp={"shop": mcp_faults.stdio(log)})
    request = body("chat", {"type": "mcp", "server_label": "shop"})
    with connect(proxy, post_bytes("/v1/chat/completions", request)):
        wait_until(lambda: log.exists() and "slow {" in log.read_text())
    wait_until(lambda: "slow was cancelled" in log.read_text())


def test_a_server_that_dies_in_a_program_ends_it_and_no_call_is_made_twice(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply(
        '```tool_code\nprice(article="tea")\ndie()\norder(text="tea")\n```', "It is closed."
    )
    proxy = start_proxy(mcp={"shop": {**mcp_faults.stdio(tmp_path / "log"), "always": True}})
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="any", max_retries=0)
    asked: Any = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model="m", messages=asked)
    assert "It is closed." in str(answer.choices[0].message.content)
    assert "the connection was lost" in str(upstream.requests[1]["messages"][-1])
    calls = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert calls == ["list", "price", "die"]


def test_keys_decide_who_may_use_a_server(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """To another client the server does not exist, and it is not offered."""
    from emulator.core.client_keys import entry, new_key

    alice, bob = new_key(), new_key()
    (tmp_path / "keys.toml").write_text(entry("alice", alice) + entry("bob", bob))
    row = {**mcp_faults.stdio(tmp_path / "log"), "keys": ["alice"], "always": True}
    proxy = start_proxy(mcp={"shop": row}, client_keys_file=str(tmp_path / "keys.toml"))
    upstream.reply(PRICE, "It costs 1.10.", "I do not know.")
    asked: Any = [{"role": "user", "content": QUESTION}]
    answers = [
        openai.OpenAI(base_url=f"{proxy}/v1", api_key=key)
        .chat.completions.create(model="m", messages=asked)
        .choices[0]
        .message.content
        for key in (alice, bob)
    ]
    assert ["1.10" in str(answer) for answer in answers] == [True, False]
    request = body("chat", {"type": "mcp", "server_label": "shop"})
    bearer = {"authorization": f"Bearer {bob}"}
    status, _, raw = fetch(f"{proxy}/v1/chat/completions", request, bearer)
    assert status == 400
    assert "which is no server here" in json.loads(raw)["error"]["message"]
