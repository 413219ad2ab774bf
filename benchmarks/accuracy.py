"""How often a very small model calls the right function: JSON prompting compared with the proxy.

    python -m benchmarks.accuracy                # embedded model; writes docs/accuracy.md
    python -m benchmarks.accuracy --verbose --half test --no-write

Each variant gets the same requests at temperature 0. The first is what a client does without a proxy: tools
as JSON in the prompt, a JSON call in the reply, read generously. The others use the proxy through the
official SDK.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from app import create_app
from benchmarks.cases import HALVES, TOOLS, Case, Json, judge
from benchmarks.report import RESULTS, write_section
from emulator.core import logs
from emulator.settings.settings import Settings
from emulator.upstream import local_model
from tests.support.serving import serve

Calls = list[tuple[str, Mapping[str, Json]]]
Ask = Callable[[Case], Calls]

MAX_TOKENS = 96

JSON_PROMPT = """\
You have access to the following functions:

{tools}

To call a function, reply with JSON only: {{"name": "<function>", "arguments": {{...}}}}
If no function fits, answer in plain words."""


@dataclass(frozen=True)
class Score:
    """What one way of asking made of one half of the cases."""

    way: str
    half: str
    calls: int
    function: int
    all_correct: int
    chats: int
    prose: int
    seconds: float

    def row(self) -> str:
        return (
            f"| {self.half} | {self.way} | {self.function}/{self.calls} "
            f"| {self.all_correct}/{self.calls} | {self.prose}/{self.chats} | {self.seconds:.2f} |"
        )


def json_in_prompt(client: openai.OpenAI, case: Case) -> Calls:
    """Tools as JSON in the system message, straight to the model."""
    functions = [TOOLS[name]["function"] for name in case.offered]
    prompt = JSON_PROMPT.format(tools="\n".join(map(json.dumps, functions)))
    completion = client.chat.completions.create(
        model=local_model.MODEL_NAME,
        messages=[
            {"role": "system", "content": prompt},
            {"role": "user", "content": case.request},
        ],
        temperature=0,
        max_tokens=MAX_TOKENS,
    )
    return list(_json_calls(completion.choices[0].message.content or ""))


def through_proxy(client: openai.OpenAI, case: Case) -> Calls:
    """Tools as tools; the proxy does the rest. A request that it gives up is one without calls."""
    try:
        completion = client.chat.completions.create(
            model=local_model.MODEL_NAME,
            messages=[{"role": "user", "content": case.request}],
            tools=[TOOLS[name] for name in case.offered],
            temperature=0,
            max_tokens=MAX_TOKENS,
        )
    except openai.InternalServerError:
        return []
    made = completion.choices[0].message.tool_calls or []
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in made
        if call.type == "function"
    ]


def _json_calls(reply: str) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Every JSON object of a reply that looks like a call, whatever stands around it."""
    place = 0
    while (place := reply.find("{", place)) >= 0:
        try:
            found, place = json.JSONDecoder().raw_decode(reply, place)
        except json.JSONDecodeError:
            place += 1
            continue
        arguments = found.get("arguments", found.get("parameters"))
        if isinstance(found.get("name"), str) and isinstance(arguments, dict):
            yield found["name"], arguments


@contextmanager
def ways(model_url: str) -> Iterator[dict[str, Ask]]:
    """The ways of asking, each with a client of its own; two are in front of a proxy."""
    with ExitStack() as running:

        def client(url: str) -> openai.OpenAI:
            made = openai.OpenAI(base_url=url, api_key="any", max_retries=0, timeout=600)
            return running.enter_context(made)

        def proxy(*, constrained: bool) -> openai.OpenAI:
            settings = Settings(
                base_url=model_url,
                profile="tiny",
                grammar=constrained,
                database=":memory:",
            )
            app = create_app(settings)
            running.callback(app.extensions["emulator"].close)
            return client(f"{running.enter_context(serve(app))}/v1")

        direct, plain, constrained = (
            client(model_url),
            proxy(constrained=False),
            proxy(constrained=True),
        )
        yield {
            "JSON in the prompt": lambda case: json_in_prompt(direct, case),
            "our prompt": lambda case: through_proxy(plain, case),
            "our prompt + schema": lambda case: through_proxy(constrained, case),
        }


def measure(way: str, ask: Ask, half: str, cases: Sequence[Case], *, verbose: bool) -> Score:
    """Ask every case once."""
    began = time.monotonic()
    verdicts = []
    for case in cases:
        calls = ask(case)
        verdicts.append((case, judge(case, calls)))
        if verbose:
            verdict = verdicts[-1][1]
            word = "right" if verdict.all_correct else "function" if verdict.function else "wrong"
            print(f"{word:8} {case.request!r} -> {calls}", flush=True)
    wanted = [verdict for case, verdict in verdicts if case.function]
    chats = [verdict for case, verdict in verdicts if not case.function]
    return Score(
        way,
        half,
        calls=len(wanted),
        function=sum(verdict.function for verdict in wanted),
        all_correct=sum(verdict.all_correct for verdict in wanted),
        chats=len(chats),
        prose=sum(verdict.all_correct for verdict in chats),
        seconds=(time.monotonic() - began) / len(cases),
    )


def table(scores: Sequence[Score]) -> str:
    columns = ("half", "asked by", "right function", "all correct", "prose for chat", "s/case")
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*head, *(score.row() for score in scores)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-url", help="URL of a running llama.cpp server")
    parser.add_argument("--half", choices=list(HALVES), help="only one half of the cases")
    parser.add_argument(
        "--only", default="", help="variants whose name ends with this; nothing is written"
    )
    parser.add_argument("--verbose", action="store_true", help="print every answer")
    parser.add_argument("--no-write", action="store_true", help="leave docs/accuracy.md alone")
    options = parser.parse_args(arguments)
    logs.configure("error")
    with ExitStack() as running:
        url: Any = options.base_url or running.enter_context(local_model.serve())
        variants = running.enter_context(ways(url))
        scores = [
            measure(way, ask, half, HALVES[half], verbose=options.verbose)
            for half in ([options.half] if options.half else HALVES)
            for way, ask in variants.items()
            if way.endswith(options.only)
        ]
    print(table(scores))
    if not (options.no_write or options.half or options.only):
        write_section(RESULTS, "accuracy", table(scores))


if __name__ == "__main__":
    sys.exit(main())
