"""`make bench-rivals`; the package says what is measured. ``--quick`` tries every eighth way of writing calls
and measures costs in three rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import cpu_count, getloadavg
from pathlib import Path
from statistics import median
from typing import Any

import openai

from benchmarks import turns
from benchmarks.load import requests, servers
from benchmarks.load.cases import Case as CostCase
from benchmarks.load.cases import same
from benchmarks.load.client import Load
from benchmarks.load.measure import Target, compare, first_chunk_added
from benchmarks.report import write_section
from benchmarks.rivals.cases import CASES, MESSAGES, TOOLS, Case
from benchmarks.turns_tasks import TASKS
from emulator import __version__
from tests.support.scripted import Body, Reply, ScriptedUpstream

PAGE = Path(__file__).parents[1] / "rivals.md"
GATEWAYS = {"proxy": servers.proxy, "forge": servers.forge, "litellm": servers.litellm}
PACKAGES = {"forge": (servers.FORGE, "forge-guardrails"), "litellm": (servers.LITELLM, "litellm")}
TITLES = {"proxy": "this proxy", "forge": "Forge", "litellm": "LiteLLM"}
ROUNDS = 9
_FORMATS = sum(case.group == CASES[0].group for case in CASES)
"""They come first."""
ONE = [requests.WEATHER]
COSTS = tuple(
    CostCase(name, same(body), tuple(GATEWAYS))
    for name, body in (
        ("words, without tools", requests.chat("say-200-200")),
        ("words in 50 chunks, streamed", requests.chat("say-200-4-1", stream=True)),
        ("a call in Hermes' format", requests.chat("hermes", tools=ONE)),
        ("the same, streamed", requests.chat("hermes", tools=ONE, stream=True)),
    )
)
Cost = tuple[str, Mapping[str, float], str]
"""What is measured, its figure for each gateway, and how that is written."""


@dataclass
class Score:
    """What came of the cases of a group at one gateway."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    turns: int = 0
    read: int = 0
    """Tokens of the model's prompts."""
    written: int = 0

    @property
    def cases(self) -> int:
        return self.passed + len(self.failed)


def play(case: Case, client: openai.OpenAI, upstream: ScriptedUpstream, score: Score) -> None:
    """Do a case. Calls that a gateway sends one after the other, without asking the model, count."""
    replies = iter(case.replies)
    made: list[Reply] = []

    def answer(body: Body) -> Reply:
        if any(message["role"] == "tool" for message in messages):
            text: str | Reply = "Done."
        elif made and "Answer RUN" in str(body["messages"][-1]["content"]):
            text = case.means
        else:
            text = next(replies, case.replies[-1])
        made.append(text if isinstance(text, Reply) else Reply(text))
        return made[-1]

    upstream.default = answer
    before = len(upstream.requests)
    messages: list[Any] = [*MESSAGES]
    wanted = [(name, dict(arguments)) for name, arguments in case.calls]
    got: list[tuple[str, Any]] = []
    passed = False
    try:
        while not passed:
            completion = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            message = completion.choices[0].message
            called = message.tool_calls or ()
            got += [_as_pair(call) for call in called]
            unchanged = (message.content or "").strip() == made[0].text.strip()
            passed = got == wanted and (bool(wanted) or unchanged)
            if not called or got != wanted[: len(got)]:
                break
            results = [{"role": "tool", "tool_call_id": one.id, "content": "ok"} for one in called]
            messages += [message, *results]
    except (openai.APIStatusError, openai.APITimeoutError, ValueError):
        pass
    score.turns += len(made)
    score.read += sum(turns.tokens(turns.prompt(body)) for body in upstream.requests[before:])
    score.written += sum(turns.tokens([turns.written(reply)]) for reply in made)
    if passed:
        score.passed += 1
    else:
        score.failed.append(case.name)


def _as_pair(call: Any) -> tuple[str, Any]:
    return call.function.name, json.loads(call.function.arguments)


def programs(client: openai.OpenAI, upstream: ScriptedUpstream, writes: str) -> Score:
    """The tasks of `benchmarks.turns`: the model writes a program, or native calls turn by turn."""
    model, _ = turns.MODES[writes]
    score = Score()
    for task in TASKS:
        try:
            cost = turns.play(task, client, upstream, model(task))
        except (AssertionError, openai.APIStatusError):
            score.failed.append(task.name)
            continue
        score.passed += 1
        score.turns += cost.turns
        score.read += cost.prompt_tokens
        score.written += cost.reply_tokens
    return score


def scores(cases: Sequence[Case], only: Sequence[str]) -> dict[str, dict[str, Score]]:
    """Group -> gateway -> what came of it."""
    found: dict[str, dict[str, Score]] = defaultdict(lambda: defaultdict(Score))
    with ScriptedUpstream() as upstream:
        for name in only:
            with (
                GATEWAYS[name](upstream.base_url) as server,
                openai.OpenAI(
                    base_url=server.base_url, api_key="sk-1", max_retries=0, timeout=60
                ) as client,
            ):
                for case in cases:
                    play(case, client, upstream, found[case.group][name])
                writes = "programs on" if name == "proxy" else "JSON calls"
                found["tasks of several steps"][name] = programs(client, upstream, writes)
            print(
                f"{name}: {[(g, s[name].passed, s[name].cases) for g, s in found.items()]}",
                file=sys.stderr,
            )
    return found


def costs(rounds: int, only: Sequence[str]) -> Iterator[Cost]:
    with ExitStack() as running:
        base_url = running.enter_context(servers.upstream())
        started = {name: running.enter_context(_start(name, base_url)) for name in only}
        starts = {name: [server.ready_seconds] for name, server in started.items()}
        idle = {name: server.memory() for name, server in started.items()}
        targets = {
            name: Target(server, running.enter_context(closing(Load(server.base_url))))
            for name, server in started.items()
        }
        for case in COSTS:
            figures = compare(case, targets, rounds)
            yield f"CPU, ms: {case.name}", {n: one.ms for n, one in figures.items()}, ".2f"
        for title, offered in (("", None), (", with tools", ONE)):
            body = requests.chat("say-200-4-1", stream=True, tools=offered)
            with closing(Load(base_url)) as direct:
                added = first_chunk_added(body, direct, targets, 4 * rounds)
            yield f"ms added to the first streamed word{title}", added, ".1f"
        yield "MiB of memory after the start (PSS)", idle, ".0f"
        yield "MiB after these requests", {n: s.memory() for n, s in started.items()}, ".0f"
    for name in only:
        for _ in range(2):
            with servers.upstream() as base_url, _start(name, base_url) as server:
                starts[name].append(server.ready_seconds)
    yield "seconds to start", {name: median(found) for name, found in starts.items()}, ".1f"


def _start(name: str, base_url: str) -> AbstractContextManager[servers.Server]:
    return GATEWAYS[name](base_url)


def page(found: Mapping[str, Mapping[str, Score]], measured: Sequence[Cost], head: str) -> str:
    """The tables; the best figure of each row is bold."""
    names = list(next(iter(found.values())))
    heads = " | ".join(f"{TITLES[name]} {version(name)}" for name in names)
    rule = "---:|" * len(names)
    passed, asked, costs = [], [], []
    ahead: dict[str, list[str]] = defaultdict(list)
    for group, by_name in found.items():
        of = by_name[names[0]].cases
        right = {name: score.passed for name, score in by_name.items()}
        turns = {name: score.turns for name, score in by_name.items()}
        tokens = {n: f"; {s.read / of:.0f} + {s.written / of:.0f}" for n, s in by_name.items()}
        passed.append(f"| {group} | {of} | {_row(right, max(right.values()))} |")
        for name in names:
            if right[name] > right.get("proxy", of):
                ahead[name].append(group)
        asked.append(f"| {group} | {_row(turns, min(turns.values()), tokens)} |")
    for title, values, form in measured:
        written = {name: format(values[name], form) for name in names}
        costs.append(f"| {title} | {_row(written, min(written.values(), key=float))} |")
        for name in names:
            if values[name] < values.get("proxy", 0):
                ahead[name].append(title)
    return "\n".join(
        [
            head,
            *("", f"| cases passed | of | {heads} |", f"|---|---:|{rule}", *passed),
            *("", f"| the model's turns; tokens read + written for each case | {heads} |"),
            *(f"|---|{rule}", *asked),
            *("", f"| cost, in the median | {heads} |", f"|---|{rule}", *costs),
            *("", "Ahead of this proxy, in cases or costs:", ""),
            *(f"- {TITLES[name]}: {'; '.join(titles)}" for name, titles in ahead.items()),
        ]
    )


def _row(values: Mapping[str, object], best: object, more: Mapping[str, str] = {}) -> str:
    cells = {n: f"**{value}**" if value == best else str(value) for n, value in values.items()}
    return " | ".join(cell + more.get(name, "") for name, cell in cells.items())


def version(name: str) -> str:
    """The version of a gateway."""
    if name == "proxy":
        return __version__
    program, package = PACKAGES[name]
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    command = [program.with_name("python"), "-c", ask]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-rivals", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="some minutes less; writes nothing")
    parser.add_argument("--only", action="append", choices=GATEWAYS, help="writes nothing")
    parser.add_argument("--failed", action="store_true", help="print the cases that fail")
    options = parser.parse_args()
    only = options.only or tuple(GATEWAYS)
    rounds = 3 if options.quick else ROUNDS
    head = (
        f"Measured by `make bench-rivals` on {datetime.now(UTC):%Y-%m-%d} ({cpu_count()} CPUs, "
        f"{platform.system()}, Python {platform.python_version()}; {rounds} rounds; load average "
        f"{getloadavg()[0]:.0f} at the start)."
    )
    cases = [*CASES[:_FORMATS:8], *CASES[_FORMATS:]] if options.quick else CASES
    measured = list(costs(rounds, only))
    found = scores(cases, only)
    if options.failed:
        for group, by_name in found.items():
            for name, score in by_name.items():
                for each in score.failed:
                    print(f"{name}: {group}: {each}")
    text = page(found, measured, head)
    print(text)
    if not options.quick and not options.only:
        write_section(PAGE, "rivals", text)


if __name__ == "__main__":
    main()
