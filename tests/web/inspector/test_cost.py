"""What a request cost: page, row, log and metrics say what the upstream reported."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator import logs
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.inspected import HELLO, Inspected, shown
from tests.support.other_endpoints import other_endpoints
from tests.support.processes import wait_until
from tests.support.raw_http import connect, post_bytes, read_page, read_until
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, function, strings

CALL = '```python\nget_weather(location="Oslo")\n```'
WRONG = '```python\nget_weather(town="Oslo")\n```'
CHATTY = Reply(
    f"{CALL}\n{'More words. ' * 100}", usage={"prompt_tokens": 100}, chunks=9, delay=0.01
)
FAILS = Reply(status=500, body={"error": {"message": "down"}}, headers={"retry-after": "0"})
BUY = function("buy", strings("article"))


def reply(text: str, prompt: int, completion: int, **fields: Any) -> Reply:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    details = fields.pop("details", {})
    return Reply(text, usage={**usage, "total_tokens": prompt + completion, **details}, **fields)


DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 11},
}
# What the case is, the model's replies, fields of the request, settings, what the page says.
COSTS: list[tuple[str, list[Any], dict[str, Any], dict[str, Any], str]] = [
    ("one turn", [reply("Sunny.", 100, 20)], {}, {}, "100 in, 20 out"),
    ("a call", [reply(CALL, 100, 20)], {}, {}, "100 in, 20 out"),
    ("a stream", [reply(CALL, 100, 20)], {"stream": True}, {}, "100 in, 20 out"),
    ("no tools", [reply("Sunny.", 100, 20)], {"tools": []}, {}, "100 in, 20 out"),
    (
        "details",
        [reply("Let me check.", 100, 20, details=DETAILS), reply("No.", 150, 5)],
        {},
        {},
        "250 in (64 cached), 25 out (11 reasoning)",
    ),
    (
        "native, repaired",
        [
            reply("", 100, 20, tool_calls=[{"name": "f"}], finish_reason="tool_calls"),
            reply("", 150, 5, tool_calls=[{"name": "get_weather", "arguments": {"location": "O"}}]),
        ],
        {},
        {"tools": "native"},
        "250 in, 25 out",
    ),
    ("cut off", [reply("It is", 100, 5, finish_reason="length")], {}, {}, "100 in, 5 out"),
    ("a retry", [FAILS, reply(CALL, 100, 20)], {}, {"upstream_retries": 1}, "100 in, 20 out"),
    ("an error", [FAILS], {}, {"upstream_retries": 0}, "0 in, 0 out"),
    ("two choices", [reply("a", 100, 2), reply("b", 100, 3)], {"n": 2}, {}, "200 in, 5 out"),
    (
        "a hosted call",
        [reply("```python\nbuy(article='tea')\n```", 100, 20), reply("Bought.", 150, 5)],
        {"tools": [SERVER]},
        {},
        "250 in, 25 out",
    ),
    ("no usage", [Reply("Sunny.", usage=None)], {}, {}, r"\d{3} in, 2 out; estimated"),
    ("closed early", [CHATTY], {}, {}, r"\d{3} in, \d+ out; estimated"),
    (
        "closed early, repaired",
        [WRONG, reply(CALL, 150, 5)],
        {},
        {},
        r"\d{3} in, \d+ out; estimated in part",
    ),
    (
        "broken off",
        [reply("It is sunny", 100, 20, chunks=3, fault="drop", after=3)],
        {},
        {},
        r"\d{3} in, \d out; estimated",
    ),
    (
        "an impossible number",
        [reply("Sunny.", 10**12, 20)],
        {},
        {},
        r"\d{3} in, 20 out; estimated",
    ),
]


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    written = io.StringIO()
    logs.configure("info", written)
    yield written
    logs.configure("warning")


@pytest.mark.parametrize(
    ("replies", "fields", "settings", "cost"), [row[1:] for row in COSTS], ids=[r[0] for r in COSTS]
)
def test_page_row_log_and_metrics_agree(
    inspect: Callable[..., Inspected],
    upstream: ScriptedUpstream,
    log: io.StringIO,
    replies: list[Any],
    fields: Any,
    settings: Any,
    cost: str,
) -> None:
    shop = HostedFunctions({"buy": lambda article: f"Bought: {article}"}, [BUY])
    proxy = inspect(hosted=shop, **settings)
    upstream.reply(*replies)
    before = counted(proxy)
    key = proxy.ask(**fields)
    page = shown(proxy.get(f"/inspector/requests/{key}")[2])
    found = re.search(r"\bTokens\s*([^\n]*)", page)
    assert found
    assert re.fullmatch(cost, found[1].strip()) or found[1].strip() == cost
    tokens = [int(number) for number in re.findall(r"(\d+) (?:in|out)\b", found[1])]
    row = shown(proxy.get("/")[2])
    assert (f"{tokens[0]} + {tokens[1]}" in row) == bool(tokens[0])
    assert row.count("≈") == 2 * ("estimated" in cost)  # the row, and the sum
    wait_until(lambda: '"tokens_in"' in log.getvalue())
    [line] = [one for one in map(json.loads, log.getvalue().splitlines()) if "tokens_in" in one]
    assert [line["tokens_in"], line["tokens_out"]] == tokens
    assert ("tokens_estimated" in line) == ("estimated" in cost)
    assert [now - then for now, then in zip(counted(proxy), before, strict=True)] == tokens


def test_a_client_that_left_has_paid_for_what_it_got(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    proxy = inspect()
    upstream.reply(Reply("It is sunny. " * 30, chunks=3, delay=0.02))
    before = counted(proxy)
    body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER], "stream": True}
    with connect(proxy.url, post_bytes("/v1/chat/completions", body)) as connection:
        read_until(connection, b"sun")
    wait_until(lambda: "left" in shown(proxy.get("/?state=left")[2]).partition("State")[2])
    wait_until(lambda: counted(proxy) != before)
    row = shown(proxy.get("/?state=left")[2])
    tokens_in, tokens_out = (now - then for now, then in zip(counted(proxy), before, strict=True))
    assert f"{tokens_in} + {tokens_out}" in row
    assert "≈" in row


def test_an_image_in_an_estimated_prompt_is_not_counted_by_its_bytes(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    """A screenshot of 200 kB counted as 50,000 tokens, which its client's budget paid."""
    proxy = inspect()
    upstream.reply(Reply("A cat.", usage=None))
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 200_000}"}}
    content = [{"type": "text", "text": "What is it?"}, picture]
    key = proxy.ask(messages=[{"role": "user", "content": content}], tools=[])
    page = shown(proxy.get(f"/inspector/requests/{key}")[2])
    assert re.search(r"\bTokens\s*16\d\d in, 2 out; estimated", page)


def test_usage_tells_the_client_the_prompts_of_all_turns_also_those_closed_early(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream
) -> None:
    """A turn that the proxy closed before its usage arrived counted nothing."""
    proxy = inspect()
    upstream.reply(WRONG, reply(CALL, 150, 5))
    body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER]}
    answer = json.loads(proxy.post("/v1/chat/completions", body)[2])
    row = re.search(r"(\d+) \+ (\d+)", shown(proxy.get("/")[2]))
    assert row
    assert answer["usage"]["emulator"]["prompt_tokens"] == int(row[1])
    assert answer["usage"]["completion_tokens"] == int(row[2])


def counted(proxy: Inspected) -> list[int]:
    """The tokens in the metrics: in, out."""
    page = read_page(f"{proxy.url}/metrics")
    pattern = r'^emulator_tokens_total\{[^}]*direction="%s".*\} (\S+)$'
    return [
        int(sum(map(float, re.findall(pattern % way, page, re.MULTILINE)))) for way in ("in", "out")
    ]


def test_a_passed_on_request_costs_what_its_response_reports(
    inspect: Callable[..., Inspected], log: io.StringIO
) -> None:
    """Embeddings were free, although a budget is charged for them."""
    with other_endpoints() as other:
        proxy = inspect(base_url=other.base_url)
        before = counted(proxy)
        proxy.post("/v1/embeddings", {"model": "e", "input": "x"})
        wait_until(lambda: '"tokens_in"' in log.getvalue())
        assert counted(proxy) == [before[0] + 1, before[1]]
        assert "1 + 0" in shown(proxy.get("/")[2])
        proxy.post("/v1/audio/transcriptions", {"model": "e"})
        wait_until(lambda: "transcriptions" in log.getvalue())
        assert counted(proxy) == [before[0] + 1, before[1]]
