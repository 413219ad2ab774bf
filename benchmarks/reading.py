"""What reading costs: CPU time a character, and how it grows with the length of a reply.

    make bench-reading

Each input is fed as a stream of chunks through all that stands between the upstream and the program server:
reasoning, prose, blocks, statements. The exponent is fitted over the sizes (1 = linear); beside it
stands what a bare `json.loads` of the same chunks costs. What an input calls is not run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Sequence

from emulator.conversation.call_policy import CallPolicy
from emulator.programs.driver import Driver
from emulator.reading.reply_splitter import ReasoningStart, ReplySplitter
from emulator.reading.tags import REASONING, TAGS
from emulator.reply.draft import Draft
from emulator.reply.judge import Judge
from emulator.reply.program_runs import ProgramRuns
from emulator.reply.prose import Prose, StopFilter
from emulator.reply.quotations import Quotations
from emulator.reply.reply_program import ReplyProgram
from emulator.reply.reply_reader import ReplyReader
from emulator.tools.toolset import Toolset
from sandbox.engine import Limits
from sandbox.programs.server import ChildProcess, FenceBroken, ProgramServer

SIZES = (10_000, 100_000, 1_000_000)
CHUNKS = (6, 1000)

NAMES = ("get_weather", "write_file", "search", "bash", "apply_patch")
TOOLSET = Toolset.parse(
    [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "more": {"type": "string"}},
                    "required": ["text", "more"],
                },
            },
        }
        for name in NAMES
    ]
)

_WORDS = "The weather in Oslo is fine today, and I would take a coat. "
_FENCE = "```python\n"

#: Name -> (what begins the reply, what is repeated).
INPUTS: dict[str, tuple[str, str]] = {
    "prose": ("", _WORDS),
    "prose in lines": ("", _WORDS[:-1] + "\n"),
    "reasoning": ("<think>", _WORDS),
    "white space": ("Well", " "),
    "line ends": ("Well", "\n"),
    "documentation": ("```text\n", _WORDS + "\n"),
    "code": (_FENCE, "x = [1, 2, {'a': 'b'}]\n"),
    "decorators": (_FENCE, "@a\n"),
    "comments": (_FENCE, "# a remark\n"),
    "a body without an end": (_FENCE + "if x:\n", "    y = 1\n"),
    "brackets": (_FENCE, "("),
    "an open string": (_FENCE + '"""', "words\n"),
    "backslashes": (_FENCE, "x \\\n"),
    "bare code": ("", "x = 1\n"),
    "bare brackets": ("x = [\n", "1,\n"),
    "children of an element": ("<write_file>", "<a>"),
    "elements": ("<tool_call>", "<b>c</b>\n"),
    "an element without an end": ("<tool_call>", _WORDS),
    "parameters": ("<function=write_file>\n", "<parameter=text>"),
    "invocations": ("<function_calls>", '<invoke name="x">'),
    "argument keys": ("<tool_call>x", "<arg_key>a</arg_key>"),
    "DeepSeek": ("", "<｜tool▁calls▁begin｜"),
    "DeepSeek in a block": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>x"),
    "Mistral": ("[TOOL_CALLS]", "x[ARGS]"),
    "functools": ("functools", "["),
    "JSON brackets": ("", '{"name": '),
    "JSON strings": ('{"name": "get_weather", "arguments": {"text": "', "a\\n"),
    "JSON lists": ("", "[{"),
    "Python tag": ("<|python_tag|>", "x("),
    "channels": ("", "<|channel|>"),
    "commands": ("```bash\n", "ls\n"),
    "fences of commands": ("", "```bash\nls\n```\nand\n"),
    "a patch": ("*** Begin Patch\n", "+x\n"),
    "words of a command": ('{"command": [', '"a",'),
    "words behind JSON": ('{"name": "search"} ', "a"),
    "ReAct": ("Action: search\n", "Action: nothing\n"),
    "ReAct input": ("Action: search\nAction Input: ", "Thoug\n"),
    "YAML": ("name: search\n", "  a: b\n"),
    "tags": ("", "<"),
    "closing tags": ("", "</think"),
    "backticks": ("", "` ``"),
    "fences": ("", "```\n"),
    "mentions": ("", "`</think>` "),
    "afterwords": (f"{_FENCE}get_weather(\n```\n", "> "),
}


class NoPrograms(ProgramServer):
    """Runs nothing: what an input happens to call is no part of reading."""

    def open(self, client: str = "") -> ChildProcess:  # noqa: ARG002
        raise FenceBroken("nothing is run", "")


def random_inputs(seed: int, count: int) -> dict[str, tuple[str, str]]:
    """Inputs whose repeated part is made of what begins and ends blocks, by chance."""
    chance = random.Random(seed)
    closings = [closing for tag in TAGS for closing in tag.closings]
    pieces = [tag.opening for tag in TAGS] + closings + list(REASONING) + list(REASONING.values())
    pieces += [
        *"\n\n\n `{[(<>)]}:\"'\\=,@#-f",
        "```",
        "```json\n",
        _FENCE,
        "Action: search\n",
        "x = ",
    ]
    pieces += [
        *NAMES,
        "<get_weather>",
        '{"name": "',
        "name: search\n",
        "if x:\n    ",
        ">>> ",
        "...",
    ]
    found = {}
    for number in range(count):
        begin = "".join(chance.choices(pieces, k=chance.randint(0, 2)))
        again = "".join(chance.choices(pieces, k=chance.randint(1, 4)))
        found[f"random {seed}.{number}"] = (begin, again)
    return found


def reply_of(size: int, begin: str, again: str) -> str:
    return begin + again * ((size - len(begin)) // len(again))


def chunks_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def read(chunks: Iterable[str]) -> None:
    """All that is done with a reply, but for running what it calls."""
    runs = ProgramRuns(Driver(NoPrograms(Limits()), TOOLSET))
    quotations = Quotations((), TOOLSET)
    draft = Draft(ReplyProgram(runs), Judge(TOOLSET), quotations)
    prose = Prose(StopFilter(None), hold=False)
    splitter = ReplySplitter(draft.names, ReasoningStart.UNKNOWN)
    reply = ReplyReader(draft, prose, CallPolicy(), splitter)
    for chunk in chunks:
        for _ in reply.feed(chunk):
            pass
        if reply.done:
            return
    for _ in reply.close():
        pass


def seconds(chunks: Sequence[str]) -> float:
    start = time.process_time()
    read(chunks)
    return time.process_time() - start


def baseline(chunks: Sequence[str]) -> float:
    lines = [json.dumps({"choices": [{"index": 0, "delta": {"content": c}}]}) for c in chunks]
    start = time.process_time()
    for line in lines:
        json.loads(line)
    return time.process_time() - start


def exponent(costs: Sequence[tuple[int, float]]) -> float:
    """The slope of log cost over log size, by least squares."""
    xs = [math.log(size) for size, _ in costs]
    ys = [math.log(max(cost, 1e-6)) for _, cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return above / sum((a - x) ** 2 for a in xs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="CPU time of reading, and how it grows.")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--chunks", type=int, nargs="+", default=list(CHUNKS))
    parser.add_argument("--random", type=int, default=0, help="further inputs, made by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="inputs with this in their name")
    parser.add_argument("--patience", type=float, default=20.0, help="CPU seconds for one reading")
    options = parser.parse_args(argv)
    inputs = INPUTS | random_inputs(options.seed, options.random)
    print("| input | chunks of | exponent | us/character | json.loads |\n|---|---|---|---|---|")
    worst = 0.0
    for name, (begin, again) in inputs.items():
        if options.only not in name:
            continue
        for size in options.chunks:
            costs = []
            for length in options.sizes:
                chunks = chunks_of(reply_of(length, begin, again), size)
                costs.append((length, seconds(chunks)))
                if costs[-1][1] > options.patience:
                    break
            slope = exponent(costs) if len(costs) > 1 else math.nan
            worst = max(worst, slope)
            each = costs[-1][1] / costs[-1][0] * 1e6
            bare = baseline(chunks) / costs[-1][0] * 1e6
            print(f"| {name} | {size} | {slope:.2f} | {each:.2f} | {bare:.2f} |", flush=True)
            if slope > 1.2:
                print(f"    {begin!r} {again!r} {costs}", file=sys.stderr)
    print(f"\nworst exponent {worst:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
