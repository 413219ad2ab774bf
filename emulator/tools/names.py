"""Names in both directions: the wire name of a tool or parameter, and its Python name.

Knows nothing of schemas. Every function is pure; the caller passes the set of names in use.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable

KEYWORDS = frozenset(keyword.kwlist)

_STUBS = frozenset("Any Literal Annotated BaseModel ConfigDict Field _construct".split())

#: Names that a stub must not shadow: a program needs ``print`` and ``list``, the stubs need their
#: annotations, and the preamble needs its helper function.
RESERVED = KEYWORDS | frozenset(dir(builtins)) | _STUBS

#: Plural ending -> singular ending. The first match wins.
_SINGULARS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("shes", "sh"),
    ("ches", "ch"),
    ("xes", "x"),
    ("ss", "ss"),
    ("us", "us"),
    ("is", "is"),
    ("s", ""),
)

_TITLE_CHARACTERS = 40
_WORD = re.compile(r"[^\W_]+")


def identifier(written: str, *, fallback: str) -> str:
    """Return the Python identifier closest to `written`. It may be in use or reserved.

    Normalised to NFKC as Python does (PEP 3131), so two names that are one to Python are equal
    here.
    """
    folded = unicodedata.normalize("NFKC", written)
    name = "".join(c if f"a{c}".isidentifier() else "_" for c in folded)
    if not any(c.isalnum() for c in name):
        return fallback
    if not name[0].isidentifier():
        name = f"{fallback}_{name}"
    return name if unicodedata.normalize("NFKC", name).isidentifier() else fallback


def unique(name: str, taken: Collection[str]) -> str:
    """Return `name`, or `name2`, `name3`... if it is taken."""
    if name not in taken:
        return name
    stem = f"{name}_" if name[-1].isdigit() else name
    number = 2
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"


def callable_names(written: Iterable[str]) -> dict[str, str]:
    """Return names for function stubs: ``math.lcm`` -> ``math_lcm``, ``print`` -> ``print_``."""
    return _choose_names(list(written), RESERVED, fallback="tool")


def parameter_names(written: Iterable[str]) -> dict[str, str]:
    """Return names for the parameters of one function.

    Only keywords change (``class`` -> ``class_``): a parameter named ``list`` shadows nothing that
    the caller of the function needs.
    """
    return _choose_names(list(written), KEYWORDS, fallback="arg")


def _choose_names(written: list[str], reserved: frozenset[str], *, fallback: str) -> dict[str, str]:
    """Return unique Python names by wire name, in order. A name that is already valid stays
    unchanged and is not given to another.
    """
    chosen = {name: name for name in written if name not in reserved and _is_identifier(name)}
    taken = set(chosen)
    for name in written:
        if name not in chosen:
            safe = identifier(name, fallback=fallback)
            chosen[name] = unique(f"{safe}_" if safe in reserved else safe, taken)
            taken.add(chosen[name])
    return {name: chosen[name] for name in written}


def class_name(title: object, hint: str, taken: Collection[str], *, item: bool = False) -> str:
    """Return a name for a nested model: its title if that is usable as a name, else derived from
    its place.

    `item`: the model is one item of the list named `hint`: ``attendees`` -> ``Attendee``.
    """
    if isinstance(title, str) and 0 < len(title) <= _TITLE_CHARACTERS and _camel(title):
        base = _camel(title)
    else:
        base = _camel(_singular(hint) if item else hint)
    if not base or not base[0].isalpha() or not base.isidentifier():
        base = f"Model{base}" if f"Model{base}".isidentifier() else "Model"
    return unique(f"{base}Model" if base in RESERVED else base, taken)


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and unicodedata.normalize("NFKC", name) == name


def _camel(text: str) -> str:
    words = _WORD.findall(unicodedata.normalize("NFKC", text)[:200])
    return "".join(word[0].upper() + word[1:] for word in words)[:60]


def _singular(word: str) -> str:
    lowered = word.lower()
    for ending, replacement in _SINGULARS:
        if lowered.endswith(ending) and len(word) > len(ending) + 1:
            return word[: len(word) - len(ending)] + replacement
    return f"{word}_item"
