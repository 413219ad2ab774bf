"""Every single-turn Python case of BFCL through the running proxy -> docs/accuracy.md.

    python -m benchmarks.bfcl [--every 20] [--only simple_python] [--style JSON]

The upstream plays an ideal model: it answers each case with the calls of the ground truth, written in one
of the styles of `bfcl_styles`. The official SDK asks the proxy, which may not ask the model again; BFCL's
AST checker judges the calls. So this measures the proxy, not a model: a call that the model wrote clearly
must arrive, in whatever style.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from app import create_app
from benchmarks import bfcl_truth
from benchmarks.bfcl_styles import PROSE, STYLES, Call
from benchmarks.bfcl_truth import Arguments, Case
from benchmarks.report import write_section
from emulator.core import logs
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from tests.support.scripted import Body, Reply, ScriptedUpstream
from tests.support.serving import serve

DOCS = Path(__file__).parent.parent / "docs"
CHUNK = 7  # characters in a delta of a streamed reply
MODES = ("plain", "streamed")


@dataclass(frozen=True)
class Trial:
    """One case, answered in one style, asked for in one mode."""

    case: Case
    style: str
    mode: str
    reply: str

    @property
    def id(self) -> str:
        return f"{self.case.id}/{self.style}/{self.mode}"


@dataclass(frozen=True)
class Outcome:
    """What came of a trial; `fault` is "" where all is right."""

    trial: Trial
    fault: str


def trials(case: Case, only_style: str | None = None) -> Iterator[Trial]:
    """Each style in both modes."""
    toolset = Toolset.parse(case.tools)
    if case.truth:
        by_name = {tool.name: tool for tool in toolset.tools}
        calls = [Call(by_name[name], arguments) for name, arguments in case.ideal]
        replies = {name: style(calls, toolset) for name, style in STYLES.items()}
    else:
        replies = {name: prose(toolset) for name, prose in PROSE.items()}
    for style, reply in replies.items():
        if only_style in (None, style):
            for mode in MODES:
                yield Trial(case, style, mode, reply)


class Bench:
    """Client, proxy and upstream. Safe among threads."""

    def __init__(self, client: openai.OpenAI, scripts: dict[str, Trial]) -> None:
        self._client = client
        self._scripts = scripts

    def run(self, trial: Trial) -> Outcome:
        """Ask for `trial` and judge the answer."""
        self._scripts[trial.id] = trial
        try:
            message = self._ask(trial)
        except openai.APIError as error:
            return Outcome(trial, f"{type(error).__name__}: {error}")
        finally:
            del self._scripts[trial.id]
        return Outcome(trial, _fault(trial, message))

    def _ask(self, trial: Trial) -> ChatCompletionMessage:
        request: dict[str, Any] = {
            "model": trial.id,
            "messages": list(trial.case.messages),
            "extra_headers": {"x-emulator-order": "dataflow"},
        }
        if trial.case.tools:  # four cases have none, and OpenAI's API refuses an empty list
            request["tools"] = trial.case.tools
        if trial.mode == "plain":
            completion: ChatCompletion = self._client.chat.completions.create(**request)
        else:
            with self._client.chat.completions.stream(**request) as stream:
                completion = stream.get_final_completion()
        return completion.choices[0].message


@contextmanager
def bench() -> Iterator[Bench]:
    """A proxy with its default settings, but that a model has one attempt and no kernel waits."""
    scripts: dict[str, Trial] = {}
    with ExitStack() as running:

        def answer(body: Body) -> Reply:
            upstream.exchanges.clear()  # tens of thousands of them
            trial = scripts[body["model"]]
            return Reply(trial.reply, chunks=CHUNK if trial.mode == "streamed" else None)

        upstream = running.enter_context(ScriptedUpstream(default=answer))
        settings = Settings(
            base_url=upstream.base_url,
            profile="default",
            repair_attempts=0,
            database=":memory:",
        )
        app = create_app(settings)
        running.callback(app.extensions["emulator"].close)
        url = running.enter_context(serve(app))
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        yield Bench(running.enter_context(client), scripts)


def _fault(trial: Trial, message: ChatCompletionMessage) -> str:
    """What is wrong with an answer; "" for nothing."""
    calls = _calls(message)
    fault = bfcl_truth.judge(trial.case, calls)
    if not fault and not trial.case.truth and message.content != trial.reply:
        fault = f"the prose came out as {message.content!r}"
    return fault


def _calls(message: ChatCompletionMessage) -> list[tuple[str, Arguments]]:
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or ()
        if call.type == "function"
    ]


def run(cases: Sequence[Case], style: str | None, jobs: int) -> list[Outcome]:
    """All trials of `cases`, those of a case together, so that its toolset is read once."""
    outcomes: list[Outcome] = []
    done = 0
    lock = threading.Lock()
    began = time.monotonic()

    def run_case(case: Case) -> list[Outcome]:
        nonlocal done
        found = [benching.run(trial) for trial in trials(case, style)]
        with lock:
            done += 1
            if done % 50 == 0 or done == len(cases):
                pace = (time.monotonic() - began) / done
                print(f"{done}/{len(cases)} cases, {pace:.2f} s each", file=sys.stderr)
        return found

    with bench() as benching, ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(run_case, cases):
            outcomes += found
    return outcomes


# The report


PAGE = """\
## BFCL: is an ideal reply read correctly?

Every single-turn Python case of bfcl-eval {version}, and every irrelevance case. The upstream plays an ideal
model: it writes the calls of the ground truth in each of {styles} styles. The official SDK asks the proxy,
which
may not ask the model again; BFCL's AST checker judges the calls. So this measures the proxy, not a model
(`make bench-bfcl`).

{by_style}

If no tool fits, prose must pass unchanged, without a call:

{by_prose}

Excluded: {flawed} cases in which no accepted answer satisfies the case's own schema
([list](../benchmarks/bfcl_exceptions.md)), and `live_relevance`, which has no ground truth.
"""

EXCEPTIONS = """\
# Excluded BFCL cases

Written by `make bench-bfcl` (bfcl-eval {version}). In {flawed} of {cases} cases no accepted answer
satisfies the case's own schema:

{excluded}

Wrong answers in all other cases: {wrong}
"""


def report(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """The section of docs/accuracy.md."""
    return PAGE.format(
        version=version("bfcl-eval"),
        styles=len(STYLES),
        by_style=_table("style", (o for o in outcomes if o.trial.case.truth), _style),
        by_prose=_table("prose", (o for o in outcomes if not o.trial.case.truth), _style),
        flawed=sum(bool(case.flaw) for case in cases),
    )


def exceptions(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """benchmarks/bfcl_exceptions.md: every excluded case, and every wrong answer."""
    flawed = [case for case in cases if case.flaw]
    wrong = [outcome for outcome in outcomes if outcome.fault]
    return (
        EXCEPTIONS.format(
            version=version("bfcl-eval"),
            flawed=len(flawed),
            cases=len(cases),
            excluded="\n".join(_item(case.id, case.flaw) for case in flawed),
            wrong="\n".join(
                ["none." if not wrong else "", *(_item(o.trial.id, o.fault) for o in wrong)]
            ),
        ).rstrip()
        + "\n"
    )


def _table(title: str, outcomes: Iterable[Outcome], row_of: Callable[[Outcome], str]) -> str:
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        cell = (row_of(outcome), outcome.trial.mode)
        total[cell] += 1
        right[cell] += not outcome.fault
    lines = [f"| {title} | {' | '.join(MODES)} |", f"| --- |{' ---: |' * len(MODES)}"]
    rows: dict[str, list[str]] = {}
    for row in dict.fromkeys(row for row, _ in total):
        cells = (f"{right[row, mode]} of {total[row, mode]}" for mode in MODES)
        rows.setdefault(" | ".join(cells), []).append(row)
    lines += [f"| {', '.join(names)} | {cells} |" for cells, names in rows.items()]
    return "\n".join(lines)


def _style(outcome: Outcome) -> str:
    name = outcome.trial.style
    return f"`{name}`" if name[0] in "<[" else name


def _item(name: str, reason: str) -> str:
    return f"- `{name}`: {' '.join(reason.split()).replace('<', '&lt;')}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th case; writes nothing")
    parser.add_argument("--only", help="cases whose id begins so; writes nothing")
    parser.add_argument("--style", choices=[*STYLES, *PROSE], help="one style; writes nothing")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time (default 4)")
    parser.add_argument("--show", type=int, default=20, help="wrong answers to print (default 20)")
    options = parser.parse_args(arguments)
    logs.configure("error")

    cases = [
        case
        for number, case in enumerate(bfcl_truth.load())
        if number % options.every == 0 and case.id.startswith(options.only or "")
    ]
    outcomes = run([case for case in cases if not case.flaw], options.style, options.jobs)
    wrong = [outcome for outcome in outcomes if outcome.fault]
    for outcome in wrong[: options.show]:
        print(f"\n{outcome.trial.id}: {outcome.fault}\n{outcome.trial.reply}")
    print(report(cases, outcomes))
    if options.every == 1 and not options.only and not options.style:
        write_section(DOCS / "accuracy.md", "bfcl", report(cases, outcomes))
        (Path(__file__).parent / "bfcl_exceptions.md").write_text(
            exceptions(cases, outcomes), "utf-8"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
