"""Real replies of models, read by the proxy and by BFCL's own parsers -> docs/accuracy.md.

    make bench-bfcl-real ARGS="--replies FOLDER"

The folder holds JSON Lines, one reply each:

    {"model": ..., "id": ..., "question": ..., "tools": [BFCL's functions], "reply": ...,
     "truth": [{"function": {"argument": [accepted values]}}]}

An empty ``truth`` means that no call is right. BFCL's AST checker judges the calls of all readers. The
proxy may not ask
the model again. Each parser of BFCL's is tried on each reply, also on replies of models it was not written
for. `benchmarks.bfcl_replies` writes such a folder from the replies that BFCL's authors have published.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import bfcl_truth
from benchmarks.bfcl_parsers import Calls, Parser, parsers
from benchmarks.bfcl_truth import Case
from benchmarks.report import write_section
from emulator import logs
from emulator.answering.call_policy import CallPolicy
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.prose import Prose
from emulator.answering.reply_reader import ReplyReader
from emulator.answering.stop_filter import StopFilter
from emulator.engines import open_engines
from emulator.programs.driver import Driver
from emulator.settings import Settings
from emulator.tools.toolset import Toolset
from sandbox.engine import Engine

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class RealReply:
    """One line of the folder."""

    model: str
    case: Case
    text: str


@dataclass
class Score:
    """Of one model: how many replies were read rightly, by whom."""

    replies: int = 0
    calling: int = 0
    ours: int = 0
    theirs: Counter[str] = field(default_factory=Counter)
    missed: list[RealReply] = field(default_factory=list)
    """Calls that one of BFCL's parsers read rightly, and we did not."""

    @property
    def best(self) -> tuple[str, int]:
        return max(self.theirs.items(), key=lambda item: item[1], default=("", 0))


def replies(folder: Path) -> Iterator[RealReply]:
    """All replies of the folder."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            yield RealReply(row["model"], _case(row), row["reply"])


def _case(row: dict[str, Any]) -> Case:
    category = "parallel_multiple" if len(row["truth"]) > 1 else "multiple"
    return Case(
        row["id"],
        category,
        ({"role": "user", "content": row["question"]},),
        tuple(row["tools"]),
        tuple(row["truth"]),
    )


def read_by_us(engine: Engine, reply: RealReply) -> Calls:
    """The calls that the emulator makes of a reply, at the first attempt."""
    toolset = Toolset.parse(reply.case.tools)
    driver = Driver((engine,), toolset, order="dataflow")
    draft = ProgramDraft(driver, required=False, by_statement=False, seed=0)
    read = ReplyReader(draft, Prose(StopFilter(None), hold=False), CallPolicy())
    for _ in read.feed(reply.text):
        pass
    for _ in read.close():
        pass
    return [(call.name, dict(call.arguments)) for call in draft.calls]


def read_by(parser: Parser, reply: RealReply) -> Calls | None:
    """The calls that one of BFCL's parsers finds; None where it fails."""
    try:
        calls = parser(reply.text)
    except Exception:  # noqa: BLE001  # it raises whatever it raises
        return None
    # Some models were shown `_` for the `.` in names.
    shown = {
        function["name"].replace(".", "_"): function["name"] for function in reply.case.functions
    }
    return [(shown.get(name, name), arguments) for name, arguments in calls]


def measure(engine: Engine, folder: Path, every: int) -> dict[str, Score]:
    theirs = parsers()
    scores: dict[str, Score] = defaultdict(Score)
    for number, reply in enumerate(replies(folder)):
        if number % every or reply.case.flaw:
            continue  # with a flaw, no valid call would be right
        score = scores[reply.model]
        score.replies += 1
        ours = not bfcl_truth.judge(reply.case, read_by_us(engine, reply))
        score.ours += ours
        by_any = False
        for name, parser in theirs.items():
            calls = read_by(parser, reply)
            # Reading no call is right if no call is expected.
            right = not reply.case.truth if not calls else not bfcl_truth.judge(reply.case, calls)
            score.theirs[name] += right
            by_any = by_any or (right and bool(calls))
        if reply.case.truth:
            score.calling += 1
            if by_any and not ours:
                score.missed.append(reply)
    return scores


def page(scores: dict[str, Score]) -> str:
    rows = []
    for model, score in sorted(scores.items()):
        best, right = score.best
        rows.append(
            f"| {model} | {score.replies} | {_share(score.ours, score.replies)} "
            f"| {_share(right, score.replies)} ({best}) | {len(score.missed)} of {score.calling} |"
        )
    total = sum(score.replies for score in scores.values())
    calling = sum(score.calling for score in scores.values())
    ours = sum(score.ours for score in scores.values())
    best_each = sum(score.best[1] for score in scores.values())
    missed = sum(len(score.missed) for score in scores.values())
    rows.append(
        f"| all | {total} | {_share(ours, total)} | {_share(best_each, total)} (each model's best) "
        f"| {missed} of {calling} ({_share(missed, calling)}) |"
    )
    head = (
        "## Real replies: the proxy and BFCL's own parsers\n\n"
        "Replies that models gave to BFCL's questions, read by the proxy at the first attempt and by the "
        f"parsers of bfcl-eval {version('bfcl-eval')}; its AST\n"
        "checker judges both. *Missed*: one of BFCL's parsers reads the right calls and the proxy does not "
        "(`make bench-bfcl-real`).\n"
        "\n"
        "| model | replies | the proxy | BFCL's best parser | missed |\n| --- | ---: | ---: | ---: | ---: |\n"
    )
    return head + "\n".join(rows)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Real replies, read by the proxy and by BFCL's parsers."
    )
    parser.add_argument("--replies", type=Path, required=True, help="folder of JSON Lines")
    parser.add_argument("--every", type=int, default=1, help="only each n-th reply")
    parser.add_argument("--show", type=int, default=0, help="print this many missed replies")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    options = parser.parse_args(argv)
    logs.configure("error")
    [engine, *_] = open_engines(Settings(base_url="http://unused", engines=("monty",)))
    try:
        scores = measure(engine, options.replies, options.every)
    finally:
        engine.close()
    for missed in [one for score in scores.values() for one in score.missed][: options.show]:
        print(f"\n--- {missed.model} {missed.case.id}\n{missed.text}\n    {missed.case.truth}")
    text = page(scores)
    print(text)
    if options.write:
        write_section(DOCS / "accuracy.md", "bfcl-real", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
