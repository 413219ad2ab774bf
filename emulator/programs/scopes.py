"""Give a program's variables names of their own, by scope. Knows only syntax.

Python keeps apart the ``x`` of a comprehension, of a lambda, of a function and of the module. An analysis
that tells variables apart by their spelling does so too between `separate` and `restore`: in between a
name that belongs to an inner scope ends in ``@`` and that scope's number, which no program can spell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from sandbox.parsing import children, walk

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def separate(tree: ast.Module) -> None:
    """Rename the variables of inner scopes, in place. What is in a class stays as it is."""
    _Scopes().visit(tree)


def restore(tree: ast.AST) -> None:
    """Take the names back."""
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
        node.id = self._found(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        node.arg = self._found(node.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its functions do not see its names; programs with classes are not analysed."""

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit(_defaults(node.args))
        with_arguments = {argument.arg for argument in _arguments(node.args)}
        self._scope(with_arguments, [*_arguments(node.args), node.body])

    def visit_FunctionDef(self, node: _Function) -> None:
        self._visit([*node.decorator_list, *_defaults(node.args)])
        parameters = {argument.arg for argument in _arguments(node.args)}
        bound, elsewhere = _locals(node.body)
        own = (parameters | bound) - elsewhere
        shared = {
            name for inner in node.body for name in _declared(inner)
        }  # global and nonlocal names are not its own
        self._scope(own - shared, [*_arguments(node.args), *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast asks for

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

    def _found(self, name: str) -> str:
        for scope in reversed(self._inner):
            if name in scope:
                return scope[name]
        return name


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return listed + [each for each in (arguments.vararg, arguments.kwarg) if each is not None]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def _locals(body: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """The variables that a function's own statements bind, and what they bind in other ways."""
    bound: set[str] = set()
    elsewhere: set[str] = set()
    for node in _own_nodes(body):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                elsewhere.add(name)
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                elsewhere.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                elsewhere.add(name)
            case ast.alias(name=name, asname=alias):
                elsewhere.add((alias or name).split(".")[0])
    return bound, elsewhere


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a function without those of scopes within it, but for what these bind outside."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _Comprehension):
            waiting += [n.target for n in walk(node) if isinstance(n, ast.NamedExpr)]
        elif not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        ):
            waiting += children(node)


def _declared(node: ast.AST) -> Iterator[str]:
    for inner in walk(node):
        if isinstance(inner, (ast.Global, ast.Nonlocal)):
            yield from inner.names
