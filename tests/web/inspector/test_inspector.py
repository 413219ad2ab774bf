"""The inspector's pages: what they show, to whom, and that nothing in a request can act in a browser."""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import openai
import pytest

from emulator.core.client_keys import new_key
from emulator.traces import Archive
from tests.support.inspected import HELLO, Inspected, shown, stored
from tests.support.processes import wait_until
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
EVIL = """"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"""
VIEWS = ("pipeline", "program", "repairs", "timing", "stream", "copy")
Start = Callable[..., Inspected]


class Markup(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_the_list_shows_a_request_and_leads_to_it(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply(CALL)
    key = proxy.ask(model="qwen")
    status, headers, page = proxy.get("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'href="/inspector/requests/{key}"' in page
    assert "qwen" in shown(page)
    assert "called" in shown(page)


def test_one_request_is_shown_from_its_tools_to_its_calls(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply(
        Reply('```tool_code\nget_weather(town="Oslo")\n```', reasoning="Let me think."), CALL
    )
    key = proxy.ask()
    pages = {view: shown(proxy.get(f"/inspector/requests/{key}/{view}")[2]) for view in VIEWS}
    for words in (
        "def get_weather", "Weather in Oslo?", "Let me think.", 'get_weather(town="Oslo")',
        "Read by python", 'get_weather {"location":"Oslo"}', "line 1",
        "% is the same prefix as in the turn before",
    ):  # fmt: skip
        assert words in pages["pipeline"], words
    assert "invalid" in pages["repairs"]
    assert "town" in pages["repairs"]
    assert "^" in pages["repairs"]
    assert re.search(r"\+get_weather\(location", pages["repairs"].replace("\n", ""))
    assert "sent" in pages["program"]
    for span in ("request", "upstream accepts", "first token", "first call"):
        assert span in pages["timing"]
    assert "Let me think." in pages["stream"]
    assert "curl " in pages["copy"]
    assert "client.chat.completions.create" in pages["copy"]


def test_the_turns_of_a_program_link_to_each_other(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply(
        '```tool_code\na = get_weather(location="Oslo")\nget_weather(location=a["next"])\n```'
    )
    client = openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0)
    asked: dict[str, Any] = {"model": "m", "tools": [GET_WEATHER]}
    message = client.chat.completions.create(messages=HELLO, **asked).choices[0].message
    assert message.tool_calls
    result = {
        "role": "tool",
        "tool_call_id": message.tool_calls[0].id,
        "content": '{"next": "Rome"}',
    }
    told: Any = [*HELLO, message.to_dict(), result]
    client.chat.completions.create(messages=told, **asked)
    second, first = stored(proxy.requests.reader)
    page = proxy.get(f"/inspector/requests/{first.id}/program")[2]
    assert f"/inspector/requests/{second.id}/program" in page
    after = proxy.get(f"/inspector/requests/{second.id}/program")[2]
    assert f"/inspector/requests/{first.id}/program" in after
    assert "Resumed without the model" in shown(after)
    assert re.findall(r'<li id="p1-\d" data-line="p1-\d" class="(\w*)">', after) == [
        "resumed",
        "sent",
    ]


@pytest.mark.parametrize("view", ["", *VIEWS])
def test_hostile_text_is_text_in_every_view(
    inspect: Start, upstream: ScriptedUpstream, view: str
) -> None:
    """It is in the question, a tool, the model's name, reasoning, the reply, its fault and arguments."""
    proxy = inspect()
    tool = json.loads(json.dumps(GET_WEATHER))
    tool["function"]["description"] = EVIL
    upstream.reply(
        Reply(f"{EVIL}\n```tool_code\nget_weather(town={EVIL!r})\n```", reasoning=EVIL),
        f"```tool_code\nget_weather(location={EVIL!r})\n```",
    )
    key = proxy.ask(model=EVIL, messages=[{"role": "user", "content": EVIL}], tools=[tool])
    path = f"/inspector/requests/{key}/{view}" if view else f"/?q={urllib.parse.quote(EVIL)}"
    status, headers, page = proxy.get(path)
    assert status == 200
    markup = Markup(page)
    assert markup.tags.count("script") == 1  # ours
    assert "img" not in markup.tags
    assert not [name for name, _ in markup.attributes if name.startswith("on") or name == "style"]
    assert "49" not in [text.strip() for text in re.findall(r">([^<]*)<", page)]
    assert "alert(1)" in shown(page)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_client_sees_its_own_requests_and_the_inspectors_key_all(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect(client_keys=("ann-key", "bob-key"), inspector_key="admin-key")
    upstream.reply(CALL, CALL)
    ann, bob = proxy.ask("ann-key"), proxy.ask("bob-key")
    seen = {
        key: [one for one in (ann, bob) if one in proxy.get("/", authorization=f"Bearer {key}")[2]]
        for key in ("ann-key", "bob-key", "admin-key")
    }
    assert seen == {"ann-key": [ann], "bob-key": [bob], "admin-key": [ann, bob]}
    other = proxy.get(f"/inspector/requests/{bob}", authorization="Bearer ann-key")
    assert (other[0], bob in other[2]) == (404, False)
    assert json.loads(proxy.post("/inspector/clear", authorization="Bearer ann-key")[2]) == {
        "cleared": 1
    }
    assert [trace.id for trace in stored(proxy.requests.reader)] == [bob]


def test_a_browser_signs_in_once_and_out_again(inspect: Start) -> None:
    proxy = inspect(client_keys=("ann-key",))
    assert proxy.get("/")[0] == 401
    assert proxy.post("/inspector/sign-in", {"key": "wrong"})[0] == 401
    status, headers, _ = proxy.post("/inspector/sign-in", {"key": "ann-key"})
    cookie = headers["set-cookie"]
    assert (status, "HttpOnly" in cookie, "SameSite=Strict" in cookie) == (200, True, True)
    assert "ann-key" not in cookie
    session = cookie.split(";")[0]
    assert proxy.get("/", cookie=session)[0] == 200
    proxy.post("/inspector/sign-out", cookie=session)
    assert proxy.get("/", cookie=session)[0] == 401


PAGES = ["/", "/?token=", "/?token=wrong", "/inspector/requests/req_0"]
PAGES += [f"/inspector/{name}" for name in ("playground", "containers", "status", "no-page")]
POSTS = ["clear", "playground/ask", "playground/read", "status/doctor", "sign-out"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("headers", [{}, {"x-forwarded-for": "203.0.113.7"}, {"via": "1.1 x"}])
def test_without_any_key_no_page_answers_an_unknown_visitor(
    inspect: Start, host: str, headers: dict[str, str]
) -> None:
    """nginx with only proxy_pass connects from loopback and adds no header, so all saw all requests."""
    proxy = inspect(host=host, open=True, inspector="on")
    assert {path: proxy.get(path, **headers)[0] for path in PAGES} == dict.fromkeys(PAGES, 401)
    assert {
        path: proxy.post(f"/inspector/{path}", **headers)[0] for path in POSTS
    } == dict.fromkeys(POSTS, 401)


def test_a_token_in_the_address_becomes_a_session(inspect: Start) -> None:
    proxy = inspect(host="0.0.0.0", open=True, inspector_key="the-token")
    status, headers, page = proxy.get("/?show=failed&token=the-token&q=a%26b")
    assert (status, headers["location"], page) == (303, "/?show=failed&q=a%26b", "")
    cookie = headers["set-cookie"]
    assert ("HttpOnly" in cookie, "SameSite=Strict" in cookie, "the-token" in cookie) == (
        True,
        True,
        False,
    )
    assert proxy.get("/inspector/status", cookie=cookie.split(";")[0])[0] == 200
    assert proxy.get("/", authorization="Bearer the-token")[0] == 200
    name = cookie.partition("=")[0]
    assert proxy.get("/", cookie=f"{name}=the-token")[0] == 401
    other = inspect(
        host="0.0.0.0", open=True, inspector_key="the-token"
    )  # a browser would send it both
    assert name not in other.get("/?token=the-token")[1]["set-cookie"]


def test_the_inspector_is_open_to_everyone_only_if_the_setting_says_open(inspect: Start) -> None:
    proxy = inspect(host="0.0.0.0", open=True, inspector="open")
    assert proxy.get("/", **{"x-forwarded-for": "203.0.113.7"})[0] == 200
    for keys in ({"client_keys": ("ann-key",)}, {"inspector_key": "admin-key"}):
        with pytest.raises(ValueError, match="inspector open shows all clients' requests"):
            inspect(inspector="open", **keys)


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
def test_another_page_cannot_read_or_clear_the_inspector(
    inspect: Start, headers: dict[str, str]
) -> None:
    proxy = inspect()
    assert proxy.get("/", **headers)[0] == 403
    assert proxy.post("/inspector/clear", **headers)[0] == 403


def test_a_form_of_another_page_is_refused(inspect: Start) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert inspect().post("/inspector/clear", **form)[0] == 415


def test_the_inspector_can_be_switched_off(inspect: Start, upstream: ScriptedUpstream) -> None:
    proxy = inspect(inspector="off", pass_through="")
    assert {proxy.get(path)[0] for path in ("/", "/inspector/static/inspector.js")} == {404}


def test_ten_thousand_requests_are_shown_a_page_at_a_time(
    inspect: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archive, "max_traces", 10_000)
    proxy = inspect()
    for n in range(10_000):
        trace = proxy.requests.traces.begin(f"req_{n}", "POST", "/v1/chat/completions", "", b"")
        trace.model = "rare" if n == 5 else "common"
        proxy.requests.traces.finish(trace)
    page = proxy.get("/")[2]
    assert page.count("<tr>") == 51
    assert "10000 requests, page 1 of 200" in shown(page)
    assert 'href="/inspector/requests/req_0"' in proxy.get("/?page=200")[2]
    assert re.findall(r"/inspector/requests/(\w+)", proxy.get("/?q=rare")[2]) == ["req_5"]
    assert proxy.get("/?page=999999999999&show=nonsense")[0] == 200


PAGES_OF_A_CLIENT = ["/", "/?q=m&show=running", "/inspector/playground"]
PAGES_OF_A_CLIENT += ["/inspector/containers", "/inspector/status"]


def test_no_page_shows_the_activity_of_other_clients(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    """The list said how many requests of all clients were stored."""
    proxy = inspect(client_keys=("ann-key", "bob-key"), inspector_key="admin-key")
    upstream.default = CALL

    def pages() -> list[str]:
        return [proxy.get(path, authorization="Bearer bob-key")[2] for path in PAGES_OF_A_CLIENT]

    proxy.ask("bob-key")
    before = pages()
    assert re.search(r"1 request, 7 tokens in, 3 out; 1 stored in", shown(before[0]))
    for _ in range(7):
        proxy.ask("ann-key", messages=[{"role": "user", "content": "x" * 100_000}])
    assert pages() == before
    assert "8 stored in " in shown(proxy.get("/", authorization="Bearer admin-key")[2])


@pytest.mark.parametrize(
    ("chosen", "kept"), [("failed", ["failed"]), ("repaired", ["repaired"]), ("saved", [])]
)
def test_the_list_can_be_narrowed(
    inspect: Start, upstream: ScriptedUpstream, chosen: str, kept: list[str]
) -> None:
    proxy = inspect(upstream_retries=0)
    upstream.reply('```tool_code\nget_weather(town="Oslo")\n```', CALL, Reply(status=400, body={}))
    keys = {proxy.ask(): "repaired", proxy.ask(): "failed"}
    page = proxy.get(f"/?show={chosen}")[2]
    assert [keys[key] for key in re.findall(r"/inspector/requests/(\w+)", page)] == kept


def test_keys_in_a_request_are_not_shown(inspect: Start, upstream: ScriptedUpstream) -> None:
    proxy = inspect(client_keys=("client-key-1",), api_key="upstream-key-1")
    upstream.reply("You said upstream-key-1.")
    made = new_key()
    words = f"mine is client-key-1, {made}, sk-proj-abcdefghijklmnop1234; Bearer abc.def-123456 "
    key = proxy.ask(
        "client-key-1", messages=[{"role": "user", "content": words}], tools=[GET_WEATHER]
    )
    for view in VIEWS:
        page = proxy.get(f"/inspector/requests/{key}/{view}", authorization="Bearer client-key-1")[
            2
        ]
        for secret in (
            "client-key-1",
            "upstream-key-1",
            "sk-proj",
            made[3:],
            "abc.def",
        ):
            assert secret not in shown(page), (view, secret)


def test_only_the_inspectors_static_files_are_served_without_a_key(inspect: Start) -> None:
    proxy = inspect(client_keys=("ann-key",))
    kinds = {
        name: proxy.get(f"/inspector/static/{name}")[1]["content-type"]
        for name in ("inspector.js", "inspector.css", "icon.svg")
    }
    assert kinds["inspector.js"].startswith("text/javascript")
    assert proxy.get("/inspector/static/..%2Fapp.py")[0] in (401, 404)
    for path in ("/", "/inspector/requests/req_0"):
        assert proxy.get(path)[0] == 401


WRONG = '```tool_code\nget_weather(town="Oslo")\n```'


@pytest.mark.parametrize("replies", [[WRONG, CALL], [WRONG] * 9], ids=["repaired", "failed"])
def test_tokens_are_those_of_all_turns_also_of_a_failed_request(
    inspect: Start, upstream: ScriptedUpstream, replies: list[str]
) -> None:
    proxy = inspect()
    upstream.reply(*replies)
    page = shown(proxy.get(f"/inspector/requests/{proxy.ask()}")[2])
    turns = len(upstream.requests)
    tokens = [
        sum(turn.prompt_tokens for turn in trace.turns) for trace in stored(proxy.requests.reader)
    ]
    assert f"{tokens[0]} in, " in page
    repairs = f"{turns - 1} repair{'s' * (turns > 2)}"
    assert f"{turns}, {repairs}" in page
    row = shown(proxy.get("/")[2])
    assert f", {repairs};" in row
    assert f"{tokens[0]} + " in row
    assert tokens[0] >= 14


NARROWED = [
    ("", 3),
    ("model=one", 2),
    ("model=one&state=called", 1),
    ("state=answered", 2),
    ("front=messages", 1),
    ("front=chat&tool=get_weather", 2),
    ("client=bob", 0),
    ("since=1%20hour", 3),
    ("since=nonsense", 3),
]


@pytest.mark.parametrize(("query", "count"), NARROWED)
def test_the_list_has_filters_by_value_and_totals_of_the_matches(
    inspect: Start, upstream: ScriptedUpstream, query: str, count: int
) -> None:
    proxy = inspect()
    upstream.reply(CALL, "Sunny.", "Hello.")
    proxy.ask(model="one")
    proxy.ask(model="one", messages=[{"role": "user", "content": f"Why? {EVIL} {'x' * 200}"}])
    proxy.post("/v1/messages", {"model": "two", "max_tokens": 9, "messages": HELLO})
    wait_until(lambda: all(one.seconds for one in stored(proxy.requests.reader)))
    page = proxy.get(f"/?{query}")[2]
    assert page.count('href="/inspector/requests/') == count
    assert f"{count} request" in shown(page)
    rows = proxy.requests.reader.page(dict(urllib.parse.parse_qsl(query)), None)
    total = sum(trace.tokens_in for trace in stored(proxy.requests.reader))
    assert (rows.sums["tokens_in"] == total) == (count == 3)
    assert Markup(page).tags.count("script") == 1
    for key, value in urllib.parse.parse_qsl(query):
        if value != "nonsense":
            kept = urllib.parse.urlencode({"show": "failed", key: value}).partition("&")[2]
            [link] = re.findall(r'href="([^"]*show=failed[^"]*)"', page)
            assert kept in html.unescape(link)
            assert f'<option value="{value}" selected>' in page
    if not query:
        assert "Weather in Oslo?" in shown(page)
        assert "→ get_weather" in shown(page)
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown(page))
        assert "x" * 200 not in shown(page)


def test_a_client_is_offered_only_its_own_values_to_filter_by(
    inspect: Start, upstream: ScriptedUpstream
) -> None:
    proxy = inspect(client_keys=("ann-key", "bob-key"), inspector_key="admin-key")
    upstream.default = CALL
    proxy.ask("ann-key", model="anns-model", messages=[{"role": "user", "content": "anns words"}])
    proxy.ask("bob-key", model="bobs-model")
    for path, count in (("/", 1), ("/?tool=get_weather", 1), ("/?q=anns", 0)):
        page = shown(proxy.get(path, authorization="Bearer bob-key")[2])
        assert f"{count} request" in page
        assert "anns" not in page
    everything = shown(proxy.get("/", authorization="Bearer admin-key")[2])
    assert "anns words" in everything


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", ["chat/completions", "responses", "messages"])
def test_a_request_is_found_by_each_id_that_its_client_has(
    inspect: Start, upstream: ScriptedUpstream, front: str, stream: bool
) -> None:
    """Only by ``x-request-id``: clients print the id of the answer, and results carry that of a call."""
    proxy = inspect()
    upstream.default = CALL
    function = GET_WEATHER["function"]
    tool: dict[str, Any] = {
        "chat/completions": GET_WEATHER,
        "responses": {"type": "function", **function},
        "messages": {"name": "get_weather", "input_schema": function["parameters"]},
    }[front]
    asked: dict[str, Any] = {"input": "Hi"} if front == "responses" else {"messages": HELLO}
    body = {"model": "m", "max_tokens": 99, "tools": [tool], "stream": stream, **asked}
    answers = [proxy.post(f"/v1/{front}", body)[1:] for _ in range(2)]
    for headers, text in answers:
        ids = re.findall(r'"((?:chatcmpl-|resp_|msg_|call_|toolu_)\w{8,})"', text)
        assert len(set(ids)) >= 2
        for key in (ids[0], next(one for one in ids if one.startswith(("call_", "toolu_")))):
            wait_until(lambda key=key: "/inspector/requests/" in proxy.get(f"/?q={key}")[2])
            page = proxy.get(f"/?q={key}")[2]
            assert re.findall(r"/inspector/requests/(\w+)", page) == [headers["x-request-id"]]


QUESTIONS = [
    ("Why?", "Why?"),
    ("word " * 50, "word word"),
    ("请告诉我奥斯陆今天的天气怎么样，" * 30, "请告诉我奥斯陆今天的天气怎么样"),
    ("x" * 10_000, "…"),
    (f"密钥{'长' * 90}{'k' * 40}", "密钥长"),
]


@pytest.mark.parametrize(("question", "words"), QUESTIONS)
def test_a_row_shows_the_first_words_of_the_question(
    inspect: Start, upstream: ScriptedUpstream, question: str, words: str
) -> None:
    """A long question in Chinese, which has no spaces, was shown as three dots. No key is cut in two."""
    proxy = inspect()
    upstream.reply(CALL)
    key = proxy.ask(messages=[{"role": "user", "content": question}])
    for path in ("/", f"/inspector/requests/{key}"):
        page = proxy.get(path)[2]
        [found] = re.findall(r"<bdi(?: class=\"question\")?>([^<]*)</bdi>", page)[1:]
        assert found.startswith(words)
        assert len(found) <= 102
        assert "kk" not in found
