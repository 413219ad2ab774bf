"""Hosted calls that a person approves in the inspector: chat completions and Messages cannot ask."""

from __future__ import annotations

import html
import json
import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from emulator.traces.listing import ROWS_PER_PAGE
from tests.hosted.test_mcp_over_http import PATHS, body
from tests.support.approver import CALLS, PAGE, Approver
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.inspected import Inspected, stored
from tests.support.processes import ROOT, proxy, wait_until
from tests.support.programs import LOCAL, TOOLS
from tests.support.raw_http import connect, post_bytes, read_page, read_until
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import two_workers

SEARCH, BOOK, CHECK = TOOLS
EACH_API = pytest.mark.parametrize("api", ["chat", "messages"])
STREAMED = pytest.mark.parametrize("stream", [False, True])
PROGRAM = """```tool_code
hits = search('Oslo')
print(book(hits[1]['id'])['booked'], check(hits[1]['id']))
```"""
HANDLED = "```tool_code\ntry:\n    book('a1')\nexcept Exception:\n    pass\ncheck('a1')\n```"
Start = Callable[..., tuple[str, Any]]


@pytest.fixture
def server() -> HostedFunctions:
    return HostedFunctions(LOCAL, [SEARCH, BOOK, CHECK], needs_approval=frozenset({"book"}))


@pytest.fixture
def start(start_app: Start, server: HostedFunctions) -> Callable[..., Approver]:
    def started(**settings: Any) -> Approver:
        url, _ = start_app(**{"hosted": server, "inspector": "open", **settings})
        return Approver(url)

    return started


def ask(person: Approver, api: str = "chat", **fields: Any) -> Future[tuple[int, Any, bytes]]:
    return person.ask(PATHS[api], {**body(api, SERVER), **fields})


def test_a_chat_client_cannot_approve_a_call_itself(
    start: Callable[..., Approver], upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    person = start()
    upstream.reply("Booked?")
    function = {"name": "book", "arguments": '{"id": "a2"}'}
    call = {"id": "call_1", "type": "function", "function": function, "server_label": "shop"}
    messages = [
        {"role": "user", "content": "Book a2."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "", "approval": True},
    ]
    assert ask(person, messages=messages).result(20)[0] == 200
    assert server.made == []


@EACH_API
@STREAMED
def test_an_approved_call_runs_and_the_program_resumes(
    start: Callable[..., Approver],
    upstream: ScriptedUpstream,
    server: HostedFunctions,
    api: str,
    stream: bool,
) -> None:
    person = start()
    upstream.reply(PROGRAM, "Booked.")
    answer = ask(person, api, stream=stream)
    wait_until(person.waiting)
    assert server.made == ["search(to='Oslo')"]
    assert 'shop.book\n{\n  "id": "a2"\n}' in html.unescape(person.page())
    person.decide("approve")
    status, _, raw = answer.result(20)
    assert status == 200
    assert b"Booked." in raw
    if api == "chat":  # Messages shows thinking only to those who ask for it
        assert PAGE.encode() in raw
    assert server.made == ["search(to='Oslo')", "book(id='a2')", "check(id='a2')"]
    [_, after] = upstream.requests
    assert "a2 on time" in str(after["messages"][-1]["content"])
    assert person.waiting() == []


REFUSALS: list[tuple[str, Any, str]] = [
    ("declined", lambda person: person.decide("decline", reason="Too dear."), "Too dear."),
    ("nobody decides", lambda person: None, "nobody approved it within 0.5 s"),
]


@EACH_API
@pytest.mark.parametrize(
    ("decide", "why"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_a_refusal_ends_the_program_even_if_it_handles_failures(
    start: Callable[..., Approver],
    upstream: ScriptedUpstream,
    server: HostedFunctions,
    api: str,
    decide: Callable[[Approver], None],
    why: str,
) -> None:
    person = start(approval_seconds=60.0 if why == "Too dear." else 0.5)
    upstream.reply(HANDLED, "I did not.")
    answer = ask(person, api)
    decide(person)
    assert b"I did not." in answer.result(20)[2]
    assert server.made == []
    assert f"not approved: {why}" in str(upstream.requests[1]["messages"][-1]["content"])


def test_every_page_says_how_many_calls_wait(
    start: Callable[..., Approver], upstream: ScriptedUpstream
) -> None:
    person = start()
    upstream.reply("```tool_code\nbook('a1')\n```", "Done.")
    badge = re.compile(r'title="waiting for approval">(\d+)<')
    pages = ("/", "/inspector/status", "/inspector/playground")

    def shown() -> list[list[str]]:
        return [badge.findall(read_page(person.url + page)) for page in pages]

    assert shown() == [[], [], []]
    answer = ask(person)
    wait_until(person.waiting)
    assert shown() == [["1"], ["1"], ["1"]]
    person.decide("approve")
    answer.result(20)
    assert shown() == [[], [], []]


def test_calls_that_are_sent_together_are_decided_one_by_one(
    start: Callable[..., Approver], upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    person = start(order="dataflow")
    upstream.reply("```tool_code\nprint([book('a1'), book('a2')])\n```", "Done.")
    answer = ask(person)
    wait_until(lambda: len(person.waiting()) == 2)
    while not answer.done():
        for address in person.waiting():
            assert person.post(f"{address}/approve") in (200, 404)
    assert sorted(server.made) == ["book(id='a1')", "book(id='a2')"]


@STREAMED
def test_a_call_whose_client_disconnects_is_neither_shown_nor_made(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions, stream: bool
) -> None:
    url, _ = start_app(hosted=server, inspector="open", ping_seconds=3600.0)
    person = Approver(url)
    upstream.reply("```tool_code\nbook('a1')\n```")
    with connect(url, post_bytes(PATHS["chat"], {**body("chat", SERVER), "stream": stream})):
        wait_until(person.waiting)
        [address] = person.waiting()
    wait_until(lambda: not person.waiting())
    assert person.post(f"{address}/approve") == 404
    assert server.made == []


def test_a_stream_that_waits_is_kept_alive(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    url, _ = start_app(hosted=server, inspector="open", ping_seconds=0.1)
    person = Approver(url)
    upstream.reply("```tool_code\nbook('a1')\n```", "Done.")
    request = {**body("chat", SERVER), "stream": True}
    with connect(url, post_bytes(PATHS["chat"], request)) as connection:
        wait_until(person.waiting)
        for _ in range(3):
            read_until(connection, b":")
        person.decide("approve")
        read_until(connection, b"[DONE]")
    assert server.made == ["book(id='a1')"]


def test_a_client_decides_only_about_its_own_calls_and_the_operator_about_all(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    keys = {"client_keys": ("ann-key", "bob-key"), "inspector_key": "operator-key"}
    url, _ = start_app(hosted=server, **keys)
    ann, bob, operator = (
        Approver(url, authorization=f"Bearer {name}-key") for name in ("ann", "bob", "operator")
    )
    upstream.reply("```tool_code\nbook('a1')\n```", "Done.")
    answer = ask(ann)
    wait_until(ann.waiting)
    [address] = ann.waiting()
    assert bob.waiting() == []
    assert bob.post(f"{address}/approve") == 404
    assert server.made == []
    assert operator.waiting() == [address]
    assert "hosted call of " in operator.page()
    operator.decide("approve")
    assert b"Done." in answer.result(20)[2]
    assert server.made == ["book(id='a1')"]


def test_the_operator_sees_a_pending_call_however_many_requests_are_newer(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    """Only the newest page of running requests was searched."""
    keys = {"client_keys": ("ann-key", "bob-key"), "inspector_key": "operator-key"}
    url, _ = start_app(hosted=server, **keys)
    ann, operator = (
        Approver(url, authorization=f"Bearer {name}-key") for name in ("ann", "operator")
    )
    upstream.reply("```tool_code\nbook('a1')\n```", "Done.")
    answer = ask(ann)
    wait_until(ann.waiting)
    upstream.default = Reply(fault="silent")
    bob = {"authorization": "Bearer bob-key"}
    newer = post_bytes(PATHS["chat"], body("chat", SERVER), bob)
    with ExitStack() as open_requests:
        for _ in range(ROWS_PER_PAGE + 1):
            open_requests.enter_context(connect(url, newer))
        wait_until(lambda: len(upstream.requests) > ROWS_PER_PAGE + 1)
        assert operator.waiting() == ann.waiting() != []
        upstream.default = None
        upstream.reply("Done.")
        operator.decide("approve")
        assert b"Done." in answer.result(20)[2]
    assert server.made == ["book(id='a1')"]


def test_arguments_are_shown_whole_and_never_as_markup(
    start: Callable[..., Approver], upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    person = start()
    evil = "<script>alert(1)</script>\u202e" + "x" * 60_000 + "the end"
    upstream.reply(f"```tool_code\nbook({evil!r})\n```", "Done.")
    answer = ask(person)
    wait_until(person.waiting)
    assert "<script>alert" not in person.page()
    assert evil.replace("\u202e", r"\u202e") in html.unescape(person.page())
    assert "\u202e" not in person.page()  # it would show the rest backwards
    person.decide("decline")
    answer.result(20)


def test_the_inspector_shows_how_long_a_call_waited(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    url, services = start_app(hosted=server, inspector="open")
    person = Approver(url)
    upstream.reply("```tool_code\nbook('a1')\n```", "Done.")
    answer = ask(person)
    person.decide("approve")
    key = answer.result(20)[1]["x-request-id"]
    wait_until(lambda: bool((trace := services.requests.reader.get(key)) and trace.seconds))
    names = [name for name, _, _ in stored(services.requests.reader)[0].times]
    assert names == ["approval of shop.book", "mcp shop.book"]
    assert (
        "approval of shop.book"
        in Inspected(url, services.requests).get(f"/inspector/requests/{key}")[2]
    )


def test_without_an_inspector_the_call_is_refused(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    url, _ = start_app(hosted=server, inspector="off")
    upstream.reply("```tool_code\nbook('a1')\n```", "I may not.")
    assert b"I may not." in ask(Approver(url)).result(20)[2]
    assert server.made == []
    assert "no way to ask" in upstream.requests[1]["messages"][-1]["content"]


def test_a_call_pending_at_one_replica_is_decided_once_at_another(
    start_app: Start, upstream: ScriptedUpstream, server: HostedFunctions
) -> None:
    upstream.reply("```tool_code\nprint(book('a1')['booked'])\n```", "Done.")
    replicas = [Approver(start_app(hosted=server, inspector="open")[0]) for _ in range(2)]
    answer = ask(replicas[0])
    wait_until(replicas[1].waiting)
    [address] = replicas[1].waiting()
    assert replicas[0].waiting() == [address]
    statuses = [replica.post(f"{address}/approve") for replica in reversed(replicas)]
    assert statuses == [200, 404]
    assert b"Done." in answer.result(20)[2]
    assert server.made == ["book(id='a1')"]


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds the workers in Linux' /proc"
)
@pytest.mark.parametrize("options", [[], ["--database", "none"]], ids=["stored", "not stored"])
def test_a_call_pending_at_one_worker_is_approved_at_another(
    upstream: ScriptedUpstream, tmp_path: Path, options: list[str]
) -> None:
    """With ``--database none`` each worker knew only of its own calls."""
    upstream.reply("```tool_code\nprint(price(article='tea')['price'])\n```", "It is 3.")
    command = f"shop={sys.executable} {ROOT / 'tests' / 'support' / 'mcp_http.py'}"
    item = {"type": "mcp", "server_label": "shop", "require_approval": "always"}
    with two_workers(upstream, tmp_path, "--inspector", "open", "--mcp", command, *options) as one:
        first, second = one.pids()
        with (
            one.pages(second) as other,
            one.stream(first, b"approval", body={**body("chat", item)}),
        ):
            wait_until(lambda: CALLS.search(other("GET", PAGE)))
            [address] = CALLS.findall(other("GET", PAGE))
            other("POST", f"{address}/approve")
            wait_until(lambda: len(upstream.requests) == 2)
    assert "3" in json.dumps(upstream.requests[1]["messages"][-1]["content"])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_call_that_waits_when_its_proxy_is_replaced_is_neither_shown_nor_made_by_the_next(
    upstream: ScriptedUpstream, tmp_path: Path, how: signal.Signals
) -> None:
    """An upgrade: what waits ends with the process that has its request."""
    upstream.reply("```tool_code\nprint(price(article='tea')['price'])\n```")
    command = f"shop={sys.executable} {ROOT / 'tests' / 'support' / 'mcp_http.py'}"
    options = ["--database", str(tmp_path / "database.sqlite"), "--inspector", "open"]
    options += ["--drain-seconds", "0", "--mcp", command]
    item = {"type": "mcp", "server_label": "shop", "require_approval": "always"}
    with proxy(upstream.base_url, tmp_path / "old.log", *options) as (old, url):
        person = Approver(url)
        answer = person.ask(PATHS["chat"], body("chat", item))
        wait_until(person.waiting)
        [address] = person.waiting()
        old.kill(how)
        told = _answered(answer)
    with proxy(upstream.base_url, tmp_path / "new.log", *options) as (_, url):
        person = Approver(url)
        wait_until(lambda: person.waiting() == [])
        assert person.post(f"{address}/approve") == 404
    assert told == b"" or json.loads(told)["error"]["code"] == "shutting_down"
    assert len(upstream.requests) == 1


def _answered(answer: Future[tuple[int, Any, bytes]]) -> bytes:
    """The answer of a proxy that ends; empty if the connection ended."""
    try:
        return answer.result(60)[2]
    except (OSError, HTTPException):
        return b""
