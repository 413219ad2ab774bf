"""Python as it is: what an engine runs, it runs as CPython does; what Monty would run otherwise, it refuses.

The table is tests/data/python_programs.txt: programs, each headed by the engine that they are for. The
reference is the CPython that runs these tests, with `f` as the tool: it returns its first argument.
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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine import Engine, Limits, Paused
from sandbox.errors import ProgramFailed, Unsupported
from sandbox.monty.engine import MontyEngine
from tests.support.places import kernels

LIMITS = Limits(seconds=5)
TABLE = Path(__file__).parents[1] / "data" / "python_programs.txt"


@dataclass(frozen=True)
class Row:
    engine: str
    source: str


def rows() -> list[Row]:
    found = []
    for block in TABLE.read_text().removesuffix("\n").split("\n---\n"):
        head, _, source = block.partition("\n")
        found.append(Row(head.removeprefix("# "), source))
    return found


ROWS = rows()
MONTY = [row.source for row in ROWS if row.engine == "monty"]
KERNEL = [row.source for row in ROWS if row.engine == "kernel"]


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
        return json.loads(json.dumps(args[0])) if args else None

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


def in_engine(engine: Engine, source: str) -> Run:
    """The same there. Raises Unsupported."""
    seen = Run()
    with engine.session(frozenset({"f"})) as session:
        try:
            step = session.start(source)
            while isinstance(step, Paused):
                seen.calls.append(list(step.args))
                step = session.resume(step.args[0] if step.args else None)
            seen.stdout, seen.text = step.stdout, step.text
        except ProgramFailed as error:
            seen.failure, seen.stdout = error.kind, error.stdout
    return seen


@pytest.fixture(scope="module")
def monty() -> Iterator[Engine]:
    with MontyEngine(LIMITS) as engine:
        yield engine


@pytest.fixture(scope="module")
def kernel() -> Iterator[Engine]:
    with kernels(LIMITS, warm=2) as engine:
        yield engine


@pytest.mark.parametrize("source", MONTY)
def test_what_monty_runs_it_runs_as_cpython_does(monty: Engine, source: str) -> None:
    assert in_engine(monty, source) == in_cpython(source)


@pytest.mark.parametrize("source", KERNEL)
def test_what_monty_would_run_otherwise_is_left_to_the_kernel(monty: Engine, source: str) -> None:
    with pytest.raises(Unsupported):
        in_engine(monty, source)


@pytest.mark.parametrize("source", KERNEL[::16])
def test_the_kernel_runs_it_as_cpython_does(kernel: Engine, source: str) -> None:
    assert in_engine(kernel, source) == in_cpython(source)


# A kernel tells stderr with stdout, since the model sees both.
@pytest.mark.nightly
@pytest.mark.parametrize("source", [row for row in KERNEL + MONTY[::4] if "stderr" not in row])
def test_the_kernel_runs_the_whole_table_as_cpython_does(kernel: Engine, source: str) -> None:
    assert in_engine(kernel, source) == in_cpython(source)


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
UNLIKE = {
    # Another version of Unicode's tables, and lone surrogates, which are no text in Monty.
    "'ƛᴀᶆȡᾷ'.capitalize()",
    "'\\ud800\\udc02' < '\\ud84d\\udc56'",
    "repr('\\U00014000')",
    "(int, list[int])",  # a type is no value of JSON
    "(iter, ([],))",
    "chr(2 ** 32)",  # another error
    "round(1.6e+308, -308)",
    "round(-1.7e+308, -308)",
}
"""The known differences that are left, all far from what a program over tools does."""


def expressions_of_cpythons_tests() -> Iterator[str]:
    """The expressions in the assertions of CPython's own tests that stand for themselves."""
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
def test_the_expressions_in_cpythons_own_tests_are_as_cpython_has_them(monty: Engine) -> None:
    compared, unlike = 0, []
    for source in dict.fromkeys(expressions_of_cpythons_tests()):
        expected = in_cpython(source)
        if expected.failure == "NameError" or " at 0x" in (expected.text or ""):
            continue
        if expected.text and len(expected.text) > 2000:
            continue
        with contextlib.suppress(Unsupported):
            found = in_engine(monty, source)
            compared += 1
            # What Monty cannot hand out is told by its repr, which the repr of a repr is not.
            same = found == expected or (expected.text or "").strip("\"'") == found.text
            if not same and source not in UNLIKE:
                unlike.append((source, expected, found))
    assert unlike == []
    assert compared > 1500
