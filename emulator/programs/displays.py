"""What ends up, unread, in a list, tuple or dict display. Pure AST."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sandbox.parsing import walk

_TAKEN_AT_ONCE = ("list", "tuple", "sorted")


def take_at_once(tree: ast.Module) -> None:
    """Make lists of the generator expressions all of whose items are taken before any is looked at."""
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as lazy, *_]):
                at_once = name in _TAKEN_AT_ONCE
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp() as lazy]):
                at_once = True
            case _:
                continue
        if at_once:
            node.args[0] = ast.copy_location(ast.ListComp(lazy.elt, lazy.generators), lazy)


def leaves(value: ast.expr) -> Iterator[ast.expr]:
    """The expressions that end up, unread, in a display; the value itself when it is none."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from leaves(part)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            yield from leaves(part)
        case _:
            yield value


def comprehends(value: ast.expr) -> bool:
    """Whether a comprehension is, or stands unread in, a display."""
    match value:
        case ast.ListComp() | ast.DictComp():
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return any(map(comprehends, parts))
    return False
