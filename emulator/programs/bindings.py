"""Which names single syntax nodes bind, and to which values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def imported_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0]


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node binds; those of imports are `imported_names`."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets that a node assigns to, each with the expression that its value comes from: of a loop the
    iterable, of ``with`` the context manager."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case (
            ast.AnnAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.AugAssign(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.AsyncFor(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.withitem(context_expr=value, optional_vars=ast.expr() as target)
        ):
            yield target, value


def assigned_values(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The variables that a node binds, each with its value; None if the value is not in the syntax."""
    for target, value in assignments(node):
        match node:
            case ast.AsyncFor() | ast.withitem():
                yield from _stored(target, None)
            case ast.For(iter=each) | ast.comprehension(iter=each):
                yield from _stored(target, each if _has_scalar_items(each) else None)
            case _:
                yield from _stored(target, value)
    match node:
        case ast.ExceptHandler(name=str(name)):
            yield name, ast.Constant(None)  # a raised exception has been inspected
        case ast.Lambda(args=arguments):
            # A caller inspects the arguments that it passes, but nobody inspects the defaults.
            defaults = arguments.defaults or arguments.kw_defaults
            for argument in parameters(arguments):
                yield argument.arg, None if defaults else ast.Constant(None)
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            for argument in parameters(arguments):
                yield argument.arg, None


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return listed + [each for each in (arguments.vararg, arguments.kwarg) if each is not None]


def values_by_name(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr | None]]:
    """The `assigned_values` of each variable."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        for name, value in assigned_values(node):
            values.setdefault(name, []).append(value)
    return values


def _stored(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values: list[ast.expr | None] = [None] * len(parts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(parts):
                starred = any(isinstance(p, ast.Starred) for p in (*parts, *value.elts))
                values = values if starred else list(value.elts)
            for part, part_value in zip(parts, values, strict=True):
                yield from _stored(part, part_value)
        case ast.Starred(value=inner):
            yield from _stored(inner, None)


def _has_scalar_items(each: ast.expr) -> bool:
    match each:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(isinstance(part, ast.Constant) for part in parts)
        case ast.Call(func=ast.Name(id="range")) | ast.Constant():
            return True
    return False
