"""Console programs run as a person runs them: in a terminal, which shows what is typed too."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pexpect

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMPT = r"(?:exit: |\n> |\[y/N\] |\[y/N/edit\] |Why not\? |with a dot:\r\n)$"
SECONDS = 60


def run_example(
    command: str, inputs: Iterable[str], folder: Path, env: Mapping[str, str] | None = None
) -> str:
    """All that the terminal shows of ``python examples/COMMAND``, run in ``folder``.

    Each of ``inputs`` is what is typed at a prompt: a line, or more of them.
    """
    script, *arguments = shlex.split(command)
    return converse([str(EXAMPLES / script), *arguments], inputs, PROMPT, folder, env)


def converse(
    arguments: list[str],
    inputs: Iterable[str],
    prompt: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> str:
    """All that the terminal shows of ``python ARGUMENTS``; ``prompt`` is what it asks with, as a pattern."""
    foreign = ("EMULATOR_", "OPENAI_", "PROXY_", "EDITOR", "VISUAL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    child = pexpect.spawn(
        sys.executable,
        arguments,
        cwd=str(folder),
        env={**clean, "TERM": "dumb", **(env or {})},
        encoding="utf-8",
        timeout=SECONDS,
        dimensions=(100, 400),
    )
    shown = []
    try:
        for line in inputs:
            child.expect(prompt)
            shown += [child.before, child.after]
            child.sendline(line)
        child.expect(pexpect.EOF)
        shown.append(child.before)
    finally:
        child.close(force=True)
    return "".join(shown).replace("\r\n", "\n")
