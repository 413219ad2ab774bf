"""Comprehension variables with the names of builtins have the same values in monty as in CPython."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from sandbox.engine import Engine, Finished
from sandbox.monty.engine import MontyEngine
from sandbox.monty.rewrites import rename_shadowing_variables

PROGRAMS = [
    "[id for id in ['a', 'b']]",
    "[(id, 1) for id in 'ab' if id != 'a']",
    "{id: len(type) for id, type in [('a', 'xy')]}",
    "sorted(id for id in 'ba')",
    "[[max for max in range(id)] for id in range(3)]",
    "id = 'outer'\n[id for id in [id]] + [id]",
    "id_ = 5\n[id + id_ for id in [1]]",
    "sum([sum for sum in [1, 2]])",
    "list = ['a']\n[f'{x}' for x in list]",
    "[(lambda q: q + id)(1) for id in [1]]",
    "[f'{id:>3}{id!r}' for id in [1]]",
    "[[id for id in [id, 2]] for id in [1]]",
]


@pytest.fixture(scope="module")
def monty() -> Iterator[Engine]:
    engine = MontyEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("source", PROGRAMS)
def test_a_variable_with_the_name_of_a_builtin_is_the_variable(monty: Engine, source: str) -> None:
    """Monty 1.4.0 reads the builtin, so `[f(id) for id in ids]` called f with a function."""
    scope: dict[str, object] = {}
    *before, last = source.splitlines()
    exec("\n".join(before), scope)
    expected = repr(eval(last, scope))
    with monty.session(frozenset()) as session:
        step = session.start(source)
    assert isinstance(step, Finished)
    assert step.text == expected


def test_variables_of_statements_keep_their_names() -> None:
    tree = ast.parse("x = [city for city in cities]\nfor id in range(3):\n    print(id)\n")
    before = ast.dump(tree)
    assert not rename_shadowing_variables(tree)
    assert ast.dump(tree) == before
