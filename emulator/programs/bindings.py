"""What single nodes of a program say of its names: which they bind, and to what. Pure AST."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from emulator.programs.looks import OBSERVERS
from sandbox.parsing import children, walk


def is_generator(function: ast.AST) -> bool:
    waiting = list(children(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += children(node)
    return False


def last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield (alias.asname or alias.name).partition(".")[0]


def binds(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, but for functions and imports."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def gives(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The variables that a node binds, and to what; None where that is not told."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _stored(target, value)
        case (
            ast.AnnAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.AugAssign(target=target, value=value)
        ):
            yield from _stored(target, value)
        case ast.For(target=target, iter=each) | ast.comprehension(target=target, iter=each):
            yield from _stored(target, each if _gives_scalars(each) else None)
        case ast.withitem(optional_vars=ast.expr() as target) | ast.AsyncFor(target=target):
            yield from _stored(target, None)
        case ast.ExceptHandler(name=str(name)):
            yield name, ast.Constant(None)  # what is raised has been looked at
        case ast.Lambda(args=arguments):
            # Whoever calls it has looked at what it gives, but not at what is there by default.
            defaults = arguments.defaults or arguments.kw_defaults
            for name in _parameters(arguments):
                yield name, None if defaults else ast.Constant(None)
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            for name in _parameters(arguments):
                yield name, None


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    for inner in walk(arguments):
        if isinstance(inner, ast.arg):
            yield inner.arg


def _stored(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values: list[ast.expr | None] = [None] * len(parts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(parts):
                starred = any(isinstance(p, ast.Starred) for p in (*parts, *value.elts))
                values = values if starred else list(value.elts)
            for part, its_value in zip(parts, values, strict=True):
                yield from _stored(part, its_value)
        case ast.Starred(value=inner):
            yield from _stored(inner, None)


def _gives_scalars(each: ast.expr) -> bool:
    match each:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(isinstance(part, ast.Constant) for part in parts)
        case ast.Call(func=ast.Name(id="range")) | ast.Constant():
            return True
    return False


def sees_prints(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in OBSERVERS
        case ast.alias(name=name):
            return bool(OBSERVERS & {*name.split(".")})
    return False
