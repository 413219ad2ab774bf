"""Python outside a fence: is this line code, a call of an offered function, or prose?

`may_be_code` tests the beginning of a line as it streams in and decides whether to buffer the line;
`BareCode` classifies complete lines. A sentence that mentions a call is prose; a line that consists
of a call is code.
"""

from __future__ import annotations

import ast
import re
from enum import Enum, auto

from emulator.reading.calls import PARALLEL
from emulator.reading.events import Verdict
from emulator.reading.lexing import PythonScan
from emulator.reading.python_syntax import BUILTINS, called_tool, calls_tool, dotted_name
from emulator.reading.repairs import parse_repaired
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames
from sandbox.parsing import walk

_STATEMENTS = frozenset(
    "for if while try with def class async import from print await return assert del".split()
)
_WRAPPERS = re.compile(r"[ \t]*(?:>>> ?)?(?:await +|print\( *|[\[(]\s*|[\"'“])*")
_QUOTES = ("'", '"')
_TARGETS = re.compile(  # between the first word and its `=`
    r"(?:[ \t]*,[ \t]*[^\W\d]\w*)*[ \t]*(?::[ \t]*[^\W\d][\w.]*(?:\[[\w\[\], .|]*\])?[ \t]*)?"
)


def may_be_code(head: str, whole: bool, names: ToolNames) -> Verdict:
    """Test whether a line that begins with `head` may be code; with `whole`, no more of the line
    will come.
    """
    if not names:
        return Verdict.NO
    maybe = Verdict.NO if whole else Verdict.MAYBE
    wrappers = _WRAPPERS.match(head)
    at = wrappers.end() if wrappers else 0
    if at == len(head):
        return maybe
    word = WRITTEN_NAME.match(head, at)
    if word is None:
        # ">>" may become a prompt; "get\" may become an escaped underscore.
        return maybe if ">>> ".startswith(head.lstrip()) else Verdict.NO
    at, lead = word.end(), head[: word.start()]
    at += lead[-1:] in _QUOTES and head.startswith(lead[-1:], at)  # a name in quotes
    if at == len(head) or head[at:] in ("\\", ".", "-"):
        return maybe
    if head[at] == "(" and names.find_in_code(word.group()):
        return Verdict.YES
    if "print(" in lead or "await " in lead:
        return Verdict.YES
    if lead.strip(" \t>"):
        return Verdict.NO  # a Markdown link, a quotation
    if word.group() in _STATEMENTS and head[at] in " (:\t":
        return Verdict.YES
    if head[at] == "(":
        return Verdict.YES
    return _assignment(head, at, maybe)


def _assignment(head: str, at: int, maybe: Verdict) -> Verdict:
    targets = _TARGETS.match(head, at)
    at = targets.end() if targets else at
    rest = head[at:]
    if not rest or re.fullmatch(r"(?:,[ \t]*|:[ \t]*)(?:[^\W\d][\w.]*(?:\[[\w\[\], .|]*)?)?", rest):
        return maybe
    if rest[0] != "=":
        return Verdict.NO
    if len(rest) == 1:
        return maybe
    return Verdict.NO if rest[1] == "=" else Verdict.YES


def is_python(source: str, names: ToolNames) -> bool:
    """Return True if ``source`` parses."""
    try:
        parse_repaired(source.strip(), names)
    except SyntaxError:
        return False
    return True


def is_list_of_calls(source: str, names: ToolNames) -> bool:
    """Return True for ``[f(a=1), g(b=2)]``, if all these functions are offered."""
    try:
        tree, _ = parse_repaired(source, names)
    except SyntaxError:
        return False
    match tree.body:
        case [ast.Expr(value=ast.List(elts=[_, *_] as items))]:
            return all(called_tool(item, names) for item in items)
    return False


class LineKind(Enum):
    """The kind of a complete logical line."""

    CONTINUES = auto()
    BLANK = auto()  # or a comment: belongs to the line that follows
    CODE = auto()
    CALL = auto()
    PROSE = auto()


#: Clause headers, and the statement that must precede each one to make it parse.
_BEFORE = {
    "elif": "if x:\n pass\n",
    "else": "if x:\n pass\n",
    "except": "try:\n pass\n",
    "finally": "try:\n pass\n",
}
_AFTER = {"try": "\nfinally:\n pass"}
_HEADERS = re.compile(r"(if|for|while|with|def|class|async|try|elif|else|except|finally)\b")

#: Words after which another word is valid Python.
_LEADING = _STATEMENTS | _BEFORE.keys() | {"match", "not", "lambda", "raise", "global", "yield"}
_SENTENCE = re.compile(r"[^\W\d_]['’\w]*[,;]? +[^\W\d_]")
_SIGNATURE = re.compile(r":\s*(?:str|int|float|bool|list|dict|object|string|number|Optional)\b|->")


class BareCode:
    """Classifies physical lines. Remembers the assignments and the indentation of the current run
    of code.
    """

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._scan = PythonScan()
        self._header = False  # the last statement opened a body
        self._margin: int | None = None
        self._assigned: set[str] = set()
        self._lines: list[str] = []  # of the current logical line

    @property
    def logical(self) -> str:
        """The current logical line."""
        if len(self._lines) > 1:
            self._lines = ["".join(self._lines)]
        return self._lines[0] if self._lines else ""

    @property
    def open(self) -> bool:
        """True if the logical line continues."""
        return self._scan.open

    def is_prose_start(self, partial: str) -> bool:
        """Return True if a line that begins with `partial` can only be prose."""
        return not self._scan.open and _is_sentence(partial)

    def take(self, line: str) -> LineKind:
        """Return the kind of the logical line that `line` ends, or CONTINUES if it does not end."""
        if not self._scan.open:
            self._lines = [line]
            if not line.strip() or line.lstrip().startswith("#"):
                return LineKind.BLANK
            if _is_sentence(line):
                return LineKind.PROSE
            if self._margin is None:
                self._margin = _indentation(line)
        else:
            self._lines.append(line)
        self._scan.feed(line)
        return LineKind.CONTINUES if self._scan.open else self._kind()

    def ends_inside_call(self) -> bool:
        """Return True if the incomplete logical line begins with a call."""
        word = WRITTEN_NAME.match(self.logical.lstrip(" \t[(>"))
        return bool(word and self._names.find(word.group())) and "(" in self.logical

    def ends_with_calls(self) -> bool:
        """Return True if the incomplete logical line is whole calls, around which quotes are left open."""
        try:
            tree, _ = parse_repaired(self.logical.strip(), self._names)
        except SyntaxError:
            return False
        return self._calls(tree)

    def _kind(self) -> LineKind:
        code = re.sub(r"^[ \t]*(?:>>>|\.\.\.) ", "", self.logical).strip()
        indented = _indentation(self.logical) > (self._margin or 0)
        if indented and not self._header:
            return LineKind.PROSE
        if code.startswith("@"):
            return LineKind.CODE
        header = _HEADERS.match(code)
        opens_body = bool(header and code.endswith(":"))
        if header and opens_body:
            word = header.group()
            code = f"{_BEFORE.get(word, '')}{code}\n pass{_AFTER.get(word, '')}"
        try:
            tree, _ = parse_repaired(code, self._names)
        except SyntaxError:
            return LineKind.CALL if self._meant_as_call(code) else LineKind.PROSE
        if not (opens_body or indented or all(self._is_code(node) for node in tree.body)):
            return LineKind.PROSE
        self._header = opens_body or indented
        self._assigned |= {
            node.id
            for node in walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        return LineKind.CALL if self._calls(tree) else LineKind.CODE

    def _calls(self, tree: ast.Module) -> bool:
        if calls_tool(tree, self._names):
            return True
        match tree.body:
            case [ast.Expr(value=ast.Constant(value=str(text)))]:
                return calls_tool(text, self._names)
            case [ast.Expr(value=ast.List(elts=[_, *_] as items))]:
                return all(self._is_slip(item) or self._is_quoted(item) for item in items)
            case [ast.Expr(value=ast.Call(func=func))] if dotted_name(func) == PARALLEL:
                return True
            case [ast.Expr(value=value)]:
                return self._is_slip(value)
        return False

    def _is_quoted(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return False
        word = WRITTEN_NAME.match(node.value)
        if (
            word
            and node.value.startswith("(", word.end())
            and self._names.find_in_code(word.group())
        ):
            return True
        return calls_tool(node.value, self._names)

    def _is_slip(self, node: ast.expr) -> bool:
        """Return True for a call with keywords whose name is nearly an offered one. The model is
        then asked.
        """
        match node:
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[_, *_]):
                return name not in BUILTINS and self._names.find_in_code(name) is not None
        return False

    def _is_code(self, node: ast.stmt) -> bool:
        """Return True for a statement that does not occur in prose."""
        match node:
            case ast.Expr(value=value):
                return self._is_code_expression(value)
            case ast.AnnAssign(value=None) | ast.Pass() | ast.Global() | ast.Nonlocal():
                return False
        return True

    def _is_code_expression(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(args=args):
                return not any(isinstance(a, ast.Constant) and a.value is ... for a in args)
            case ast.Await(value=value) | ast.Attribute(value=value) | ast.Subscript(value=value):
                return self._is_code_expression(value)
            case ast.BinOp(left=left, right=right):
                return self._is_code_expression(left) or self._is_code_expression(right)
            case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items):
                return all(map(self._is_code_expression, items))
            case ast.Dict() | ast.ListComp() | ast.DictComp() | ast.JoinedStr():
                return True
            case ast.Name(id=name):
                return name in self._assigned
            case ast.Constant(value=str()):
                return self._is_quoted(node)
        return False

    def _meant_as_call(self, code: str) -> bool:
        """Return True if code that does not parse is still meant as a call; the reader then reports
        the error.
        """
        if code[:1] in "\"'“" and code[-1:] in "\"'”":
            code = code[1:-1]
        word = WRITTEN_NAME.match(code)
        if word is None or not self._names.find(word.group()) or code[word.end()] != "(":
            return False
        arguments = code[word.end() :].rstrip(" \t\r\n;,")
        literal = any(c in "\"'“" or c.isdigit() for c in arguments) or arguments == "()"
        return literal and arguments.endswith(")") and not _SIGNATURE.search(code)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _is_sentence(line: str) -> bool:
    text = line.lstrip()
    return bool(_SENTENCE.match(text)) and re.split(r"\W", text, maxsplit=1)[0] not in _LEADING
