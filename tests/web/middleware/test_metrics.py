"""What `/metrics` counts, and that the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app import create_app
from emulator.core.client_keys import entry, new_key
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.processes import proxy as proxy_process
from tests.support.processes import wait_until
from tests.support.programs import CHAIN, HITS, TOOLS
from tests.support.raw_http import fetch, read_page, send
from tests.support.scripted import Reply, ScriptedUpstream

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "dashboard.json"
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
CHAT = {"model": "never-listed", "messages": [{"role": "user", "content": "Hi"}]}
SAMPLE = re.compile(r"^(emulator_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
ROUTE = 'route="/v1/chat/completions"'
Samples = Counter[tuple[str, str]]


def page(url: str, key: str = "") -> str:
    return read_page(f"{url}/metrics", key)


def samples(url: str, key: str = "") -> Samples:
    """(name, labels) -> value. All proxies of a process count together."""
    found = SAMPLE.findall(page(url, key))
    return Counter({(name, labels): float(value) for name, labels, value in found})


def counted(url: str, before: Samples, key: str = "") -> dict[tuple[str, str], float]:
    """What has risen since."""
    now = samples(url, key)
    return {key: now[key] - before[key] for key in now if now[key] != before[key]}


def ask(url: str, expected: int = 200, **fields: Any) -> Any:
    status, _, body = send(f"{url}/v1/chat/completions", {**CHAT, **fields})
    assert status == expected
    return body


def test_an_answer_with_a_repair_is_counted_in_all_its_parts(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    before = samples(proxy)
    upstream.reply("```tool_code\nget_weather(\n```", "```tool_code\nget_weather()\n```")
    ask(proxy, tools=[WEATHER])
    answered = ("emulator_answers_total", f'mode="emulated",outcome="called",{ROUTE}')
    wait_until(lambda: answered in counted(proxy, before))
    risen = counted(proxy, before)
    expected = {
        answered: 1,
        ("emulator_requests_total", 'path="/v1/chat/completions",status="200"'): 1,
        ("emulator_first_token_seconds_count", ROUTE): 1,
        ("emulator_answer_seconds_count", ROUTE): 1,
        ("emulator_blocks_total", 'outcome="read",reader="python"'): 1,
        ("emulator_blocks_total", 'outcome="unreadable",reader="python"'): 1,
        ("emulator_repairs_total", 'kind="invalid"'): 1,
        ("emulator_model_turns_total", ""): 2,
        ("emulator_tool_calls_total", ""): 1,
        ("emulator_tokens_total", 'client="",direction="in",model="other"'): 14,
        ("emulator_tokens_total", 'client="",direction="out",model="other"'): 6,
    }
    assert {key: risen.get(key) for key in expected} == expected
    assert ("emulator_program_runs_total", 'outcome="read"') in risen


def test_tokens_are_counted_by_listed_model_and_named_client(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Those of a failed answer count too, of all four turns: three tokens each, or as estimated."""
    key = new_key()
    (tmp_path / "keys").write_text(entry("ann", key))
    keys = {"client_keys_file": str(tmp_path / "keys"), "inspector_key": OPERATOR}
    proxy = start_proxy(
        **keys,
    )
    before = samples(proxy, OPERATOR)
    headers = {"authorization": f"Bearer {key}"}
    _, _, listed = send(f"{proxy}/v1/models", None, headers)
    for wrong in range(4):
        upstream.reply(f"```tool_code\nget_weather(1, {wrong})\n```")
    asked = {"model": listed["data"][0]["id"], "tools": [WEATHER], "tool_choice": "required"}
    status, _, _ = send(f"{proxy}/v1/chat/completions", {**CHAT, **asked}, headers)
    assert status == 502
    labels = f'client="ann",direction="out",model="{listed["data"][0]["id"]}"'
    wait_until(
        lambda: counted(proxy, before, OPERATOR).get(("emulator_tokens_total", labels), 0) > 6
    )


OPERATOR = "operators-own-key"
OTHERS = {
    "no key": {},
    "a client's key": {"authorization": "Bearer CLIENT"},
    "a client's key, as Anthropic's clients send it": {"x-api-key": "CLIENT"},
    "a wrong key": {"authorization": f"Bearer {OPERATOR}-"},
    "no more than the scheme": {"authorization": "Bearer "},
    "a session": {"cookie": f"emulator_inspector={OPERATOR}"},
}


@pytest.mark.parametrize("workers", [1, 2])
def test_only_the_operators_key_shows_the_names_of_clients(
    upstream: ScriptedUpstream, tmp_path: Path, workers: int
) -> None:
    """Everyone who reached the port saw each client's name and usage. The sums are the same for all."""
    upstream.default = "Hello."
    keys = {name: new_key() for name in ("ann-at-work", "bob-at-home")}
    (tmp_path / "keys").write_text("".join(entry(name, key) for name, key in keys.items()))
    options = [f"--client-keys-file={tmp_path / 'keys'}", f"--workers={workers}"]
    options += [f"--inspector-key={OPERATOR}", f"--database={tmp_path / 'store'}"]
    with proxy_process(upstream.base_url, tmp_path / "log", *options) as (_, url):
        for key in [*keys.values(), *keys.values()]:
            headers = {"authorization": f"Bearer {key}"}
            assert send(f"{url}/v1/chat/completions", CHAT, headers)[0] == 200
        wait_until(lambda: tokens(page(url, OPERATOR)).total() == 4 * (7 + 3))
        assert tokens(page(url, OPERATOR)) == {"ann-at-work": 20, "bob-at-home": 20}
        operators = {"x-api-key": OPERATOR}
        assert tokens(fetch(f"{url}/metrics", None, operators)[2].decode()).keys() == keys.keys()
        for name, headers in OTHERS.items():
            written = {n: v.replace("CLIENT", keys["ann-at-work"]) for n, v in headers.items()}
            status, _, raw = fetch(f"{url}/metrics", None, written)
            assert (status, tokens(raw.decode())) == (200, {"": 40}), name
            assert "at-work" not in raw.decode() and "at-home" not in raw.decode(), name


def tokens(text: str) -> Counter[str]:
    """The number of tokens of each client."""
    total: Counter[str] = Counter()
    for client, number in re.findall(r'_tokens_total\{client="(.*?)",.*\} (\S+)', text):
        total[client] += float(number)
    return total


def test_a_saved_turn_counts_its_saved_tokens(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(CHAIN)
    message = ask(proxy, tools=TOOLS)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": HITS}
    before = samples(proxy)
    ask(proxy, tools=TOOLS, messages=[*CHAT["messages"], message, result])
    wait_until(lambda: ("emulator_tokens_saved_total", "") in counted(proxy, before))
    risen = counted(proxy, before)
    assert risen["emulator_turns_saved_total", ""] == 1
    assert 50 < risen["emulator_tokens_saved_total", ""] < 2000
    assert not any(name == "emulator_tokens_total" for name, _ in risen)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=500), "failed"),
        (Reply(status=401), "unauthorized"),
        (Reply(status=400), "refused"),
        (Reply(status=429), "rate_limited"),
        (Reply("word " * 9, chunks=1, fault="drop", after=3), "broken"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_upstreams_errors_are_counted_by_upstream_and_kind(
    start_proxy: StartProxy, upstream: ScriptedUpstream, reply: Reply, kind: str
) -> None:
    row = {"name": "gpu-1", "base_url": upstream.base_url, "api_key": "k", "models": ["*"]}
    url = start_proxy(upstreams=[row], upstream_retries=0)
    before = samples(url)
    upstream.reply(reply)
    send(f"{url}/v1/chat/completions", CHAT)
    error = ("emulator_upstream_errors_total", f'kind="{kind}",upstream="gpu-1"')
    outcome = ("emulator_answers_total", f'mode="relayed",outcome="failed",{ROUTE}')
    wait_until(lambda: outcome in counted(url, before))
    assert counted(url, before)[error] == 1


def test_an_unreachable_upstream_is_counted_as_unreachable(start_proxy: StartProxy) -> None:
    url = start_proxy(base_url="http://127.0.0.1:1/v1", upstream_retries=1)
    before = samples(url)
    ask(url, expected=502)
    error = ("emulator_upstream_errors_total", 'kind="unreachable",upstream="upstream"')
    assert counted(url, before)[error] == 2


def test_no_value_of_a_client_becomes_a_label(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.default = "Hello."
    made_up = "made-up-word"
    ask(proxy, model=made_up, user=made_up, tools=[{"type": made_up}])
    send(f"{proxy}/v1/{made_up}")
    send(f"{proxy}/{made_up}/{made_up}")
    send(f"{proxy}/v1/responses/{made_up}")
    assert made_up not in page(proxy)


def test_the_dashboard_uses_only_existing_metrics_and_labels() -> None:
    from prometheus_client import REGISTRY

    app = create_app(Settings(database=":memory:"))
    app.extensions["emulator"].close()
    labels = {"le"}
    names = set()
    for collector in {*REGISTRY._collector_to_names}:
        for family in collector.collect():
            names |= {family.name, *(f"{family.name}_{end}" for end in ("total", "bucket"))}
        labels |= {*getattr(collector, "_labelnames", ())}
    dashboard = json.loads(DASHBOARD.read_text())
    told = [target for panel in dashboard["panels"] for target in panel["targets"]]
    asked: set[str] = set()
    for target in told:
        expression = target["expr"]
        assert expression.count("(") == expression.count(")"), expression
        named = set(re.findall(r"\bemulator_\w+", expression))
        assert named and named <= names, expression
        grouped = re.findall(r"by \(([^)]*)\)", expression) + re.findall(r"\{(\w+)=", expression)
        used = {label.strip() for group in grouped for label in group.split(",")}
        used |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert used <= labels, expression
        asked |= named
    ours = {name for name in names if name.startswith("emulator_")}
    shown = {re.sub(r"_(?:total|bucket)$", "", name) for name in asked}
    families = {re.sub(r"_(?:total|bucket)$", "", name) for name in ours}
    assert families - shown == set(), "a metric that no panel shows"
