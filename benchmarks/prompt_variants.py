"""What changes of the Python prompt do to the probability of the right reply -> docs/prompts.md.

    python -m benchmarks.prompt_variants [--cases 16] [--server http://127.0.0.1:8080]

Small models hardly write a right call in Python, so counting shows no difference. The log-probability of the
right reply does: a grammar makes llama.cpp write it, and it reports what the model itself gave each token.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import urllib3

from benchmarks import bfcl_truth
from benchmarks.report import write_section
from emulator.answering.call_policy import CallPolicy
from emulator.answering.profiles import choose
from emulator.answering.prompt import instruct
from emulator.answering.python_calls import example, write_call
from emulator.answering.ways.way import PYTHON
from emulator.protocol import FunctionCall, Message
from emulator.tasks import tasks
from emulator.tools.toolset import SchemaError, Toolset
from emulator.upstream import local_model

PAGE = Path(__file__).parent.parent / "docs" / "prompts.md"
MEASURES = {"call": "multiple", "several": "parallel_multiple", "needless": "irrelevance"}
"""Measure -> the BFCL category of its cases. The measure `shown` has the cases of `call`."""
SHOW = "Show me the Python code for this, but do not run it: "
BASE, LABEL = "as it is", "label: "


@dataclass(frozen=True)
class Case:
    measure: str
    request: str
    toolset: Toolset
    code: str = ""

    def replies(self, label: str) -> Iterator[tuple[int, str]]:
        """What the model is made to write, and the sign with which it counts."""
        written = f"\n{self.code}\n```" if self.code else "\n"
        if self.measure == "shown":
            yield 1, f"```python{written}"
        yield -1 if self.measure == "shown" else 1, f"```{label}{written}"


def cases(number: int) -> Iterator[Case]:
    """Fit's tasks with calls, then ``number`` of BFCL's cases for each measure."""
    for task in tasks():
        if task.calls and task.kind != "chain":
            calls = json.loads(json.dumps(task.calls), object_hook=lambda t: t.get("any", [t])[0])
            yield _case(task.ask, task.tools, calls)
    for measure, category in MEASURES.items():
        found = [case for case in bfcl_truth.load([category]) if not (case.truth and case.flaw)]
        for bfcl in random.Random(1).sample(found, number):
            try:
                case = _case(bfcl.messages[-1]["content"], bfcl.tools, bfcl.ideal)
            except SchemaError:
                continue
            yield case
            if measure == "call":
                yield replace(case, measure="shown", request=SHOW + case.request)


def _case(request: str, tools: Sequence[Mapping[str, Any]], calls: Sequence[Any]) -> Case:
    toolset = Toolset.parse([dict(tool) for tool in tools])
    functions = [FunctionCall(name=name, arguments=json.dumps(values)) for name, values in calls]
    code = ", ".join(write_call(function, toolset) for function in functions)
    measure = ("needless", "call", "several")[min(len(calls), 2)]
    return Case(measure, request, toolset, f"[{code}]" if len(calls) > 1 else code)


def prompts(case: Case) -> dict[str, list[dict[str, Any]]]:
    """The messages of each prompt: functions, an example and rules, changed in one respect."""
    asked = [Message(role="user", content=case.request)]
    [system, user] = instruct(asked, case.toolset, CallPolicy(), choose("auto", "any"), way=PYTHON)
    text = str(system["content"])
    functions, intro, rest = text.partition("Call them in one block like this:\n\n")
    shown, rules = rest.split("\n```\n\n", 1)
    plain = f"```tool_code\n{example(case.toolset, programs=False)}"
    [needed] = [line for line in rules.splitlines() if "plain words" in line]
    texts = {
        BASE: text,
        "example first": f"{intro}{shown}\n```\n\n{functions}{rules}",
        "example last": f"{functions}{rules}\n\n{intro}{shown}\n```",
        "one tool in the example": f"{functions}{intro}{plain}\n```\n\n{rules}",
        "plain call before the program": text.replace(intro, f"{intro}{plain}\n```\n\nor\n\n"),
        "short form": f"{functions}{intro}{shown}\n```\n\n{needed}",
    }
    labels = ("python", "run")
    texts |= {f"{LABEL}{name}": text.replace("tool_code", name) for name in labels}
    built = {name: [{"role": "system", "content": text}, user] for name, text in texts.items()}
    first = {"role": "user", "content": f"{text}\n\n{case.request}"}
    return {**built, "in the first message": [first]}


def judge(url: str, pool: urllib3.PoolManager, case: Case) -> list[tuple[str, float, int]]:
    """For each prompt its name, the value of the case (nats) and the tokens of the prompt. Empty if the
    server cannot judge the case."""
    judged: list[tuple[str, float, int]] = []

    def post(path: str, **body: Any) -> Any:
        return pool.request("POST", url.removesuffix("/v1") + path, json=body, timeout=600).json()

    for name, messages in prompts(case).items():
        options = {"prompt": post("/apply-template", messages=messages)["prompt"], "n_probs": 1}
        value, size = 0.0, 0
        for sign, reply in case.replies(name.partition(LABEL)[2] or "tool_code"):
            tokens = post("/tokenize", content=reply)["tokens"]
            grammar = f"root ::= {' '.join(f'<[{token}]>' for token in tokens)}"
            answer = post("/completion", grammar=grammar, temperature=0, n_predict=512, **options)
            if "error" in answer:  # llama.cpp cannot follow each grammar of its own tokens
                return []
            written = answer["completion_probabilities"][: len(tokens)]
            found = [each["logprob"] for each in written]
            value += sign * (fmean(found) if case.code else sum(found))
            size = answer["tokens_evaluated"]
        judged.append((name, value, size))
    return judged


def difference(values: Sequence[float], base: Sequence[float]) -> str:
    """The mean of the paired differences with its bootstrapped 95 % interval, bold if that excludes 0."""
    found = [a - b for a, b in zip(values, base, strict=True)]
    chance = random.Random(1)
    means = sorted(fmean(chance.choices(found, k=len(found))) for _ in range(2000))
    low, high = means[50], means[-51]
    mark = "**" if low > 0 or high < 0 else ""
    return f"{mark}{fmean(found):+.2f}{mark} ({low:+.2f}…{high:+.2f})"


def table(judged: Mapping[str, Mapping[str, Sequence[tuple[float, int]]]]) -> str:
    """``judged``: prompt -> measure -> (value, tokens) of each case."""
    measures = [*MEASURES, "shown"]
    rows = [f"| prompt | {' | '.join(measures)} | tokens |", "|---" * (len(measures) + 2) + "|"]
    base = {m: [value for value, _ in judged[BASE][m]] for m in measures}
    for name, own in judged.items():
        cells = [f"{fmean(base[m]):.2f} (n={len(base[m])})" for m in measures]
        if name != BASE:
            values = {m: [value for value, _ in own.get(m, ())] for m in measures}
            cells = [difference(values[m], base[m]) if values[m] else "" for m in measures]
        sizes = [size for pairs in own.values() for _, size in pairs]
        rows.append(f"| {name} | {' | '.join(cells)} | {fmean(sizes):.0f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="a llama.cpp server with a larger model")
    parser.add_argument("--cases", type=int, default=16, help="of BFCL for each measure")
    options = parser.parse_args()
    judged: dict[str, dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    server = nullcontext(options.server) if options.server else local_model.serve()
    with server as url, urllib3.PoolManager() as pool:
        for case in cases(options.cases):
            for name, value, size in judge(url, pool, case):
                judged[name][case.measure].append((value, size))
    print(table(judged))
    if not options.server:
        write_section(PAGE, "variants", table(judged))


if __name__ == "__main__":
    main()
