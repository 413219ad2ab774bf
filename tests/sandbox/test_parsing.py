"""Parsing in many threads, as a threaded server does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from sandbox.parsing import literal, parse

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


@pytest.mark.usefixtures("hasty_switching")
def test_threads_that_parse_at_once_do_not_fail_one_another() -> None:
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
