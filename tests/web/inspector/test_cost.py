"""What a request cost: page, row, log and metrics say what the upstream reported."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator.core import logs
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.inspected import HELLO, Inspected, shown
from tests.support.other_endpoints import other_endpoints
from tests.support.processes import wait_until
from tests.support.raw_http import connect, fetch, post_bytes, read_page, read_until
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api, request_body
from tests.support.tools import GET_WEATHER, function, strings

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
WRONG = '```tool_code\nget_weather(town="Oslo")\n```'
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
        [reply("", 100, 20, details=DETAILS), reply("No.", 150, 5)],
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
        [reply("```tool_code\nbuy(article='tea')\n```", 100, 20), reply("Bought.", 150, 5)],
        {"tools": [SERVER]},
        {},
        "250 in, 25 out",
    ),
    ("no usage", [Reply("Sunny.", usage=None)], {}, {}, r"\d{3} in, 2 out; estimated"),
    ("half of the usage", [reply("Sunny.", 100, 0)], {}, {}, "100 in, 2 out; estimated"),
    ("a usage of nothing", [reply("Sunny.", 0, 0)], {}, {}, r"\d{3} in, 2 out; estimated"),
    ("closed early", [CHATTY], {}, {}, r"\d{3} in, \d+ out; estimated"),
    (
        "closed early, repaired",
        [f"{WRONG}\n\nThat is it.", reply(CALL, 150, 5)],
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
    assert difference(proxy, before) == tokens


DOWN = Reply(status=503, body={"error": {"message": "down"}}, headers={"retry-after": "0"})
COUNTED_SO_FAR = Reply(
    frames=[
        b"data: %s\n\n" % json.dumps({"choices": choices, "usage": usage}).encode()
        for n, text in enumerate(["It is ", "sunny ", "in "], 1)
        for choices in [[{"index": 0, "delta": {"content": text}}]]
        for usage in [{"prompt_tokens": 100, "completion_tokens": n, "total_tokens": 100 + n}]
    ]
)
# What the case is, the first upstream's replies, the second's, what each turn costs.
FALLBACKS: list[tuple[str, list[Any], list[Any], list[str]]] = [
    ("twice down", [DOWN, DOWN], [reply("Sunny.", 100, 20)], ["0 in, 0 out", "100 in, 20 out"]),
    ("once down", [DOWN, reply("Sunny.", 100, 20)], [], ["100 in, 20 out"]),
    (
        "broken off before any text",
        [reply("Sunny.", 90, 20, fault="drop")],
        [reply(WRONG, 100, 20), reply("No.", 150, 5)],
        [r"\d+ in, \d out; estimated", r"\d+ in, \d+ out(?:; estimated)?", "150 in, 5 out"],
    ),
    (
        "broken off, with usage in each chunk",
        [COUNTED_SO_FAR],
        [],
        ["100 in, 3 out; estimated"],
    ),
]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_every_attempt_at_every_upstream_is_counted_once_for_its_model(
    inspect: Callable[..., Inspected],
    upstream: ScriptedUpstream,
    log: io.StringIO,
    api: Api,
    stream: bool,
) -> None:
    with ScriptedUpstream(models=("small",)) as second:
        rows = (
            {"base_url": upstream.base_url, "name": "one", "models": ["scripted"]},
            {"base_url": second.base_url, "name": "two"},
        )
        proxy = inspect(upstreams=rows, fallbacks=("small",), upstream_retries=1)
        proxy.get("/v1/models")  # the metrics have the names of listed models
        for case, first_replies, second_replies, costs in FALLBACKS:
            upstream.reply(*first_replies)
            second.reply(*second_replies)
            before = counted(proxy), counted(proxy, "small")
            body = request_body(api, GET_WEATHER, stream=stream, model="scripted")
            key = fetch(proxy.url + PATHS[api], body)[1]["x-request-id"]
            wait_until(lambda key=key: f'"{key}", "method"' in log.getvalue())
            [line] = [
                one
                for one in map(json.loads, log.getvalue().splitlines())
                if one.get("request_id") == key and "method" in one
            ]
            page = shown(proxy.get(f"/inspector/requests/{key}")[2])
            found = re.findall(r"tokens: ([^\n]*)", page)
            assert len(found) == len(costs), case
            for cost, pattern in zip(found, costs, strict=True):
                assert re.fullmatch(pattern, cost.strip()), case
            names = re.findall(r"Turn \d: (\w+)(?:, (\w+))?", page)
            models = [(1, ("one", ""))] if len(costs) == 1 else [(len(costs), ("two", "small"))]
            assert names[-1] == models[0][1], case
            numbers = [[int(n) for n in re.findall(r"\d+", cost)] for cost in found]
            total = [sum(one) for one in zip(*numbers, strict=True)]
            assert [line["tokens_in"], line["tokens_out"]] == total, case
            assert line.get("tokens_estimated", False) == ("estimated" in str(found)), case
            assert difference(proxy, before[0]) == total, case
            of_second = [[*n] for n, name in zip(numbers, names, strict=True) if name[0] == "two"]
            assert difference(proxy, before[1], "small") == [
                sum(one[way] for one in of_second) for way in (0, 1)
            ], case


@pytest.mark.parametrize("api", APIS)
def test_a_disconnected_clients_tokens_are_counted(
    inspect: Callable[..., Inspected], upstream: ScriptedUpstream, api: Api
) -> None:
    proxy = inspect()
    upstream.reply(Reply("It is sunny. " * 30, chunks=3, delay=0.02))
    before = counted(proxy)
    body = request_body(api, GET_WEATHER, stream=True)
    with connect(proxy.url, post_bytes(PATHS[api], body)) as connection:
        read_until(connection, b"sun")
    wait_until(lambda: "left" in shown(proxy.get("/?state=left")[2]).partition("State")[2])
    wait_until(lambda: counted(proxy) != before)
    row = shown(proxy.get("/?state=left")[2])
    tokens_in, tokens_out = difference(proxy, before)
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


def counted(proxy: Inspected, model: str = '[^"]*') -> list[int]:
    """The tokens in the metrics, of all models or of one: in, out."""
    page = read_page(f"{proxy.url}/metrics")
    pattern = rf'^emulator_tokens_total\{{[^}}]*direction="%s",model="{model}"\}} (\S+)$'
    return [
        int(sum(map(float, re.findall(pattern % way, page, re.MULTILINE)))) for way in ("in", "out")
    ]


def difference(proxy: Inspected, before: list[int], *model: str) -> list[int]:
    return [now - then for now, then in zip(counted(proxy, *model), before, strict=True)]


# Path, body of the request, tokens.
PASSED_ON: list[tuple[str, Any, str]] = [
    ("embeddings", {"model": "e", "input": "x"}, "1 + 0"),
    ("audio/transcriptions", {"model": "e"}, "≈ 3 + 4"),
    ("audio/speech", {"model": "e", "input": "Hello"}, "≈ 8 + 0"),
]


@pytest.mark.parametrize(("path", "body", "cost"), PASSED_ON, ids=[row[0] for row in PASSED_ON])
def test_a_passed_on_request_costs_what_its_response_reports_or_an_estimate(
    inspect: Callable[..., Inspected], log: io.StringIO, path: str, body: Any, cost: str
) -> None:
    """A budget paid an estimate that nothing showed."""
    with other_endpoints() as other:
        proxy = inspect(base_url=other.base_url)
        before = counted(proxy)
        fetch(f"{proxy.url}/v1/{path}", body)
        wait_until(lambda: '"tokens_in"' in log.getvalue())
        [line] = [one for one in map(json.loads, log.getvalue().splitlines()) if "tokens_in" in one]
        tokens = [line["tokens_in"], line["tokens_out"]]
        assert f"{'≈ ' * ('tokens_estimated' in line)}{tokens[0]} + {tokens[1]}" == cost
        assert cost in shown(proxy.get("/")[2])
        assert difference(proxy, before) == tokens
