"""Python as it is: a program runs in its child as in CPython.

The table is tests/data/python_programs.txt. The reference is the CPython that runs these tests, with `f` as
the tool: it returns its first argument.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.programs.inside import notation
from sandbox.programs.server import ProgramServer
from tests.support.children import run

TABLE = Path(__file__).parents[2] / "data" / "python_programs.txt"
ROWS = TABLE.read_text().removesuffix("\n").split("\n---\n")


@dataclass
class Run:
    """What a program did: its calls, what it printed, and its last value, or how it failed."""

    calls: list[Any] = field(default_factory=list)
    stdout: str = ""
    text: str | None = None
    failure: str | None = None


def in_cpython(source: str) -> Run:
    seen = Run()

    def f(*args: Any) -> Any:
        seen.calls.append(json.loads(json.dumps(args)))
        return notation.result(json.dumps(args[0])) if args else None

    def evaluated(code: Any) -> Any:
        value = eval(code, names)
        if not inspect.iscoroutine(value):
            return value
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(value)
        finally:
            loop.close()

    names: dict[str, Any] = {"f": f, "__name__": "__main__"}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            evaluated(compile(tree, "program", "exec", flags))
            if isinstance(last, ast.Expr):
                value = evaluated(compile(ast.Expression(last.value), "program", "eval", flags))
                seen.text = None if value is None else repr(value)
    except BaseException as error:  # noqa: BLE001 - SystemExit too is how a program may end
        seen.failure = type(error).__name__
    seen.stdout = out.getvalue()
    return seen


def in_child(programs: ProgramServer, source: str) -> Run:
    seen = Run()
    message = run(programs, source, calls=seen.calls)
    seen.stdout, seen.text, seen.failure = (
        message["output"],
        message["value"],
        message.get("error") or None,
    )
    return seen


OF_A_PROCESS = re.compile(r"hash\(|set\(|^\{['(]|dir\(|vars\(|betavariate|not NotImplemented|50000")
"""Expressions that have another value in each process, or none that can be shown."""
UNLIKE = re.compile(r"exit\(|SystemExit|^return|sys\.stderr", re.MULTILINE)
"""A program may end where it likes, and the model sees both of its outputs."""


@pytest.mark.parametrize("source", [row for row in ROWS if not UNLIKE.search(row)])
def test_a_program_runs_as_in_cpython(programs: ProgramServer, source: str) -> None:
    assert in_child(programs, source) == in_cpython(source)


CPYTHON_TESTS = """test_builtin string_tests test_unicode test_list list_tests seq_tests test_dict
test_set test_tuple test_int test_long test_float test_slice test_range test_enumerate test_format
test_fstring test_re test_math datetimetester test_collections test_itertools test_bool test_compare
test_grammar test_json.test_decode test_json.test_dump test_json.test_float test_json.test_unicode
test_sort test_generators test_genexps test_listcomps test_dictcomps test_lambda
test_named_expressions test_unpack_ex test_dataclasses test_random test_copy test_pow test_iter
test_contains test_deque test_defaultdict""".split()
IMPORTED = "math json re datetime collections itertools functools random copy string".split()
KNOWN = {*dir(builtins), *IMPORTED} - set(
    "open eval exec input exit quit compile breakpoint help id print __import__ globals locals".split()
)


def expressions_of_cpythons_tests() -> Iterator[str]:
    """The expressions in the assertions of CPython's own tests that need no other statement."""
    for name in CPYTHON_TESTS:
        spec = importlib.util.find_spec(f"test.{name}")
        if spec is None or spec.origin is None:
            continue
        for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
            for expression in _asserted(node):
                read = {*_names(expression, ast.Load)}
                bound = {*_names(expression, ast.Store)}
                bound |= {n.arg for n in ast.walk(expression) if isinstance(n, ast.arg)}
                if isinstance(expression, (ast.Constant, ast.Name)) or read - bound - KNOWN:
                    continue
                with contextlib.suppress(ValueError, RecursionError):
                    text = ast.unparse(ast.fix_missing_locations(expression))
                    imports = [f"import {each}\n" for each in IMPORTED if each in read]
                    if len(text) < 400:
                        yield "".join(imports) + text


def _names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            yield inner.id


def _asserted(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assert(test=test):
            return [test]
        case ast.Call(ast.Attribute(attr="assertRaises"), [_, function, *arguments], keywords):
            return [ast.Call(function, arguments, keywords)]
        case ast.Call(ast.Attribute(attr="checkequal"), [_, value, ast.Constant(str(name)), *rest]):
            return [ast.Call(ast.Attribute(value, name, ast.Load()), rest, [])]
        case ast.Call(ast.Attribute(attr=name), arguments) if name.startswith("assert"):
            return arguments[:2]
    return []


@pytest.mark.nightly
def test_the_expressions_in_cpythons_own_tests_are_as_cpython_has_them(
    programs: ProgramServer,
) -> None:
    compared, unlike = 0, []
    for source in dict.fromkeys(expressions_of_cpythons_tests()):
        expected = in_cpython(source)
        if expected.failure == "NameError" or " at 0x" in (expected.text or ""):
            continue
        if OF_A_PROCESS.search(source) or len(expected.text or "") > 100_000:
            continue
        compared += 1
        if (found := in_child(programs, source)) != expected:
            unlike.append((source, expected, found))
    assert unlike == []
    assert compared > 1500
