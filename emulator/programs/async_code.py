"""Decide whether a program needs an event loop, and prepare it for one. Reads only syntax.

A program whose coroutines run one after the other is the same program without ``async``: stubs are plain
functions, ``await f(x)`` is ``f(x)``, and ``gather`` of calls is a list display. `make_plain` rewrites it; it
runs in any engine, with placeholders.

In every other program several coroutines run at the same time, or something of asyncio decides in which
order they run (an ``Event``, a ``Queue``, ``as_completed``, ``TaskGroup``, ``async with`` ...). It keeps its
coroutines, and an engine with a real event loop runs it (`event_loops`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from emulator.programs.sites import called_tool
from sandbox.parsing import children, walk

_TASK_METHODS = frozenset(
    "result done cancel cancelled exception add_done_callback set_name get_name uncancel".split()
)


def make_plain(tree: ast.Module, tools: Collection[str]) -> bool:
    """Rewrite a program, in place, without ``async``. Returns False, and changes nothing, if it needs a
    loop."""
    nodes = list(walk(tree))
    if not any(map(_is_async, nodes)):
        return True
    if _Coroutines(nodes, tools).overlap():
        return False
    _Plain().visit(tree)
    ast.fix_missing_locations(tree)
    return True


def _is_async(node: ast.AST) -> bool:
    match node:
        case ast.Await() | ast.AsyncFor() | ast.AsyncWith() | ast.AsyncFunctionDef():
            return True
        case ast.comprehension(is_async=1):
            return True
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] == "asyncio" for alias in names)
        case ast.ImportFrom(module=module):
            return (module or "").partition(".")[0] == "asyncio"
    return isinstance(node, ast.Name) and node.id == "asyncio"


def _asyncio_function(node: ast.AST) -> str | None:
    """The name of the function of asyncio that ``node`` calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr=name)):
            return name
    return None


class _Coroutines:
    """How a program uses its coroutines and asyncio."""

    def __init__(self, nodes: list[ast.AST], tools: Collection[str]) -> None:
        self._nodes = nodes
        self._tools = tools
        self._own = {node.name for node in nodes if isinstance(node, ast.AsyncFunctionDef)}
        self._parents = {child: node for node in nodes for child in children(node)}
        self._has_tasks = any(_asyncio_function(n) in _TASKS for n in nodes)

    def overlap(self) -> bool:
        """Return True unless the coroutines certainly run one after the other."""
        return not all(map(self._is_plain, self._nodes))

    def _is_plain(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        match node:
            case ast.AsyncFor() | ast.AsyncWith() | ast.comprehension(is_async=1):
                return False
            case ast.Import(names=names):
                own = [a for a in names if a.name.partition(".")[0] == "asyncio"]
                return all(a.name == "asyncio" and not a.asname for a in own)
            case ast.ImportFrom():
                return not _is_async(node)
            case ast.Name(id="asyncio"):
                caller = self._parents.get(parent) if parent is not None else None
                return caller is not None and _asyncio_function(caller) in _FUNCTIONS
            case ast.Name(id=name) if name in self._own:
                return self._runs_at_once(node)
            case ast.AsyncFunctionDef():
                return isinstance(
                    parent, ast.Module | ast.AsyncFunctionDef | ast.FunctionDef
                ) and not any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in walk(node))
            case ast.Attribute(attr=name):
                return not (self._has_tasks and name in _TASK_METHODS)
            case ast.Await(value=value):
                return self._is_plain_await(value)
            case ast.Call() if (function := _asyncio_function(node)) is not None:
                return self._is_plain_call(node, function)
        return True

    def _runs_at_once(self, name: ast.AST) -> bool:
        """Return True if the coroutine function ``name`` is called and awaited in one expression."""
        call = self._parents[name]
        if not (isinstance(call, ast.Call) and call.func is name):
            return False
        user = self._parents[call]
        return isinstance(user, ast.Await) or _asyncio_function(user) == "run"

    def _is_plain_await(self, value: ast.expr) -> bool:
        match value:
            case ast.Call(func=ast.Name(id=name)) if name in self._own:
                return True
            case ast.Call(func=ast.Name(id=name)) if name in self._tools:
                return not self._has_tasks  # an earlier task would start after this call
            case ast.Call():
                return _asyncio_function(value) in ("gather", "sleep", *_TASKS)
        return True  # the result of a call, or a task that is one

    def _is_plain_call(self, call: ast.Call, name: str) -> bool:
        match name, call.args:
            case "gather", _:
                direct = any(
                    self._is_tool(part) for each in call.args for part in awaited_parts(each)
                )
                return not call.keywords and not (direct and self._has_tasks)
            case "run", [only]:
                own = isinstance(only, ast.Call) and getattr(only.func, "id", None) in self._own
                return not call.keywords and (own or self._is_tool(only))
            case "create_task" | "ensure_future", [only]:
                return self._is_tool(only) and {word.arg for word in call.keywords} <= {"name"}
            case "sleep", [ast.Constant() | ast.Name()]:
                awaited = isinstance(self._parents[call], ast.Await)
                return awaited and not call.keywords and not self._has_tasks
        return False

    def _is_tool(self, node: ast.AST) -> bool:
        return called_tool(node, self._tools) is not None


_TASKS = ("create_task", "ensure_future")
_FUNCTIONS = frozenset({"run", "gather", "sleep", *_TASKS})


class _Plain(ast.NodeTransformer):
    """Removes ``async``, ``await`` and the functions of asyncio."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Await(value=value):
                return value
            case ast.AsyncFunctionDef():
                fields = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
                return ast.copy_location(ast.FunctionDef(**fields), node)
            case ast.Import(names=names):
                node.names = [each for each in names if each.name != "asyncio"]
                return node if node.names else ast.copy_location(ast.Pass(), node)
            case ast.Call():
                return self._call(node)
        return node

    def _call(self, node: ast.Call) -> ast.AST:
        new: ast.expr
        match _asyncio_function(node), node.args:
            case None, _:
                return node
            case "gather", [ast.Starred(value=ast.GeneratorExp(elt=item, generators=generators))]:
                new = ast.ListComp(item, generators)
            case "gather", items:
                new = ast.List(items, ast.Load())
            case "sleep", _:
                new = ast.Constant(None)
            case _, [only]:
                return only
        return ast.copy_location(new, node)


def awaited_parts(node: ast.expr) -> Iterator[ast.expr]:
    """An argument, and the expressions in it whose values are awaited."""
    yield node
    match node:
        case ast.Starred(value=inner) | ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
            yield from awaited_parts(inner)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                yield from awaited_parts(item)
