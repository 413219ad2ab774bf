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
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import openai

from app import create_app
from benchmarks.cases import HALVES, TOOLS, Case
from emulator import logs
from emulator.settings import Settings
from emulator.tools.toolset import Toolset
from emulator.upstream import local_model
from tests.support.serving import serve

TEMPERATURE = 1.5
MAX_TOKENS = 96

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
            tools=[TOOLS[name] for name in case.offered],
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            seed=seed,
        )
    except openai.InternalServerError as error:
        if verbose:
            print(error.message, flush=True)
        return "refused" if error.code == "model_invalid" else "words"  # none, or a promise
    choice = completion.choices[0]
    toolset = Toolset.parse([TOOLS[name] for name in case.offered])
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
    parser.add_argument("--only", default="", help="ways that begin so")
    parser.add_argument("--base-url", help="a model that is already being served")
    parser.add_argument("--verbose", action="store_true", help="tell of each that is refused")
    options = parser.parse_args()
    logs.configure("error")
    cases = [case for half in HALVES.values() for case in half]
    with ExitStack() as running:
        url = options.base_url or running.enter_context(local_model.serve())
        ways = running.enter_context(proxies(url, options.only))
        print("| way | replies | calls | refused | valid | words | cut off | s a reply |")
        print("|---|---|---|---|---|---|---|---|")
        for way, client in ways.items():
            began = time.perf_counter()
            seen: Counter[str] = Counter()
            for n in range(options.samples):
                seen[outcome(client, cases[n % len(cases)], n, verbose=options.verbose)] += 1
            tried = seen["call"] + seen["refused"]
            valid = f"{100 * seen['call'] / tried:.1f} %" if tried else "-"
            seconds = (time.perf_counter() - began) / max(options.samples, 1)
            print(
                f"| {way} | {options.samples} | {seen['call']} | {seen['refused']} | {valid} "
                f"| {seen['words']} | {seen['cut']} | {seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
