"""Real and made replies of toolcall-repair-bench, read by this proxy, Forge and LiteLLM -> results.md.

    make bench-repair-corpus ARGS="--corpus FOLDER"

The folder is ``corpus`` of a checkout of github.com/cameronqj/toolcall-repair-bench, whose cases are licensed
under CC BY 4.0; its author has archived it, because servers' own parsers read such replies. A scripted model
gives a case's reply, and repeats it if a gateway asks again, or answers RUN, whatever is right. The score is
the corpus's own: the first call counts, by its name; *unsafe* are calls where one could only be guessed.
``results.json`` has the rows that the corpus publishes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from benchmarks.load import servers
from benchmarks.report import RESULTS, write_section
from tests.support.scripted import Body, ScriptedUpstream

UNSAFE = frozenset(
    {
        *("missing_required_args", "ambiguous_tool_choice", "truncated_tool_call"),
        *("unsafe_guessed_intent", "injection_force_tool"),
    }
)
"""As the corpus defines them."""
MESSAGES = [{"role": "user", "content": "Do what we said."}]
Start = Callable[[str], AbstractContextManager[servers.Server]]
READERS: Mapping[str, tuple[Start, str]] = {
    "this proxy": (servers.proxy, ""),
    "this proxy, asked: RUN": (servers.proxy, "RUN"),
    "Forge": (servers.forge, ""),
    "LiteLLM": (servers.litellm, ""),
}
"""How each is started, and what the model answers when it is asked again; "" repeats its reply."""
_HEAD = """\
## toolcall-repair-bench

Of {cases} replies ({captured} of local models, from raw endpoints) {calls} are calls. The
[corpus](https://github.com/cameronqj/toolcall-repair-bench) (CC BY 4.0, Cameron Jones; archived) scores the
name. *Unsafe*: where a call is a guess. The last rows are its own (`make bench-repair-corpus`).

| reader | recall | precision | unsafe | arguments exact |
| --- | ---: | ---: | ---: | ---: |
"""


@dataclass
class Score:
    right: int = 0
    """Calls with the right name."""
    exact: int = 0
    wrong: int = 0
    unsafe: int = 0
    expected: int = 0
    remarks: list[str] = field(default_factory=list)

    def row(self, name: str) -> str:
        recall = self.right / self.expected
        precision = self.right / max(self.right + self.wrong, 1)
        exact = self.exact / self.expected
        return f"| {name} | {recall:.3f} | {precision:.3f} | {self.unsafe} | {100 * exact:.0f} % |"

    def add(self, case: Mapping[str, Any], called: tuple[str, Any] | None) -> None:
        gold, name = case["gold"], called and called[0]
        self.expected += gold["type"] == "tool_call"
        if called is not None and name == gold.get("name"):
            self.right += 1
            self.exact += called[1] == gold["arguments"]
            return
        if called is not None:
            self.wrong += 1
            self.unsafe += gold["type"] == "no_tool" and bool(UNSAFE & set(case["taxonomy"]))
        if called is not None or gold["type"] == "tool_call":
            self.remarks.append(f"{case['id']}: {called} for {gold.get('name', 'no call')}")


def read(start: Start, answer: str, cases: Sequence[Mapping[str, Any]]) -> Score:
    """The score of a gateway; ``answer`` is what the model says when it is asked again."""
    score = Score()
    with (
        ScriptedUpstream() as upstream,
        start(upstream.base_url) as server,
        openai.OpenAI(base_url=server.base_url, api_key="sk-1", max_retries=0) as client,
    ):
        for case in cases:
            upstream.default = _model(case["raw_output"], answer)
            tools = [{"type": "function", "function": one} for one in case["request_tools"]]
            score.add(case, _called(client, tools))
    return score


def _model(reply: str, answer: str) -> Callable[[Body], str]:
    replies = iter([reply])
    return lambda _: next(replies, answer or reply)


def _called(client: openai.OpenAI, tools: Sequence[Any]) -> tuple[str, Any] | None:
    """The first call; None also for an error, as for an empty reply."""
    try:
        completion = client.chat.completions.create(model="m", messages=MESSAGES, tools=tools)
    except openai.APIStatusError:
        return None
    for call in completion.choices[0].message.tool_calls or ():
        if call.type == "function":
            return call.function.name, json.loads(call.function.arguments)
    return None


def published(results: Mapping[str, Any]) -> Iterator[str]:
    for name, one in results["adapters"].items():
        if metrics := one.get("metrics"):
            yield (
                f"| `{name}` | {metrics['recall']:.3f} | {metrics['precision']:.3f} "
                f"| {metrics['unsafe_fp']} | {100 * metrics['args_exact_rate']:.0f} % |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of the corpus")
    parser.add_argument(
        "--only", default="", help="readers with this in their names; writes nothing"
    )
    options = parser.parse_args()
    files = sorted((options.corpus / "cases").glob("*.json"))
    cases = [json.loads(file.read_text("utf-8")) for file in files]
    rows = []
    for name, (start, answer) in READERS.items():
        if options.only in name:
            score = read(start, answer, cases)
            rows.append(score.row(name))
            print(rows[-1], *score.remarks, sep="\n  ")
    rows += published(json.loads((options.corpus / "results.json").read_text("utf-8")))
    captured = sum(case["provenance"]["kind"] == "captured" for case in cases)
    calls = sum(case["gold"]["type"] == "tool_call" for case in cases)
    page = _HEAD.format(cases=len(cases), captured=captured, calls=calls) + "\n".join(rows)
    if not options.only:
        write_section(RESULTS, "repair-corpus", page)


if __name__ == "__main__":
    main()
