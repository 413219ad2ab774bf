"""How many of a model's calls are valid as they were written, with a constraint and without.

    python -m benchmarks.validity                       # 1,000 replies a row, at temperature 1.5
    python -m benchmarks.validity --samples 200 --only other
    python -m benchmarks.validity --resume              # goes on where the last run was ended

The embedded model answers through the proxy, which may not ask again: what it then refuses is a reply that
tried to call and could not be used. ``tiny`` is that model's own profile, whose schema has values copied
from the request; ``other`` is the prompt of all other models. As this model hardly ever calls by that prompt
alone, its conversation holds a call that was made before.

Each reply is a line of ``build/validity.jsonl`` at once.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

import openai

from app import create_app
from benchmarks.cases import HALVES, TOOLS, Case
from benchmarks.validity_cases import EARLIER, RICH_CASES, RICH_TOOLS
from emulator.core import logs
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from emulator.upstream import local_model
from tests.support.serving import serve

TEMPERATURE = 1.5
MAX_TOKENS = 96
OFFERED = {**TOOLS, **RICH_TOOLS}
CASES = [
    case
    for pair in zip_longest(chain(*HALVES.values()), RICH_CASES)
    for case in pair
    if case is not None
]
"""Simple tools and others in turn."""
REPEATS = 12
"""Replies to one case in a row, as long as a server has its prompt in the cache."""
RESULTS = Path("build/validity.jsonl")

CONSTRAINED = {"name": "constrained", "pattern": ".", "grammar": "json_schema"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "other, schema": {"profile": "constrained", "profiles": (CONSTRAINED,)},
    "other, none": {"profile": "default"},
    "tiny, schema": {"profile": "tiny"},
    "tiny, none": {"profile": "tiny", "grammar": False},
}


def conversation(way: str, case: Case) -> list[Any]:
    """The request; by an ``other`` way behind another one that was answered by a call."""
    asked = {"role": "user", "content": case.request}
    if not way.startswith("other"):
        return [asked]
    name = next(name for name in case.offered if name in EARLIER)
    arguments = EARLIER[name]
    call = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {"role": "user", "content": f"First do this: {name.replace('_', ' ')}, as we said."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"ok": true}'},
        {"role": "assistant", "content": "Done."},
        asked,
    ]


def outcome(client: openai.OpenAI, way: str, case: Case, seed: int) -> tuple[str, str]:
    """``call``, ``words``, ``refused`` (a call that cannot be used) or ``cut`` (by the limit of tokens).

    The second is what the proxy says of it.
    """
    try:
        completion = client.chat.completions.create(
            model=local_model.MODEL_NAME,
            messages=conversation(way, case),
            tools=[OFFERED[name] for name in case.offered],
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            seed=seed,
        )
    except openai.InternalServerError as error:
        # Otherwise there is none, or a promise.
        return ("refused" if error.code == "model_invalid" else "words"), error.message
    choice = completion.choices[0]
    toolset = Toolset.parse([OFFERED[name] for name in case.offered])
    for call in choice.message.tool_calls or []:
        assert call.type == "function"
        tool = next(tool for tool in toolset.tools if tool.name == call.function.name)
        if not tool.validator.is_valid(json.loads(call.function.arguments)):
            return "refused", f"not valid: {call.function}"
    if choice.message.tool_calls:
        return "call", ""
    return ("cut" if choice.finish_reason == "length" else "words"), ""


@contextmanager
def proxies(model_url: str, only: Iterable[str]) -> Iterator[dict[str, openai.OpenAI]]:
    with ExitStack() as running:
        clients = {}
        for way, fields in WAYS.items():
            if not any(way.startswith(begin) for begin in only):
                continue
            settings = Settings(
                base_url=model_url,
                database=":memory:",
                repair_attempts=0,
                **fields,
            )
            app = create_app(settings)
            running.callback(app.extensions["emulator"].close)
            url = running.enter_context(serve(app))
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=600)
            clients[way] = running.enter_context(client)
        yield clients


@dataclass
class Replies:
    """What each reply came to, by way and number; in a file too, a line each."""

    path: Path
    seen: dict[str, dict[int, tuple[str, float]]] = field(default_factory=lambda: defaultdict(dict))
    lock: Lock = field(default_factory=Lock)

    def resume(self) -> None:
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            row = json.loads(line)
            self.seen[row["way"]][row["n"]] = (row["outcome"], row["seconds"])

    def add(self, way: str, n: int, seconds: float, outcome: str, **more: str) -> None:
        row = {"way": way, "n": n, "outcome": outcome, "seconds": round(seconds, 3), **more}
        with self.lock, self.path.open("a") as file:
            self.seen[way][n] = (outcome, seconds)
            file.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="replies of each way of asking")
    parser.add_argument("--minutes", type=float, default=0, help="end sooner, after so long")
    parser.add_argument("--only", default=[], action="append", help="ways that begin so")
    parser.add_argument("--at-once", type=int, default=1, help="replies of a way at a time")
    parser.add_argument("--base-url", help="a model that is already being served")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a line for each reply")
    parser.add_argument("--resume", action="store_true", help="go on with that file")
    options = parser.parse_args()
    logs.configure("error")
    replies = Replies(options.results)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.resume:
        replies.resume()
    else:
        options.results.unlink(missing_ok=True)
    with ExitStack() as running:
        slots = len(WAYS) * options.at_once
        url = options.base_url or running.enter_context(local_model.serve(slots=slots))
        ways = running.enter_context(proxies(url, options.only or [""]))
        until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf

        def sample(way: str, n: int) -> None:
            if time.monotonic() > until or n in replies.seen[way]:
                return
            case = CASES[n // REPEATS % len(CASES)]
            began = time.perf_counter()
            found, words = outcome(ways[way], way, case, n)
            seconds = time.perf_counter() - began
            replies.add(way, n, seconds, found, request=case.request, words=words)

        # At once, so that a busy machine is busy for all.
        pools = {way: running.enter_context(ThreadPoolExecutor(options.at_once)) for way in ways}
        waiting = [
            pools[way].submit(sample, way, n) for way in ways for n in range(options.samples)
        ]
        for one in waiting:
            one.result()
    print(table({way: replies.seen[way] for way in WAYS if replies.seen[way]}))


def table(found: Mapping[str, Mapping[int, tuple[str, float]]]) -> str:
    rows = [
        "| way | replies | calls | refused | valid | words | cut off | s a reply |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way, replies in found.items():
        seen = Counter(outcome for outcome, _ in replies.values())
        seconds = sum(seconds for _, seconds in replies.values())
        tried = seen["call"] + seen["refused"]
        valid = f"{100 * seen['call'] / tried:.1f} %" if tried else "-"
        rows.append(
            f"| {way} | {len(replies)} | {seen['call']} | {seen['refused']} | {valid} "
            f"| {seen['words']} | {seen['cut']} | {seconds / max(len(replies), 1):.2f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
