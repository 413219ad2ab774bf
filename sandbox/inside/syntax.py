"""What `calls` asks of single nodes of a cell's syntax. Runs inside the kernel.

Stops: nothing.
"""

import ast

VALUES = (ast.Constant, ast.Name, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.keyword)
READING = (
    *(
        ast.JoinedStr,
        ast.FormattedValue,
        ast.Subscript,
        ast.Slice,
        ast.Attribute,
        ast.BinOp,
        ast.UnaryOp,
    ),
    *(ast.Compare, ast.IfExp, ast.BoolOp),
)
SYNTAX = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def names_bound(tree: ast.AST) -> set[str]:
    """All names that are given to something anywhere in it."""
    return {
        name
        for node in ast.walk(tree)
        for name in (
            [node.id]
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            else [node.name]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            else [node.arg]
            if isinstance(node, ast.arg)
            else [node.asname or node.name]
            if isinstance(node, ast.alias)
            else []
        )
    }


def operands(node: ast.expr) -> list[ast.expr]:
    """What is evaluated in any case, before anything is done with it."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Await(value=value) | ast.Attribute(value=value):
            return [value]
        case ast.JoinedStr(values=parts):
            return parts
    return []


def become(
    call: ast.Call, name: str, arguments: list[ast.expr], words: list[ast.keyword] | None = None
) -> None:
    """Make it a call of another function, in its place."""
    call.func = ast.copy_location(ast.Name(name, ast.Load()), call)
    call.args, call.keywords = arguments, words or []


def of_asyncio(function: ast.expr, name: str) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id="asyncio"), attr=attribute):
            return attribute == name
    return False


def take_at_once(node: ast.Call, *, starred: bool) -> None:
    """Make a list of a generator expression all of whose items are taken before any is looked at."""
    if starred:
        for argument in node.args:
            if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.GeneratorExp):
                argument.value = _list_of(argument.value)
    elif len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
        node.args[0] = _list_of(node.args[0])


def _list_of(lazy: ast.GeneratorExp) -> ast.ListComp:
    return ast.copy_location(ast.ListComp(lazy.elt, lazy.generators), lazy)


def acts(node: ast.AST) -> bool:
    """Whether anything is called, or a name given, while it is evaluated."""
    kinds = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
    return any(isinstance(inner, kinds) for inner in ast.walk(node))
