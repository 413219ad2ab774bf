"""Which loops of a cell only collect: ``for c in names: found.append(f(c))``. Runs inside the kernel.

Of such a loop no round can see what another has done, but through the variables that `Effects` names.
Knows only syntax.

Stops: nothing.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sandbox.inside.syntax import acts


@dataclass
class Effects:
    """What the body does: `values` are evaluated in their order, `stored` are given values.

    `changed` are the variables whose lists and dicts change. `certain` says that nothing goes wrong but in
    the calls, if what is appended to is a list.
    """

    values: list[ast.expr] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    certain: bool = True


def effects_of(loop: ast.For, harmless: Collection[str]) -> Effects | None:
    """What a loop does, None where it may do more, or may be left before its end."""
    effects = Effects()
    if loop.orelse or not all(_add(effects, each, harmless, loop) for each in loop.body):
        return None
    if effects.changed & {*_stored(loop.target)}:
        return None
    effects.certain &= all(isinstance(value, ast.Call) for value in effects.values)
    return effects


def _add(effects: Effects, node: ast.stmt, harmless: Collection[str], loop: ast.For) -> bool:
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [value], [])):
            effects.changed.add(name)
            effects.values.append(value)
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), keywords=[]) as shown):
            effects.values += shown.args
            return "print" in harmless
        case ast.Expr(value=value):
            effects.values.append(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            effects.values.append(value)
            effects.stored.add(name)
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value):
            effects.values += [value, key]
            effects.changed.add(name)
            effects.certain = False
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            effects.values.append(value)
            effects.stored.add(name)
            effects.changed.add(name)
            effects.certain = False
        case ast.If(test=test):
            # What is called only sometimes is not called ahead.
            inner = Effects()
            parts = [*node.body, *node.orelse]
            if not all(_add(inner, each, harmless, loop) for each in parts):
                return False
            if any(map(acts, inner.values)):
                return False
            effects.values.append(test)
            effects.stored |= inner.stored
            effects.changed |= inner.changed
            effects.certain = False
        case ast.Continue() | ast.Pass():
            return not isinstance(node, ast.Continue) or node is loop.body[-1]
        case _:
            return False
    return True


def _stored(target: ast.expr) -> Iterator[str]:
    for inner in ast.walk(target):
        if isinstance(inner, ast.Name):
            yield inner.id
