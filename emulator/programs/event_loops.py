"""Prepare a program whose coroutines run at the same time for an event loop. Reads only syntax.

Calls whose results are awaited get other names. Such a call returns an awaitable, and the engine reports all
of them when no coroutine can continue (see `sandbox.engine.AWAITABLE`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from emulator.programs.async_code import awaited_parts
from emulator.programs.bindings import bound_names, imported_names
from emulator.programs.scopes import own_nodes
from emulator.programs.sites import called_tool
from sandbox.engine import AWAITABLE
from sandbox.parsing import children, parse, walk

_TAKE_AWAITABLES = frozenset(
    "as_completed create_task ensure_future gather run shield wait wait_for".split()
)


def wait_together(tree: ast.Module, tools: Collection[str]) -> dict[str, tuple[int, str]]:
    """Rename, in place, the calls whose results are awaited. Returns new name -> site and tool.

    Calls of one ``gather`` have the same site, others 0. Statements at the top level that await something
    move into a coroutine, as CPython has no other place for them.
    """
    renamed: dict[str, tuple[int, str]] = {}
    sites = 0
    nodes = list(walk(tree))
    modules, functions = _imports_of_asyncio(nodes)
    for node in nodes:
        calls: list[ast.expr] = []
        site = 0
        match node:
            case ast.Await(value=value):
                calls = [value]
            case ast.Call(func=function):
                name = _asyncio_name(function, modules, functions)
                if name in _TAKE_AWAITABLES:
                    calls = [part for argument in node.args for part in awaited_parts(argument)]
                if name == "gather":
                    sites = site = sites + 1
        for call in calls:
            if isinstance(call, ast.Call) and (tool := called_tool(call, tools)):
                new = f"{AWAITABLE}{site}_{tool}"
                renamed[new] = (site, tool)
                call.func = ast.copy_location(ast.Name(new, ast.Load()), call.func)
    if any(map(_awaits, tree.body)):
        _move_into_coroutine(tree)
    return renamed


def _imports_of_asyncio(nodes: list[ast.AST]) -> tuple[set[str], dict[str, str]]:
    """The names of the module, and the names of its imported functions with their own names."""
    modules = {"asyncio"}
    functions: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                modules |= {each.asname for each in names if each.asname and each.name == "asyncio"}
            case ast.ImportFrom(module="asyncio", names=names):
                functions |= {each.asname or each.name: each.name for each in names}
    return modules, functions


def _asyncio_name(
    function: ast.expr, modules: Collection[str], functions: Mapping[str, str]
) -> str | None:
    """The name of the function of asyncio that a call's function is."""
    match function:
        case ast.Name(id=name):
            return functions.get(name)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in modules:
            return name
        case ast.Attribute(attr="create_task" | "run_until_complete"):  # of a group or a loop
            return "create_task"
    return None


def _awaits(node: ast.AST) -> bool:
    """Return True if ``node`` awaits something outside functions."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        return True
    if isinstance(node, ast.comprehension) and node.is_async:
        return True
    return any(map(_awaits, children(node)))


_MAIN = "_main_coroutine"


def _move_into_coroutine(tree: ast.Module) -> None:
    """Make the program the body of a coroutine whose variables stay global, and run that."""
    _WithoutAnnotations().visit(tree)
    body = tree.body
    first, last = body[0], body[-1]
    names = {n for node in own_nodes(body) for n in (*bound_names(node), *imported_names(node))}
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    main, *run = parse(f"async def {_MAIN}(): pass\nimport asyncio\nasyncio.run({_MAIN}())").body
    assert isinstance(main, ast.AsyncFunctionDef)
    main.body = [*([ast.Global(sorted(names))] if names else []), *body]
    main.body[0].lineno = main.lineno = first.lineno
    for statement in run:
        statement.lineno = last.lineno
    tree.body = [main, *run]
    ast.fix_missing_locations(tree)


class _WithoutAnnotations(ast.NodeTransformer):
    """Removes annotations outside functions: a global variable of a function can have none."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        new = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(new, node)

    def _unchanged(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _unchanged  # noqa: N815
