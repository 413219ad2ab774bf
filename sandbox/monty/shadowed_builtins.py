"""Rename comprehension variables that have the name of a builtin. Reads only syntax.

Monty 1.4.0 reads the ``id`` of ``[f(id) for id in ids]`` as the builtin function.
"""

import ast
from collections.abc import Iterator

from sandbox.errors import Unsupported
from sandbox.monty.gaps import BUILTINS
from sandbox.parsing import children, walk

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def rename_shadowing_variables(tree: ast.Module) -> bool:
    """Rename such variables, in place. Returns True if there are any.

    Raises Unsupported if a parameter of a lambda in the comprehension has the same name.
    """
    nodes = list(walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    renamed = False
    for node in nodes:
        if isinstance(node, _Comprehension):
            for name in _variables(node) & BUILTINS:
                new_name = f"{name}_"
                while new_name in used:
                    new_name += "_"
                for use in _uses(node, name):
                    use.id = new_name
                renamed = True
    return renamed


def _variables(node: _Comprehension) -> set[str]:
    return {
        name.id
        for generator in node.generators
        for name in walk(generator.target)
        if isinstance(name, ast.Name)
    }


def _uses(node: _Comprehension, name: str) -> Iterator[ast.Name]:
    """The uses of the comprehension's variable: all except those in its first iterable."""
    outside = node.generators[0].iter
    waiting: list[ast.AST] = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.arg) and inner.arg == name:
            raise Unsupported(f"a variable has the name of the builtin {name!r}", inner.lineno)
        if isinstance(inner, ast.Name) and inner.id == name:
            yield inner
        waiting += [child for child in children(inner) if child is not outside]
