"""Give variables of different scopes different names. Reads only syntax.

Python separates the ``x`` of a comprehension, a lambda, a function and the module. An analysis that
identifies variables by name can do the same between `separate` and `restore`: in between, the name of a
variable of an inner scope ends with ``@`` and the scope's number, which no program can write.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from emulator.programs.bindings import bound_names, imported_names, parameters
from sandbox.parsing import children, walk

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def separate(tree: ast.Module) -> None:
    """Rename the variables of inner scopes, in place. Class bodies stay unchanged."""
    _Scopes().visit(tree)


def restore(tree: ast.AST) -> None:
    """Undo `separate`."""
    for node in walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.partition("@")[0]
        elif isinstance(node, ast.arg):
            node.arg = node.arg.partition("@")[0]


class _Scopes(ast.NodeVisitor):
    def __init__(self) -> None:
        self._inner: list[dict[str, str]] = []
        self._count = 0

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self._resolve(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        node.arg = self._resolve(node.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Unchanged: methods do not see the names of a class, and programs with classes are not analyzed."""

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit(_defaults(node.args))
        own = parameters(node.args)
        self._scope({each.arg for each in own}, [*own, node.body])

    def visit_FunctionDef(self, node: _Function) -> None:
        self._visit([*node.decorator_list, *_defaults(node.args)])
        own = parameters(node.args)
        names = _local_variables({each.arg for each in own}, node.body)
        self._scope(names, [*own, *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast requires

    def _comprehension(self, node: _Comprehension) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        targets = {
            name.id
            for each in node.generators
            for name in walk(each.target)
            if isinstance(name, ast.Name)
        }
        inside: list[ast.AST] = [first.target, *first.ifs, *others]
        inside += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._scope(targets, inside)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _scope(self, names: Iterable[str], nodes: Sequence[ast.AST]) -> None:
        self._count += 1
        self._inner.append({name: f"{name}@{self._count}" for name in names})
        self._visit(nodes)
        self._inner.pop()

    def _visit(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _resolve(self, name: str) -> str:
        for scope in reversed(self._inner):
            if name in scope:
                return scope[name]
        return name


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def _local_variables(names: set[str], body: Sequence[ast.stmt]) -> set[str]:
    """The local variables of a function that can be renamed: those bound only as parameters or `ast.Name`
    nodes."""
    variables = set(names)
    others: set[str] = set()
    for node in own_nodes(body):
        found = variables if isinstance(node, ast.Name) else others
        found.update(bound_names(node), imported_names(node))
    for statement in body:
        for node in walk(statement):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                others.update(node.names)
    return variables - others


def own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a function without those of inner scopes, but with the first iterable of a comprehension,
    and the targets of ``:=`` in it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _Comprehension):
            waiting.append(node.generators[0].iter)
            waiting += [n.target for n in walk(node) if isinstance(n, ast.NamedExpr)]
        elif not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        ):
            waiting += children(node)
