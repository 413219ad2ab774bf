"""Which operations of Python inspect a value, and how deep: tables.

An operation inspects a value *itself* (``x + 1``, ``x[0]``, ``if x``), its *items* (``for q in x``), or
everything inside it (*deep*: ``sorted(x)``, ``x == y``, any library function). Storing a value, passing
it to a function of the program, or putting it into a display does not inspect it.
"""

from __future__ import annotations

from enum import IntEnum

_words = str.split


class Inspection(IntEnum):
    """How deep an operation inspects an operand; a higher one includes the lower ones."""

    NONE = 0
    ITSELF = 1
    ITEMS = 2
    DEEP = 3


REFLECTION = frozenset(
    _words(
        "exec eval compile locals globals vars dir setattr getattr delattr __import__ __builtins__"
    )
)
"""With these a program can read and write names without an analysis seeing it."""

OBSERVERS = frozenset(
    _words(
        "redirect_stdout redirect_stderr StringIO BytesIO TextIOWrapper stdout stderr __stdout__ "
        "capsys capture_output logging"
    )
)
"""With these a program can read its own output."""

FUNCTIONS: dict[str, Inspection] = {
    **dict.fromkeys(_words("len isinstance type bool id callable"), Inspection.ITSELF),
    **dict.fromkeys(_words("list tuple zip enumerate reversed iter"), Inspection.ITEMS),
}
"""How builtins inspect their arguments; all others inspect them deep."""

_NO_ARGUMENTS: tuple[Inspection, ...] = ()
METHODS: dict[str, tuple[Inspection, ...]] = {
    **dict.fromkeys(_words("items values keys copy clear reverse popitem popleft"), _NO_ARGUMENTS),
    **dict.fromkeys(_words("append appendleft"), (Inspection.NONE,)),
    **dict.fromkeys(_words("extend extendleft"), (Inspection.ITEMS,)),
    **dict.fromkeys(_words("insert get setdefault pop"), (Inspection.DEEP, Inspection.NONE)),
}
"""How methods of lists, dicts and deques inspect their arguments. They inspect the receiver only itself."""

ITEM_FUNCTIONS = frozenset(_words("list tuple zip enumerate reversed iter"))
"""Builtins whose result is a container of the arguments' items."""
LAZY_FUNCTIONS = frozenset(
    _words(
        "map filter accumulate groupby takewhile dropwhile starmap compress filterfalse merge reader "
        "DictReader"
    )
)
"""Functions that inspect an item only when the next one is requested."""
EAGER_FUNCTIONS = frozenset(
    _words("list tuple sorted dict set frozenset sum min max any all join len")
)
"""Functions that take all items of a lazy argument before they return."""
VIEW_METHODS = frozenset(_words("items values keys copy"))
SCALAR_FUNCTIONS = frozenset(
    _words(
        "len int float str bool abs round repr ord chr range isinstance set frozenset hash id divmod "
        "format ascii bin hex oct any all callable type print"
    )
)
"""Builtins whose result never contains a placeholder (set members are hashed, so they are inspected
before)."""
_METHODS_OF_BOTH = {"index", "count"}
TEXT_METHODS = frozenset(name for name in dir(str) if name[0] != "_") - _METHODS_OF_BOTH
"""Methods of texts only. Their results never contain a placeholder."""
VALUE_METHODS = (
    frozenset(name for name in dir(list) + dir(dict) if name[0] != "_") - _METHODS_OF_BOTH
)
"""Methods of lists and dicts only."""
PLAIN_MODULES = frozenset(
    _words(
        "asyncio base64 bisect collections copy csv dataclasses datetime decimal functools hashlib heapq "
        "itertools json math operator random re statistics string textwrap time typing uuid"
    )
)
"""Modules whose objects have no method named as in `METHODS` that inspects its arguments deeper."""
