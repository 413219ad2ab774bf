"""Real replies of models, read by the proxy and by BFCL's own parsers -> docs/accuracy.md.

    make bench-bfcl-real ARGS="--replies FOLDER --parsers-of-2024 FOLDER"

The first folder holds JSON Lines, one reply each:

    {"model": ..., "id": ..., "question": ..., "tools": [BFCL's functions], "reply": ...,
     "truth": [{"function": {"argument": [accepted values]}}]}

An empty ``truth`` means that no call is right. `benchmarks.bfcl_replies` writes such a folder from the
replies that BFCL's authors have published. The second folder is ``berkeley-function-call-leaderboard`` of
github.com/ShishirPatil/gorilla at commit de8307b4; its parsers were written for these very replies.

BFCL's AST checker judges the calls of all readers. The proxy may not ask the model again; each call that its
programs make after a result counts too. It reads in three ways (`ACTS`). Each parser is tried on the
replies of every model, and a parser that fails on a reply has read no call.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import bfcl_truth
from benchmarks.bfcl_parsers import Calls, Parser, parsers, parsers_of_2024
from benchmarks.bfcl_truth import Case
from benchmarks.report import write_section
from emulator.conversation.call_policy import CallPolicy
from emulator.core import logs
from emulator.core.protocol import Message
from emulator.interpreter.engines import open_programs
from emulator.programs.driver import Driver
from emulator.programs.program import Call, CallRecord, ProgramRejected, ReplayDiverged
from emulator.programs.run_calls import MAX_CALLS
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from emulator.reply.draft import Draft
from emulator.reply.judge import Judge
from emulator.reply.program_runs import ProgramRuns
from emulator.reply.prose import Prose, StopFilter
from emulator.reply.quotations import Quotations
from emulator.reply.reply_program import ReplyProgram
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.verdicts import UnusableReply
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from sandbox.programs.server import ProgramServer

_HEAD = """\
## Real replies: the proxy and BFCL's own parsers

Models' replies to BFCL's questions, read at the first attempt by the proxy; by each model's best parser of
bfcl-eval {version}; by the better of that and the best of 2024; and by both, where either is right. BFCL's
AST checker judges, in percent. *Missed*: one of BFCL's parsers is right, the proxy is not
(`make bench-bfcl-real`).

*No call*: of the questions that no offered function answers, those read as no call by the proxy, by BFCL's
default parser (also where it cannot read the call), and by the better parser.

| model | replies | the proxy | best of today | or of 2024 | both | missed | no call | default | better |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
ACTS = {
    "any": "with `acts = any` in the profile",
    "RUN": "by default; asked about a block, the model answers RUN",
    "label": "by default; no model is asked",
}
"""How the proxy reads; these models were prompted by others, and know no label."""
DEFAULT_PARSER = "prompting"
"""BFCL's parser for every model without one of its own."""
DOCS = Path(__file__).parent.parent / "docs"
EACH_MODEL = Path(__file__).parent / "bfcl_real.md"


@dataclass(frozen=True)
class RealReply:
    """One line of the folder."""

    model: str
    case: Case
    text: str


@dataclass
class Score:
    """How many replies of one model were read rightly, by which reader."""

    replies: int = 0
    ours: int = 0
    theirs: list[frozenset[str]] = field(default_factory=list)
    """For each reply the parsers that read it rightly."""
    irrelevant: list[frozenset[str]] = field(default_factory=list)
    """``theirs`` for the questions that no offered function answers."""
    ours_irrelevant: int = 0
    missed: list[RealReply] = field(default_factory=list)
    """Replies of which a parser reads the right calls, and the proxy does not."""

    def best(self, names: Collection[str]) -> str:
        """The parser, of these, that reads most replies rightly."""
        right = Counter(name for readers in self.theirs for name in readers if name in names)
        return max(names, key=lambda name: right[name])

    def row(self, today: Collection[str], of_2024: Collection[str]) -> list[tuple[int, int]]:
        """Replies read rightly, out of how many: by the proxy and the references, then the same for replies
        to irrelevant questions."""
        new, old = self.best(today), self.best(of_2024 or today)
        better = max((new, old), key=lambda name: _count(self.theirs, name))
        right = [self.ours, *(_count(self.theirs, *by) for by in ((new,), (better,), (new, old)))]
        declined = [_count(self.irrelevant, name) for name in (DEFAULT_PARSER, better)]
        return [(count, self.replies) for count in right] + [
            (count, len(self.irrelevant)) for count in (self.ours_irrelevant, *declined)
        ]


def _count(readings: Sequence[frozenset[str]], *names: str) -> int:
    """How many replies at least one of these parsers reads rightly."""
    return sum(not readers.isdisjoint(names) for readers in readings)


Scores = dict[str, Score]


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


def read_by_us(programs: ProgramServer, reply: RealReply, acts: str) -> Calls:
    """The calls that the proxy makes of a reply at the first attempt, over all turns of its program.

    ``acts`` is the field of a profile, or "RUN": the model answers RUN if it is asked."""
    driver = Driver(programs, Toolset.parse(reply.case.tools))
    toolset = driver.toolset
    messages = [Message.model_validate(message) for message in reply.case.messages]
    judge = Judge(toolset, any_acts=acts == "any")
    quotations = Quotations(messages, toolset)
    draft = Draft(ReplyProgram(ProgramRuns(driver)), judge, quotations, stream_calls="block")
    splitter = ReplySplitter(draft.names, ReasoningStart.OUTSIDE)
    read = ReplyReader(draft, Prose(StopFilter(None), hold=False), CallPolicy(), splitter)
    for _ in read.feed(reply.text):
        pass
    for _ in read.close():
        pass
    if acts == "RUN" and isinstance(read.verdict, UnusableReply) and read.verdict.kind == "asked":
        for _ in read.run_asked():
            pass
    calls = [Call(call.name, call.arguments, call.kind) for call in draft.calls]
    saved = draft.saved_program()
    while saved is not None and len(calls) < MAX_CALLS:
        recorded = [CallRecord(call, result="ok", known=True) for call in calls]
        try:
            later = driver.run(saved.program, recorded, saved.seed).calls
        except (ProgramRejected, ReplayDiverged):
            break
        if not later:
            break
        calls += later
    return [(call.name, dict(call.arguments)) for call in calls]


def read_by(parser: Parser, reply: RealReply) -> Calls:
    """The calls that one of BFCL's parsers finds; none where it fails."""
    try:
        calls = parser(reply.text)
    except Exception:  # noqa: BLE001  # it raises whatever it raises
        return []
    # Some models were shown `_` for the `.` in names.
    shown = {
        function["name"].replace(".", "_"): function["name"] for function in reply.case.functions
    }
    return [(shown.get(name, name), arguments) for name, arguments in calls]


def measure(
    programs: ProgramServer, folder: Path, theirs: Mapping[str, Parser], every: int, acts: str
) -> Scores:
    scores: Scores = defaultdict(Score)
    for number, reply in enumerate(replies(folder)):
        if number % every:
            continue
        score = scores[reply.model]
        score.replies += 1
        ours = is_right(reply, read_by_us(programs, reply, acts))
        score.ours += ours
        calls = {name: read_by(parser, reply) for name, parser in theirs.items()}
        right = frozenset(name for name, read in calls.items() if is_right(reply, read))
        score.theirs.append(right)
        if not reply.case.truth:
            score.irrelevant.append(right)
            score.ours_irrelevant += ours
        if not ours and any(calls[name] for name in right):
            score.missed.append(reply)
    return scores


def is_right(reply: RealReply, calls: Calls) -> bool:
    """Whether BFCL's checker accepts the calls; without a truth, only no call is right."""
    if not reply.case.truth or not calls:
        return not reply.case.truth and not calls
    return not bfcl_truth.judge(reply.case, calls)


def page(scores: Scores, today: Collection[str], of_2024: Collection[str]) -> str:
    rows = {
        model: (score.row(today, of_2024), len(score.missed))
        for model, score in sorted(scores.items())
    }
    columns = zip(*(shares for shares, _ in rows.values()), strict=True)
    total = [(sum(n for n, _ in column), sum(of for _, of in column)) for column in columns]
    rows["all"] = (total, sum(missed for _, missed in rows.values()))
    lines = []
    for model, (shares, missed) in rows.items():
        cells = [f"{100 * count / of:.1f}" if of else "-" for count, of in shares]
        lines.append(
            " | ".join([f"| {model}", str(shares[0][1]), *cells[:4], str(missed), *cells[4:]])
        )
    return (
        _HEAD.format(version=version("bfcl-eval"))
        + "".join(f"{line} |\n" for line in lines).rstrip()
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Real replies, read by the proxy and by BFCL's parsers."
    )
    parser.add_argument("--replies", type=Path, required=True, help="folder of JSON Lines")
    parser.add_argument(
        "--parsers-of-2024", type=Path, help="folder of BFCL's package model_handler"
    )
    parser.add_argument("--every", type=int, default=1, help="only each n-th reply")
    parser.add_argument(
        "--acts",
        choices=ACTS,
        default="any",
        help="how the proxy reads; --write measures all",
    )
    parser.add_argument("--show", type=int, default=0, help="print this many missed replies")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    options = parser.parse_args(argv)
    logs.configure("error")
    today = parsers()
    of_2024 = parsers_of_2024(options.parsers_of_2024) if options.parsers_of_2024 else {}
    with closing(open_programs(Settings(base_url="http://unused"))) as programs:
        scores = {
            acts: measure(programs, options.replies, today | of_2024, options.every, acts)
            for acts in ([*ACTS] if options.write else [options.acts])
        }
    shown = scores[options.acts].values()
    for missed in [one for score in shown for one in score.missed][: options.show]:
        print(f"\n--- {missed.model} {missed.case.id}\n{missed.text}\n    {missed.case.truth}")
    each_model = page(scores[options.acts], today, of_2024)
    print(each_model)
    if options.write:
        EACH_MODEL.write_text(each_model.replace("##", "#", 1) + "\n", "utf-8")
        head = each_model.partition("| model |")[2].partition("| --- |")[0]
        rows = [
            f"| {ACTS[acts]} {page(found, today, of_2024).rpartition('| all ')[2]}"
            for acts, found in scores.items()
        ]
        table = [f"| read by the proxy |{head}| --- |{' ---: |' * 9}", *rows]
        text = each_model.partition("| model |")[0] + "\n".join(table)
        link = f"\n\n[Each of the {len(scores[options.acts])} models](../benchmarks/bfcl_real.md)"
        write_section(DOCS / "accuracy.md", "bfcl-real", f"{text}{link}, with `acts = any`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
