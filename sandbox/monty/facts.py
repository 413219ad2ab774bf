"""What Monty implements exactly as CPython does (tables), and facts about a program that the rules of
`language` need.

tests/sandbox/test_python.py compares every name in the tables with CPython. Reads only syntax.
"""

from __future__ import annotations

import ast
import builtins
import datetime as dt
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from sandbox.parsing import children, walk

_WORDS = str.split

EXACT = frozenset(_WORDS("list tuple sorted join"))
"""They take all items before they inspect any, so a list instead of a generator makes no difference."""
FOLDS = frozenset(_WORDS("set frozenset dict sum min max"))
"""They inspect each item before they take the next: a list makes no difference if taking items has no
effects."""
LAZY_CALLS = frozenset(_WORDS("map filter"))
LAZY_VIEWS = frozenset(
    _WORDS("zip enumerate reversed product permutations combinations zip_longest chain pairwise")
)
"""Lazy, but taking an item runs no code of the program."""

_MATH = """acos acosh asin asinh atan atan2 ceil comb copysign cos cosh degrees dist e exp2 fabs
factorial floor
fmod frexp fsum gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp log log10 log1p log2 modf nan
nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp"""

MODULES: Mapping[str, frozenset[str]] = {
    "asyncio": frozenset(_WORDS("gather run sleep")),
    "collections": frozenset(_WORDS("Counter defaultdict deque namedtuple")),
    "copy": frozenset(_WORDS("copy deepcopy")),
    "dataclasses": frozenset(_WORDS("dataclass field")),
    "datetime": frozenset(_WORDS("date datetime time timedelta timezone")),
    "functools": frozenset({"reduce"}),
    "itertools": frozenset(_WORDS("product permutations combinations zip_longest chain pairwise")),
    "json": frozenset(_WORDS("JSONDecodeError dumps loads")),
    "math": frozenset(_MATH.split()),
    # Monty refuses access to files and the environment, and that is final.
    "os": frozenset(_WORDS("environ getcwd getenv linesep listdir path remove sep walk")),
    "pathlib": frozenset({"Path"}),
    "random": frozenset(
        _WORDS(
            "choice choices gauss getrandbits randint random randrange sample seed shuffle uniform"
        )
    ),
    "sys": frozenset(_WORDS("stderr stdout")),
    "time": frozenset(_WORDS("sleep time")),
    "typing": frozenset(
        _WORDS(
            "Any Callable Dict Iterable Iterator List Literal Mapping Optional Sequence Set Tuple Union"
        )
    ),
}

BUILTINS = frozenset(
    """abs all any bin bool chr dict divmod enumerate filter float format frozenset hex int
    isinstance iter len list map max min next oct ord pow print range repr reversed round set sorted
    str sum tuple type zip True False None Ellipsis __name__ open""".split()
) | {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
"""Exceptions that Monty does not have raise `Unsupported` when they are used, and no `except` catches
that."""

METHODS = frozenset(
    """capitalize casefold center count endswith expandtabs find format index isalnum isalpha
    isascii isdecimal isdigit islower isspace istitle isupper join ljust lower lstrip partition
    removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines
    startswith strip swapcase title upper zfill append clear copy extend insert pop remove reverse
    sort get items keys setdefault update values fromkeys add discard issubset issuperset isdisjoint
    is_integer appendleft popleft most_common total elements year month day hour minute second
    microsecond tzinfo days seconds total_seconds date time weekday isoweekday isoformat strftime
    fromisoformat strptime now today utcnow utc timestamp replace astimezone max""".split()
)
_KINDS: tuple[type, ...] = (
    *(str, bytes, list, tuple, dict, set, frozenset, int, float, complex, range, type),
    *(Exception, StopIteration, KeyError, UnicodeDecodeError),
    *(dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone, Counter, deque),
    *(type(_WORDS), type(lambda: 0), type({}.keys())),
)
KNOWN = frozenset(name for kind in _KINDS for name in dir(kind))
"""Attributes of CPython's types. Any other attribute is the program's own, or a mistake, in every Python."""

MUTATORS = frozenset(
    """append extend insert remove pop clear sort reverse update setdefault add discard popitem popleft
    appendleft""".split()
)
PURE = frozenset(
    """abs bool chr dict divmod float format frozenset int isinstance len list max min ord pow range
    repr round set sorted str sum tuple type zip enumerate reversed any all""".split()
)
SEARCHES = frozenset(_WORDS("count find rfind index rindex startswith endswith"))
DUMPS = frozenset(_WORDS("indent sort_keys ensure_ascii separators"))
SET_USES = METHODS & frozenset(
    _WORDS("add discard remove update issubset issuperset isdisjoint clear")
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class MontyProgram:
    """The facts about one program."""

    def __init__(self, tree: ast.Module, pausing: frozenset[str]) -> None:
        self.pausing = pausing
        self.parents: dict[ast.AST, ast.AST] = {}
        self.bound: set[str] = set()
        self.modules: dict[str, str] = {}
        self.coroutines: set[str] = set()
        self.uses: dict[str, list[ast.Name]] = defaultdict(list)
        self.catches = False
        functions: dict[str, list[ast.AST]] = defaultdict(list)
        self.nodes = list(walk(tree))
        for node in self.nodes:
            for child in children(node):
                self.parents[child] = node
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    self.bound.add(name)
                case (
                    ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name)
                ):
                    self.bound.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.bound.add(name)
                    functions[name].append(node)
                    if isinstance(node, ast.AsyncFunctionDef):
                        self.coroutines.add(name)
                case ast.Import(names=names):
                    self.modules |= {(each.asname or each.name): each.name for each in names}
                case ast.ImportFrom(names=names):
                    self.bound |= {each.asname or each.name for each in names}
            if isinstance(node, ast.Name):
                self.uses[node.id].append(node)
            self.catches = self.catches or isinstance(node, (ast.Try, ast.TryStar))
        self.pausing_functions = pausing_functions(functions, pausing)

    def builtin(self, node: ast.AST | None) -> str | None:
        """The name of the builtin, or of the itertools function, that a call's function is."""
        match node:
            case ast.Name(id=name) if name not in self.bound - LAZY_VIEWS:
                return name
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.modules:
                return name
        return None

    def consumer(self, node: ast.AST) -> str | None:
        """What takes the items of ``node``: the name of a function, "for" or "comprehension"; None if
        unknown."""
        parent = self.parents[node]
        match parent:
            case ast.Call(func=ast.Attribute(attr="join"), args=[only]) if only is node:
                return "join"
            case ast.Call(func=ast.Name(), args=arguments) if node in arguments:
                name = self.builtin(parent.func)
                if name in ("zip", "enumerate"):
                    return self.consumer(parent)
                return name if arguments[0] is node or name in ("min", "max") else None
            case ast.For(iter=each) if each is node:
                return "for"
            case ast.comprehension(iter=each) if each is node:
                return "comprehension"
            case ast.Starred():
                return "list"
        return None

    def loop(self, node: ast.AST) -> ast.AST:
        """The loop or comprehension that iterates over ``node``."""
        while not isinstance(node, (ast.For, *COMPREHENSIONS)):
            node = self.parents[node]
        return node

    def effects(self, *nodes: ast.AST) -> bool:
        """Return True if evaluating ``nodes`` may have an effect other than a value or an error."""
        return any(self._has_effect(inner) for node in nodes for inner in walk(node))

    def _has_effect(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name not in PURE or name in self.bound
            case ast.Call(func=ast.Attribute(attr=name, value=value)):
                is_module = isinstance(value, ast.Name) and value.id in self.modules
                return not is_module and name not in METHODS - MUTATORS
            case ast.Call():
                return True
        return isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom))

    def mutates(self, *nodes: ast.AST) -> bool:
        """Return True if running ``nodes`` may change an existing list or dict."""
        for node in nodes:
            for inner in walk(node):
                match inner:
                    case ast.Call(func=ast.Name(id=name)):
                        if name not in PURE | {"print"} | self.pausing:
                            return True
                    case ast.Call(func=ast.Attribute(attr=name)):
                        if name not in METHODS - MUTATORS:
                            return True
                    case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.AugAssign() | ast.Await():
                        return True
        return False

    def may_pause(self, function: ast.AST) -> bool:
        """Return True if calling ``function`` may pause."""
        return bool(_names(function) & (self.pausing | self.pausing_functions))


def pausing_functions(
    functions: Mapping[str, Sequence[ast.AST]], pausing: frozenset[str]
) -> set[str]:
    """The functions of the program that may pause, directly or through others."""
    reads = {name: set().union(*map(_names, bodies)) for name, bodies in functions.items()}
    found: set[str] = set()
    while (more := {name for name, read in reads.items() if read & (pausing | found)}) != found:
        found = more
    return found


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in walk(node) if isinstance(inner, ast.Name)}
