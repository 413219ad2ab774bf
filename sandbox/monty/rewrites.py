"""Rewrite what Monty runs in another way than Python, with the same meaning. Reads only syntax.

`expand_lazy_calls`: in Monty generator expressions are lists, so `any`, `all` and `next` of one would
evaluate items that Python never evaluates: ``any(price(i) > 3 for i in (1, 2, 3))`` stops at the first
price that is high enough. The expression becomes a function before its statement:

    def _genexpr_1():
        for i in (1, 2, 3):
            if price(i) > 3:
                return True
        return False

`rename_shadowing_variables`: Monty 1.4.0 reads the ``id`` of ``[f(id) for id in ids]`` as the builtin
function, so comprehension variables that have the name of a builtin get another one.
"""

import ast
from collections.abc import Iterator

from sandbox.errors import Unsupported
from sandbox.monty.gaps import BUILTINS
from sandbox.parsing import children, walk

_CONSUMERS = ("any", "all", "next")
_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def expand_lazy_calls(tree: ast.Module) -> bool:
    """Rewrite the calls in `tree` that certainly keep their meaning. Returns True if there are any.

    A new function gets the line of the statement that used it.
    """
    bound = {node.id for node in walk(tree) if isinstance(node, ast.Name) and not _loads(node)}
    rewriter = _Rewriter(frozenset(_CONSUMERS) - bound)
    tree.body = rewriter.block(tree.body)
    return rewriter.count > 0


class _Rewriter:
    def __init__(self, consumers: frozenset[str]) -> None:
        self._consumers = consumers
        self.count = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        rewritten: list[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, ast.ClassDef):  # methods do not see the names of a class
                rewritten.append(statement)
                continue
            for field in ("body", "orelse", "finalbody"):
                if inner := getattr(statement, field, None):
                    setattr(statement, field, self.block(inner))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                part.body = self.block(part.body)
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                calls = [call for call in _calls(statement) if self._is_expandable(call)]
                rewritten += [self._function(call, statement) for call in calls]
            rewritten.append(statement)
        return rewritten

    def _is_expandable(self, call: ast.Call) -> bool:
        match call:
            case ast.Call(ast.Name(id=name), [ast.GeneratorExp() as lazy, *rest], []):
                most = 1 if name == "next" else 0
                return (
                    name in self._consumers
                    and len(rest) <= most
                    and all(isinstance(each, (ast.Constant, ast.Name)) for each in rest)
                    and not any(each.is_async for each in lazy.generators)
                    and not any(isinstance(x, (ast.NamedExpr, ast.Await)) for x in walk(lazy))
                )
        return False

    def _function(self, call: ast.Call, place: ast.stmt) -> ast.stmt:
        """The function that replaces `call`; `call` is changed into a call of it."""
        name, lazy, rest = call.func.id, call.args[0], call.args[1:]  # type: ignore[attr-defined]
        self.count += 1
        function_name = f"_genexpr_{self.count}"
        generators, item = lazy.generators, lazy.elt  # type: ignore[attr-defined]
        first = generators[0].iter
        own_names = {
            n.id for each in generators for n in walk(each.target) if isinstance(n, ast.Name)
        }
        needs_arguments = any(isinstance(n, ast.Name) and n.id in own_names for n in walk(first))
        needs_arguments = needs_arguments or any(isinstance(each, ast.Name) for each in rest)
        on_item: dict[str, list[ast.stmt]] = {
            "any": [ast.If(item, [ast.Return(ast.Constant(True))], [])],
            "all": [ast.If(item, [ast.Pass()], [ast.Return(ast.Constant(False))])],
            "next": [ast.Return(item)],
        }
        at_end: dict[str, ast.stmt] = {
            "any": ast.Return(ast.Constant(False)),
            "all": ast.Return(ast.Constant(True)),
            "next": ast.Return(rest[0])
            if rest
            else ast.Raise(ast.Call(ast.Name("StopIteration", ast.Load()), [], []), None),
        }
        body = on_item[name]
        for each in reversed(generators):
            for test in reversed(each.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(each.target, each.iter, body, [])]
        arguments: list[ast.expr] = []
        parameters: list[ast.arg] = []
        if needs_arguments:
            arguments, parameters = [first, *rest], [ast.arg("_items"), ast.arg("_default")]
            body[0].iter = ast.Name("_items", ast.Load())  # type: ignore[attr-defined]
            parameters = parameters[: len(arguments)]
            if rest:
                at_end["next"] = ast.Return(ast.Name("_default", ast.Load()))
        signature = ast.arguments([], parameters, None, [], [], None, [])
        function = ast.FunctionDef(function_name, signature, [*body, at_end[name]], [])
        call.func, call.args = ast.Name(function_name, ast.Load()), arguments
        for node in walk(function):
            if isinstance(node, (ast.stmt, ast.expr, ast.arg)) and not hasattr(node, "lineno"):
                ast.copy_location(node, place)
        return ast.copy_location(function, place)


def _loads(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in a statement's expressions, inner ones first, without those in inner scopes."""
    found: list[ast.Call] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            found.append(node)
        for child in children(node):
            in_block = isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case))
            if not in_block and not isinstance(child, _OWN_SCOPE):
                waiting.append(child)
    yield from reversed(found)


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
