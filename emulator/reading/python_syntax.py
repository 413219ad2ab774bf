"""Python source to syntax trees, within limits; finds calls of offered functions in them."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Collection, Iterator
from typing import TypeGuard

from emulator.reading.lexing import PythonScan
from emulator.reading.tool_names import ToolNames
from sandbox import parsing
from sandbox.parsing import walk

# Warnings about a model's "\d" do not belong in the operator's log. They are silenced here and not
# around the call, because all threads share the warning filters.
warnings.filterwarnings("ignore", module="<program>")

#: Limits of one statement. Beyond them CPython's parser may recurse too deep or take too long.
MAX_STATEMENT = 1 << 18
MAX_NESTING = 60

BUILTINS = frozenset(dir(builtins))
_NOT_IN_PROGRAMS = frozenset(
    "__import__ breakpoint compile copyright credits eval exec exit help input license open quit".split()
)
"""Built-ins that programs do not have: such a name means the tool."""


def parse(source: str) -> ast.Module:
    """Return the syntax tree of `source`. Raises SyntaxError for every error of CPython's parser."""
    if len(source) > MAX_STATEMENT:
        raise SyntaxError(f"a statement of more than {MAX_STATEMENT} characters")
    scan = PythonScan()
    scan.feed(source)
    if scan.deepest > MAX_NESTING:
        raise SyntaxError(f"brackets nested more than {MAX_NESTING} deep")
    try:
        return parsing.parse(source, "<program>")
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deep") from error
    except ValueError as error:  # null bytes
        raise SyntaxError(str(error)) from error


def dotted_name(node: ast.AST) -> str | None:
    """Return ``a.b.c`` as written, or None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def callee(call: ast.Call) -> str | None:
    """Return the name of what is called, as written, also if it is in quotes: ``"get_weather"(city="Oslo")``,
    which Python could never call."""
    if isinstance(call.func, ast.Constant) and isinstance(call.func.value, str):
        return call.func.value
    return dotted_name(call.func)


def called_tool(node: ast.AST | None, names: ToolNames) -> str | None:
    """Return the Python name of the offered function that `node` calls, or None."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or is_builtin_use(node):
        return None
    written = callee(node)
    return names.find(written) if written else None


def is_builtin_use(call: ast.Call) -> bool:
    """Return True if the call uses a built-in, although a tool has its name (in the stub it is ``list_``):
    ``print(x)``, ``list(found.keys())``, ``max(hits, key=lambda hit: hit["score"])``. With keywords, or with
    nothing but literals, it is the tool's: ``list(user="Ann")``, ``list("Ann")``.
    """
    if not (isinstance(call.func, ast.Name) and call.func.id in BUILTINS):
        return False
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(isinstance(argument, (ast.GeneratorExp, ast.Lambda)) for argument in arguments):
        return True
    if call.func.id in _NOT_IN_PROGRAMS or not call.args:
        return False
    return call.func.id == "print" or not all(
        isinstance(argument, (ast.Constant, ast.List, ast.Tuple, ast.Dict))
        for argument in call.args
    )


def _values(node: ast.AST) -> list[ast.expr]:
    """Return the expressions whose values a node passes on."""
    match node:
        case ast.Call(args=arguments, keywords=keywords):
            return [*arguments, *(word.value for word in keywords)]
        case ast.Assign(value=value):
            return [value]
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
            return values
    return []


def calls_tool(code: str | ast.AST, names: Collection[str]) -> bool:
    """Return True if the code calls an offered function anywhere. Code that does not parse calls
    none.
    """
    tree, offered = _tree(code), ToolNames.of(names)
    return tree is not None and any(called_tool(node, offered) for node in walk(tree))


def uses_tool(code: str | ast.AST, names: ToolNames) -> bool:
    """Return True if the code calls an offered function, or passes one as a value:
    ``map(get_weather, cities)``.
    """
    return next(used_tools(code, names), None) is not None


def used_tools(code: str | ast.AST, names: ToolNames) -> Iterator[str]:
    """The Python names of the offered functions that the code calls or passes as values."""
    # Without parsing: a block may hold thousands of calls of other functions.
    words = (name.rpartition(".")[2] for name in names)
    if isinstance(code, str) and code.isascii() and not any(word in code for word in words):
        return
    tree = _tree(code)
    for node in walk(tree) if tree is not None else ():
        if name := called_tool(node, names):
            yield name
        yield from (value.id for value in _values(node) if _is_tool(value, names))


def _is_tool(node: ast.expr, names: ToolNames) -> TypeGuard[ast.Name]:
    return (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and names.find(node.id) == node.id
    )


def _tree(code: str | ast.AST) -> ast.AST | None:
    if not isinstance(code, str):
        return code
    try:
        return parse(code)
    except SyntaxError:
        return None
