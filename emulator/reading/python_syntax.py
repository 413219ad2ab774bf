"""Python source to syntax trees, within bounds; which calls of offered functions stand in one."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Collection

from emulator.reading.lexing import PythonScan
from emulator.reading.tool_names import ToolNames
from sandbox import parsing
from sandbox.parsing import walk

# A model's "\d" is no concern of the operator's log. Silenced here, not around the call: warning
# filters are shared by all threads.
warnings.filterwarnings("ignore", module="<program>")

#: Bounds on one statement: beyond them CPython's parser may recurse too deep or take too long.
MAX_STATEMENT = 1 << 18
MAX_NESTING = 60

BUILTINS = frozenset(dir(builtins))


def parse(source: str) -> ast.Module:
    """The syntax tree of `source`. Raises SyntaxError, whatever CPython's parser raised."""
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


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` as written, or None if the expression is anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def called(node: ast.AST | None, names: ToolNames) -> str | None:
    """The Python name of the offered function that `node` calls, if it is such a call."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or is_pythons_own(node):
        return None
    written = dotted(node.func)
    return names.find(written) if written else None


def is_pythons_own(call: ast.Call) -> bool:
    """Whether a built-in is called with what no tool takes, whatever tool has its name:
    ``sum(n * n for n in numbers)``, ``max(hits, key=lambda hit: hit["score"])``."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return (
        isinstance(call.func, ast.Name)
        and call.func.id in BUILTINS
        and any(isinstance(argument, (ast.GeneratorExp, ast.Lambda)) for argument in arguments)
    )


def passes_tool(code: str | ast.AST, names: ToolNames) -> bool:
    """Whether the code gives an offered function away as a value: ``map(get_weather, cities)``."""
    tree = _tree(code)
    return tree is not None and any(
        isinstance(child, ast.Name)
        and isinstance(child.ctx, ast.Load)
        and names.find(child.id) == child.id
        for node in walk(tree)
        for child in _values(node)
    )


def _values(node: ast.AST) -> list[ast.expr]:
    """The expressions whose values a node passes on."""
    match node:
        case ast.Call(args=arguments, keywords=keywords):
            return [*arguments, *(word.value for word in keywords)]
        case ast.Assign(value=value):
            return [value]
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
            return values
    return []


def calls_tool(code: str | ast.AST, names: Collection[str]) -> bool:
    """Whether the code calls an offered function anywhere. False for what does not parse."""
    tree, offered = _tree(code), ToolNames.of(names)
    return tree is not None and any(called(node, offered) for node in walk(tree))


def _tree(code: str | ast.AST) -> ast.AST | None:
    if not isinstance(code, str):
        return code
    try:
        return parse(code)
    except SyntaxError:
        return None
