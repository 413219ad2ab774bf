"""What each operation of Python looks at: tables.

An operation looks at a value *itself* (``x + 1``, ``x[0]``, ``if x``), at it as something with *items*
(``for q in x``), or *deep* into it (``sorted(x)``, ``x == y``, whatever a library does). What is only stored,
passed to a function of the program's own or put into a display is not looked at.
"""

from __future__ import annotations

from enum import IntEnum

_WORDS = str.split


class Look(IntEnum):
    """How an operation looks at an operand; a higher one looks at more."""

    NONE = 0
    ITSELF = 1
    ITEMS = 2
    DEEP = 3


REFLECTION = frozenset(
    _WORDS(
        "exec eval compile locals globals vars dir setattr getattr delattr __import__ __builtins__"
    )
)
"""With these a program could read and write names that no analysis sees."""

OBSERVERS = frozenset(
    _WORDS(
        "redirect_stdout redirect_stderr StringIO BytesIO TextIOWrapper stdout stderr __stdout__ "
        "capsys capture_output logging"
    )
)
"""With these a program can see what it has printed."""

FUNCTIONS: dict[str, Look] = {
    **dict.fromkeys(_WORDS("len isinstance type bool id callable"), Look.ITSELF),
    **dict.fromkeys(_WORDS("list tuple zip enumerate reversed iter"), Look.ITEMS),
}
"""Builtins that do not look deep into their arguments."""

_NOTHING: tuple[Look, ...] = ()
METHODS: dict[str, tuple[Look, ...]] = {
    **dict.fromkeys(_WORDS("items values keys copy clear reverse popitem popleft"), _NOTHING),
    **dict.fromkeys(_WORDS("append appendleft"), (Look.NONE,)),
    **dict.fromkeys(_WORDS("extend extendleft"), (Look.ITEMS,)),
    **dict.fromkeys(_WORDS("insert get setdefault pop"), (Look.DEEP, Look.NONE)),
}
"""Methods of lists, dicts and deques, which look at these only themselves, and how at their arguments."""

GIVE_ITEMS = frozenset(_WORDS("list tuple zip enumerate reversed iter"))
COLLECTIONS = frozenset(_WORDS("list tuple sorted dict"))
LAZY_LOOKS = frozenset(
    _WORDS(
        "map filter accumulate groupby takewhile dropwhile starmap compress filterfalse merge reader "
        "DictReader"
    )
)
"""What looks at an item only when it is asked for the next one."""
EAGER = COLLECTIONS | frozenset(_WORDS("set frozenset sum min max any all join len"))
VIEWS = frozenset(_WORDS("items values keys copy"))
SCALARS = frozenset(
    _WORDS(
        "len int float str bool abs round repr ord chr range isinstance set frozenset hash id divmod "
        "format ascii bin hex oct any all callable type print"
    )
)
TEXTS = frozenset(
    _WORDS("strip lstrip rstrip lower upper title replace join format startswith endswith isdigit")
)
PLAIN_MODULES = frozenset(
    _WORDS(
        "asyncio base64 bisect collections copy csv dataclasses datetime decimal functools hashlib heapq "
        "itertools json math operator random re statistics string textwrap time typing uuid"
    )
)
"""Modules whose objects have no method of lists and dicts that looks at what it is given."""
