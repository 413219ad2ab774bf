"""Whether the tools that a request needs are among the best matches of a large toolset -> docs/accuracy.md.

    python -m benchmarks.tool_recall [--shown 20] [--pool 300]

The requests and functions are those of BFCL's cases with a ground truth. Each pool has the functions of some
cases and, up to its size, functions of others; a case counts if all functions that it calls are shown.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from benchmarks.bfcl_truth import CALLING, Case, load
from benchmarks.report import RESULTS, write_section
from emulator.tools.search import ToolIndex
from emulator.tools.tool import Tool
from emulator.tools.toolset import SchemaError, Toolset


def pools(cases: Sequence[Case], size: int) -> Iterator[tuple[list[Case], list[Tool]]]:
    """Cases and a pool of ``size`` tools that has theirs. Tools of one name are the same tool."""
    tools = {tool.name: tool for case in cases for tool in _tools(case)}
    chance = random.Random(1)
    own: dict[str, Tool] = {}
    batch: list[Case] = []
    for case in [*chance.sample(cases, len(cases)), None]:
        if case is not None and len(own) < size // 2:
            own |= {tool.name: tool for tool in _tools(case)}
            batch.append(case)
            continue
        others = [tool for name, tool in tools.items() if name not in own]
        pool = [*own.values(), *chance.sample(others, size - len(own))]
        yield batch, chance.sample(pool, len(pool))
        own = {tool.name: tool for tool in _tools(case)} if case else {}
        batch = [case] if case else []


def _tools(case: Case) -> tuple[Tool, ...]:
    try:
        return Toolset.parse(case.tools).tools
    except SchemaError:
        return ()


def wanted(case: Case) -> list[str]:
    """The functions that the case calls, each once."""
    return list(dict.fromkeys(name for call in case.truth for name in call))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shown", type=int, default=20)
    parser.add_argument("--pool", type=int, default=300)
    options = parser.parse_args(arguments)
    cases = [case for case in load(CALLING) if case.truth and _tools(case)]
    found = dict.fromkeys(sorted({5, 10, options.shown}), 0)
    missed: Counter[str] = Counter()
    for batch, pool in pools(cases, options.pool):
        index = ToolIndex(pool)
        for case in batch:
            request = "\n".join(m["content"] for m in case.messages if m["role"] == "user")
            ranked = [tool.name for tool in index.rank(request)]
            for name in set(wanted(case)).difference(ranked[: options.shown]):
                foreign = "foreign" if not request[:60].isascii() else "unrelated"
                missed["ranked" if name in ranked else foreign] += 1
            for shown in found:
                found[shown] += len(set(wanted(case)) & set(ranked[:shown]))
    total = sum(len(wanted(case)) for case in cases)
    figures = ", ".join(f"{count / total:.3f} among {shown}" for shown, count in found.items())
    unrelated = missed["foreign"] + missed["unrelated"]
    write_section(
        RESULTS,
        "tool-recall",
        f"Recall of the functions that {len(cases):,} cases of bfcl-eval {version('bfcl-eval')} call, in a"
        f" pool of {options.pool} of its functions: {figures} best matches for the request"
        f" (`make bench-tool-recall`). {unrelated} functions share no word with their request"
        f" ({missed['foreign']} requests are in another script), so no ranking of words exceeds"
        f" {1 - unrelated / total:.3f}; {missed['ranked']} rank lower.\n",
    )


if __name__ == "__main__":
    main()
