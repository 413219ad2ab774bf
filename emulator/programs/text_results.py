"""Find the calls whose results a program uses as text. A result that is JSON is otherwise read as a value.

``read_file("package.json").replace(...)``, ``json.loads(read_file(...))`` and ``f"{read_file(...)}"``
need the text as it came; ``search(...)["hits"]`` needs the JSON value. If the uses of a result do not
decide, or contradict each other, the program gets the JSON value, and `driver` tries the text if that
raises. Reads only syntax.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from enum import Enum

from emulator.programs.inspections import TEXT_METHODS, VALUE_METHODS
from emulator.programs.sites import Site, call_sites
from sandbox.parsing import children, walk

_PARSERS = frozenset("loads safe_load literal_eval fromstring StringIO reader DictReader".split())
_MATCHERS = frozenset("search match fullmatch findall finditer sub subn split".split())
_KEY = re.compile(r"[\w.-]*")
"""What keys look like: `"id" in result` tests for a key, `"not found" in result` searches a text."""


class Use(Enum):
    """What one use of a result says about it."""

    TEXT = "a string operation"
    PARSED = "the program parses the text itself, so it needs the text exactly as it came"
    VALUE = "an operation on lists or dicts"
    FORMATTED = "printed, or made a text"
    UNDECIDED = "either"


def calls_read_as_text(tree: ast.Module, tools: Collection[str]) -> dict[Site, bool]:
    """The calls whose results the program uses as text, by line of the statement and tool name.

    The value is True if the program parses the text. Variables of different scopes must have different names
    (`scopes.separate`).
    """
    parents: dict[ast.AST, ast.AST] = {}
    uses: dict[str, list[ast.expr]] = defaultdict(list)
    for node in walk(tree):
        for child in children(node):
            parents[child] = node
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id].append(node)
    found: dict[Site, set[Use]] = defaultdict(set)
    for call, site in call_sites(tree, tools).items():
        found[site] |= {_classify(use, parents[use]) for use in _uses_of(call, parents, uses)}
    return {
        place: Use.PARSED in kinds
        for place, kinds in found.items()
        if kinds == {Use.FORMATTED} or (kinds & {Use.TEXT, Use.PARSED} and Use.VALUE not in kinds)
    }


def _uses_of(
    call: ast.AST, parents: dict[ast.AST, ast.AST], uses: dict[str, list[ast.expr]]
) -> Iterator[ast.expr]:
    """The expressions that use the result: the call itself, or the variable that stores it."""
    node: ast.AST = call
    while isinstance(parents[node], ast.Await):
        node = parents[node]
    match parents[node]:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield from uses[name]
        case ast.NamedExpr(target=ast.Name(id=name)) as named:
            yield from [*uses[name], named]
        case _ if isinstance(node, ast.expr):
            yield node


def _classify(use: ast.expr, user: ast.AST) -> Use:
    if _formats(user, use):
        return Use.FORMATTED
    match user:
        case ast.Attribute(attr=name) if name in TEXT_METHODS:
            return Use.TEXT
        case ast.Attribute(attr=name) if name in VALUE_METHODS:
            return Use.VALUE
        case ast.Subscript(value=value, slice=ast.Constant(value=str())) if value is use:
            return Use.VALUE
        case ast.Call(
            func=ast.Name(id="isinstance"), args=[value, ast.Name(id="list" | "dict")]
        ) if value is use:
            return Use.VALUE
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in _MATCHERS:
            return Use.TEXT
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[value, *_]) if (
            name in _PARSERS and value is use
        ):
            return Use.PARSED
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()]) as compare:
            others = [side for side in (compare.left, *compare.comparators) if side is not use]
            return Use.TEXT if any(map(is_text, others)) else Use.UNDECIDED
        case ast.Compare(
            left=left,
            ops=[ast.In() | ast.NotIn()],
            comparators=[ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items)],
        ) if left is use and any(map(is_text, items)):
            return Use.TEXT
        case ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In() | ast.NotIn()]):
            return Use.UNDECIDED if _KEY.fullmatch(word) else Use.TEXT
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return Use.TEXT if is_text(left if right is use else right) else Use.UNDECIDED
    return Use.UNDECIDED


def _formats(user: ast.AST, use: ast.expr) -> bool:
    """Return True if ``user`` only makes a text of the result, or prints it."""
    match user:
        case ast.FormattedValue(format_spec=None, conversion=-1 | 115):  # 115 is !s
            return True
        case ast.Call(
            func=ast.Name(id="str" | "print")
            | ast.Attribute(value=ast.Constant(value=str()), attr="format"),
            args=args,
        ):
            return use in args
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return "%(" not in text
    return False


def is_text(node: ast.expr | None) -> bool:
    """Return True for a text of the program."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
