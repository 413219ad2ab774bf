"""Two tables of places in a program: the batch of a call, and the handlers around it.

A running frame knows its place (``types.CodeType.co_positions``), so the tables are read from the syntax
once, and nothing is pushed or popped while the program runs: generators, coroutines and exceptions leave
nothing behind.

* **Batches.** The calls inside one display, comprehension or ``asyncio.gather`` are simultaneous; the
  outermost one counts, within one function.
* **Handlers.** A failed call raises where a handler that is active in its frame, or in a frame that called
  it, would catch the exception: ``try``, ``suppress``, ``gather(return_exceptions=True)``.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

FILE = "<program>"
"""The file name of the program's code."""
GUARDED = "guarded"
"""The name of the coroutine around a task whose exceptions are handled (see `guarded`)."""

Place = tuple[int | None, int | None, int | None, int | None]
"""First line and column, last line and column."""
Scope = tuple[str, int] | None
"""Name and first line of a function or class; None is the module."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_DISPLAYS = (ast.List, ast.Set, ast.Tuple, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
_PASSING = (*_DISPLAYS, ast.Await, ast.Call, ast.keyword, ast.Starred, ast.GeneratorExp)


def place_of(node: Any) -> Place:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def called_name(node: ast.Call) -> str:
    """The last part of the called name; "" if an expression is called."""
    name: str = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name


def is_gather(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == "gather" and bool(node.args)


def is_batch(node: ast.AST) -> bool:
    """Return True if the calls inside `node` are simultaneous."""
    if isinstance(node, ast.List | ast.Tuple) and not isinstance(node.ctx, ast.Load):
        return False
    return isinstance(node, _DISPLAYS) or is_gather(node)


class Places:
    """The tables of one program; they grow with its statements."""

    def __init__(self) -> None:
        self._sites: dict[Place, int] = {}
        """The number of each display or the like."""
        self._batches: dict[Place, int] = {}
        """The number of the display that a call belongs to."""
        self._used: set[int] = set()
        """The displays that have calls."""
        self._passed_on: set[Place] = set()
        """Calls whose value is awaited, or passed to what may await it."""
        self._returned: set[Place] = set()
        self._gathers: set[int] = set()
        self._handlers: dict[Scope, list[_Handler]] = {}
        self._expressions: dict[Place, ast.expr] = {}

    def read(self, node: ast.AST, scope: Scope = None, site: int = 0) -> None:
        """Add a statement. Recursive: raises RecursionError for code that is nested too deeply."""
        if isinstance(node, ast.expr):
            self._expressions[place_of(node)] = node
        if isinstance(node, _SCOPES):
            lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
            scope, site = (getattr(node, "name", "<lambda>"), min(lines)), 0
        elif isinstance(node, ast.GeneratorExp):
            # Its calls are made one by one, unless `gather` takes them all.
            site = site if site in self._gathers else 0
        elif not site and is_batch(node):
            site = self._sites.setdefault(place_of(node), len(self._sites) + 1)
            if is_gather(node):
                self._gathers.add(site)
        if isinstance(node, ast.Call) and site and not is_gather(node):
            self._batches[place_of(node)] = site
            self._used.add(site)
        for handler in _handlers(node):
            self._handlers.setdefault(scope, []).append(handler)
        for child in ast.iter_child_nodes(node):
            if isinstance(node, _PASSING) and isinstance(child, ast.Call):
                self._passed_on.add(place_of(child))
            if isinstance(node, ast.Return | ast.Lambda) and isinstance(child, ast.Call):
                self._returned.add(place_of(child))
            self.read(child, scope, site)

    def site(self, node: ast.AST) -> int:
        """The number of the display or the like if it has calls; 0 otherwise, and inside another one."""
        site = self._sites.get(place_of(node), 0) if is_batch(node) else 0
        return site if site in self._used else 0

    def batch_of(self, frame: FrameType) -> int:
        """The number of the display that contains the call which `frame` makes; 0 for none."""
        if frame.f_code.co_filename != FILE:
            return 0
        return self._batches.get(_place_in(frame.f_code, frame.f_lasti), 0)

    def is_passed_on(self, frame: FrameType, handler: str) -> bool:
        """Return True if the value of the call which `frame` makes is awaited, or may be by what gets it."""
        place = _place_in(frame.f_code, frame.f_lasti)
        return place in self._passed_on or (handler == GUARDED and place in self._returned)

    def handler_of(self, frame: FrameType | None, error: type[Exception]) -> str:
        """What would catch `error`: a "handler" that is active in `frame` or its callers, `GUARDED`, or
        ""."""
        while frame is not None:
            code = frame.f_code
            if code.co_filename == FILE:
                if self._is_handled_in(frame, error):
                    return "handler"
            elif code.co_name == GUARDED:
                return GUARDED
            frame = frame.f_back
        return ""

    def _is_handled_in(self, frame: FrameType, error: type[Exception]) -> bool:
        code = frame.f_code
        name = code.co_name
        handlers = self._handlers.get(None if name == "<module>" else (name, code.co_firstlineno))
        if not handlers:
            return False
        line, column, *_ = _place_in(code, frame.f_lasti)
        if line is None or column is None:
            return False
        return any(
            handler.start <= (line, column) < handler.end and handler.catches(frame, error)
            for handler in handlers
        )

    def values_at(self, frame: FrameType, instruction: int) -> Iterator[Any]:
        """The values of the names in the expression that `frame` evaluates."""
        node = self._expressions.get(_place_in(frame.f_code, instruction))
        for part in ast.walk(node) if node is not None else ():
            if isinstance(part, ast.Name):
                yield frame.f_locals.get(part.id, frame.f_globals.get(part.id))


class _Handler:
    """A range of places, and the expressions for the caught types and for the context manager, if any."""

    def __init__(
        self, body: list[ast.stmt], types: ast.expr | None, manager: ast.expr | None = None
    ) -> None:
        first, last = place_of(body[0]), place_of(body[-1])
        self.start: Any = first[:2]
        self.end: Any = last[2:]
        self._types = None if types is None else _compiled(types)
        self._manager = None if manager is None else _compiled(manager)

    def catches(self, frame: FrameType, error: type[Exception]) -> bool:
        try:
            if (
                self._manager is not None
                and _value(self._manager, frame) is not contextlib.suppress
            ):
                return False
            return self._types is None or issubclass(error, _value(self._types, frame))
        except Exception:  # noqa: BLE001 - the handler itself will raise this
            return False


def _handlers(node: ast.AST) -> Iterator[_Handler]:
    if isinstance(node, ast.Try | ast.TryStar):
        for handler in node.handlers:
            yield _Handler(node.body, handler.type)
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            manager = item.context_expr
            if isinstance(manager, ast.Call) and called_name(manager) == "suppress":
                types = ast.copy_location(ast.Tuple(manager.args, ast.Load()), manager)
                yield _Handler(node.body, types, manager.func)


def _compiled(expression: ast.expr) -> CodeType:
    code: CodeType = compile(ast.Expression(expression), FILE, "eval")
    return code


def _value(code: CodeType, frame: FrameType) -> Any:
    return eval(code, frame.f_globals, frame.f_locals)  # noqa: S307 - the child's own code


def _place_in(code: CodeType, instruction: int) -> Place:
    line, last_line, column, last_column = _positions(code)[instruction // 2]
    return line, column, last_line, last_column


@functools.lru_cache(256)
def _positions(code: CodeType) -> list[Place]:
    return list(code.co_positions())
