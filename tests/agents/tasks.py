"""The tasks that every agent is given: their files, what the user asks for, and the steps to it.

Knows no agent: a step says what is to be done (run, write, read, edit), the model in obedient.py finds the
tool for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Step:
    does: Literal["run", "write", "read", "edit"]
    command: str = ""
    path: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Task:
    name: str
    prompt: str
    steps: tuple[Step, ...]
    program: str
    """The same as one program. ``run(...)``, ``write(...)`` and so on mean calls."""
    found: str
    """A pattern of what the last result must show; its groups are in ``answer``."""
    answer: str
    files: dict[str, str] = field(default_factory=dict)
    afterwards: dict[str, str] = field(default_factory=dict)
    """What files hold when the task is done."""


HELLO = "print(1234 + 1)\n"
BROKEN = "def add(a, b):\n    return a - b\n"
# Of another size: within a second Python takes a file of the same size for the one that it has compiled.
MENDED = BROKEN.replace("a - b", "sum((a, b))")
TEST = "from add import add\n\nassert add(1, 2) == 3, 'wrong'\nprint('all', 'passed')\n"

TASKS = (
    Task(
        "write and run",
        "Write hello.py, a script that adds 1 to 1234; run it and tell me its output.",
        (Step("write", path="hello.py", new=HELLO), Step("run", command="python3 hello.py")),
        "write(path='hello.py', new='print(1234 + 1)\\n')\n"
        "out = run(command='python3 hello.py')\n"
        "print(out)",
        r"\b(1235)\b",
        "It printed {0}.",
        afterwards={"hello.py": HELLO},
    ),
    Task(
        "count lines",
        "How many lines have the text files here, all together?",
        (
            Step("run", command="ls"),
            Step("run", command="cat a.txt b.txt c.txt | wc -l | sed 's/^/all: /'"),
        ),
        "names = str(run(command='ls'))\n"
        "texts = [name for name in ('a.txt', 'b.txt', 'c.txt', 'd.txt') if name in names]\n"
        "print(run(command=f\"cat {' '.join(texts)} | wc -l | sed 's/^/all: /'\"))",
        r"all: +(\d+)",
        "They have {0} lines.",
        files={"a.txt": "one\ntwo\n", "b.txt": "three\nfour\nfive\n", "c.txt": "six\n" * 30},
    ),
    Task(
        "mend until the test passes",
        "Mend add.py so that test_add.py passes.",
        (
            Step("run", command="python3 test_add.py || true"),
            # Qwen Code and Continue refuse to edit what was not read.
            Step("read", path="add.py"),
            Step("edit", path="add.py", old="return a - b", new="return sum((a, b))"),
            Step("run", command="python3 test_add.py"),
        ),
        "for attempt in range(3):\n"
        "    out = str(run(command='python3 test_add.py || true'))\n"
        "    if 'all passed' in out:\n"
        "        break\n"
        "    read(path='add.py')\n"
        "    edit(path='add.py', old='return a - b', new='return sum((a, b))')\n"
        "print(out)",
        r"all (passed)",
        "The test {0}.",
        files={"add.py": BROKEN, "test_add.py": TEST},
        afterwards={"add.py": MENDED},
    ),
)
