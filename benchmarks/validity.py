"""How many of a model's calls are valid as they were written, with a grammar and without.

    python -m benchmarks.validity                       # 1,000 replies a row, at temperature 1.5
    python -m benchmarks.validity --samples 200 --only lazy

The embedded model answers through the proxy, which may not ask again: what it then refuses is a reply that
tried to call and could not be used. ``tiny`` is that model's own profile, whose grammar copies values from
the request; ``lazy`` is the prompt of all other models, with words free until a block opens.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, zip_longest
from typing import Any

import openai

from app import create_app
from benchmarks.cases import HALVES, TOOLS, Case
from benchmarks.validity_cases import RICH_CASES, RICH_TOOLS
from emulator import logs
from emulator.settings import Settings
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

LAZY = {"name": "held", "pattern": ".", "grammar": "grammar"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "lazy, grammar": {"profile": "held", "profiles": (LAZY,)},
    "lazy, none": {"profile": "default"},
    "tiny, grammar": {"profile": "tiny"},
    "tiny, none": {"profile": "tiny", "grammar": False},
}


def outcome(client: openai.OpenAI, case: Case, seed: int, *, verbose: bool = False) -> str:
    """``call``, ``words``, ``refused`` (a call that cannot be used) or ``cut`` (by the limit of tokens)."""
    try:
        completion = client.chat.completions.create(
            model=local_model.MODEL_NAME,
            messages=[{"role": "user", "content": case.request}],
            tools=[OFFERED[name] for name in case.offered],
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            seed=seed,
        )
    except openai.InternalServerError as error:
        if verbose:
            print(error.message, flush=True)
        return "refused" if error.code == "model_invalid" else "words"  # none, or a promise
    choice = completion.choices[0]
    toolset = Toolset.parse([OFFERED[name] for name in case.offered])
    for call in choice.message.tool_calls or []:
        assert call.type == "function"
        tool = next(tool for tool in toolset.tools if tool.name == call.function.name)
        assert tool.validator.is_valid(json.loads(call.function.arguments))
    if choice.message.tool_calls:
        return "call"
    return "cut" if choice.finish_reason == "length" else "words"


@contextmanager
def proxies(model_url: str, only: str) -> Iterator[dict[str, openai.OpenAI]]:
    with ExitStack() as running:
        clients = {}
        for way, fields in WAYS.items():
            if not way.startswith(only):
                continue
            settings = Settings(
                base_url=model_url,
                store=":memory:",
                files_dir=":temporary:",
                warm_kernels=0,
                repair_attempts=0,
                **fields,
            )
            app = create_app(settings)
            running.callback(app.extensions["emulator"].close)
            url = running.enter_context(serve(app))
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=600)
            clients[way] = running.enter_context(client)
        yield clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="replies of each way of asking")
    parser.add_argument("--minutes", type=float, default=0, help="end sooner, after so long")
    parser.add_argument("--only", default="", help="ways that begin so")
    parser.add_argument("--base-url", help="a model that is already being served")
    parser.add_argument("--verbose", action="store_true", help="tell of each that is refused")
    options = parser.parse_args()
    logs.configure("error")
    with ExitStack() as running:
        url = options.base_url or running.enter_context(local_model.serve(slots=len(WAYS)))
        ways = running.enter_context(proxies(url, options.only))
        until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf

        def sampled(client: openai.OpenAI) -> tuple[Counter[str], float]:
            seen: Counter[str] = Counter()
            began = time.perf_counter()
            for n in range(options.samples):
                if time.monotonic() > until:
                    break
                case = CASES[n % len(CASES)]
                seen[outcome(client, case, n, verbose=options.verbose)] += 1
            return seen, time.perf_counter() - began

        with ThreadPoolExecutor(
            len(ways)
        ) as pool:  # at once, so that a busy machine is busy for all
            found = dict(zip(ways, pool.map(sampled, ways.values()), strict=True))
        print(table(found))


def table(found: Mapping[str, tuple[Counter[str], float]]) -> str:
    rows = [
        "| way | replies | calls | refused | valid | words | cut off | s a reply |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way, (seen, seconds) in found.items():
        tried = seen["call"] + seen["refused"]
        valid = f"{100 * seen['call'] / tried:.1f} %" if tried else "-"
        rows.append(
            f"| {way} | {seen.total()} | {seen['call']} | {seen['refused']} | {valid} "
            f"| {seen['words']} | {seen['cut']} | {seconds / max(seen.total(), 1):.2f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
