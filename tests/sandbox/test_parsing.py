"""Parsing in many threads, as a threaded server does; going through what was parsed."""

from __future__ import annotations

import argparse
import ast
import asyncio.base_events
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.parsing import literal, parse, walk

LITERAL = repr([{"k": [n, -n]} for n in range(300)])
CALL = f"f({LITERAL})"


class Cyclic:
    """Garbage whose collection runs Python code, and so lets another thread in."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        pass


@pytest.fixture
def hasty_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_pythons_warnings_about_a_models_text_are_not_printed() -> None:
    """The log said "<program>:3: SyntaxWarning: invalid escape sequence", of no request."""
    code = 'from sandbox.parsing import *; parse(r\'f("\\d")\', "<program>"); literal(r\'"\\d"\')'
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.usefixtures("hasty_switching")
def test_threads_that_parse_at_the_same_time_do_not_disturb_one_another() -> None:
    """CPython 3.11.7: "SystemError: AST constructor recursion depth mismatch", a 500 now and then."""
    failures: list[BaseException] = []

    def parse_often() -> None:
        try:
            for _ in range(60):
                [Cyclic() for _ in range(300)]
                parse(CALL)
                literal(LITERAL)
        except SystemError as error:
            failures.append(error)

    threads = [threading.Thread(target=parse_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


RARE = """
match value:
    case {"a": [1, *rest], **others} | Point(x=0) as found if rest:
        del others
    case None:
        pass
try:
    global_ = lambda *args, a=1, **kwargs: (yield)
except* (ValueError, OSError) as error:
    raise RuntimeError from error
async def all_of(self, /, x: int, *, y: str = f"{1!r:>{2}}"):
    nonlocal_ = [i async for i in x if not i] + [*x] @ -y
    global z
    async with x as (a, b), y: z: int = await (w := a[1:2, ...])
"""


@pytest.mark.parametrize(
    "source",
    [RARE, *(Path(m.__file__).read_text() for m in (argparse, asyncio.base_events, dataclasses))],
    ids=["rare", "argparse", "asyncio.base_events", "dataclasses"],
)
def test_a_walk_visits_the_nodes_of_ast_walk_except_operators_and_contexts(source: str) -> None:
    tree = ast.parse(source)
    left_out = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    assert list(walk(tree)) == [n for n in ast.walk(tree) if not isinstance(n, left_out)]
