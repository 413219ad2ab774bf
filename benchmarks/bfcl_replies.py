"""The replies that BFCL's authors have published -> a folder of JSON Lines for `benchmarks.bfcl_real`.

    python -m benchmarks.bfcl_replies RESULTS QUESTIONS FOLDER

RESULTS is a checkout of github.com/HuanzhiMao/BFCL-Result at one of its dates (``2024-08-11/result``), and
QUESTIONS is ``berkeley-function-call-leaderboard/data`` in github.com/ShishirPatil/gorilla as it was at that
time (commit de8307b4). Models whose calls their vendor's API has read already are left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CATEGORIES = (
    "simple",
    "multiple_function",
    "parallel_function",
    "parallel_multiple_function",
    "relevance",
)
#: Its truth is no object of arguments.
_MALFORMED = ("parallel_multiple_function_179",)
_FILE = "gorilla_openfunctions_v1_test_{}{}.json"


def questions(folder: Path, category: str) -> dict[str, dict[str, Any]]:
    """Id -> question, tools and truth."""
    file = _FILE.format(category, "")
    answers = folder / "possible_answer" / file
    truths = {row["id"]: row["ground_truth"] for row in _lines(answers)} if answers.exists() else {}
    found = {}
    for row in _lines(folder / file):
        if row["id"] in _MALFORMED:
            continue
        tools = row["function"] if isinstance(row["function"], list) else [row["function"]]
        found[row["id"]] = {
            "id": row["id"],
            "question": row["question"],
            "tools": tools,
            "truth": _each(truths.get(row["id"], {}), tools),
        }
    return found


def _each(truth: dict[str, Any], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """BFCL's first shape: one object, in which calls of one function have numbers."""
    names = {tool["name"] for tool in tools}
    return [
        {name if name in names else re.sub(r"_\d+\Z", "", name): accepted}
        for name, accepted in truth.items()
    ]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip())


def main(results: Path, asked: Path, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    by_category = {category: questions(asked, category) for category in CATEGORIES}
    for model in sorted(path for path in results.iterdir() if path.is_dir()):
        rows = [
            {
                "model": model.name,
                **by_category[category][reply["id"]],
                "reply": reply.get("result"),
            }
            for category in CATEGORIES
            if (path := model / _FILE.format(category, "_result")).exists()
            for reply in _lines(path)
            if reply["id"] in by_category[category]
        ]
        texts = [row for row in rows if isinstance(row["reply"], str)]
        if len(texts) > len(rows) / 2:
            rows = texts
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{model.name}.jsonl").write_text(text, "utf-8")
            print(f"{model.name}: {len(rows)} replies")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
