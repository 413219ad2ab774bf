"""Names both ways: what the wire calls a tool or parameter, and what Python may call it.

Knows nothing of schemas. Every function is pure; uniqueness is the caller's set of taken names.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable

KEYWORDS = frozenset(keyword.kwlist)

_ANNOTATING = frozenset({"Any", "Literal", "Annotated", "BaseModel", "ConfigDict", "Field"})
_CONSTRUCTING = frozenset({"_construct"})

#: Names that a stub must not shadow: a program needs ``print`` and ``list`` for themselves, the
#: stubs need their annotations and the preamble its helper.
RESERVED = KEYWORDS | frozenset(dir(builtins)) | _ANNOTATING | _CONSTRUCTING

#: Plural endings and what an item of such a list is called; the first that fits wins.
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
    """The Python identifier nearest to `written`; not yet unique, not yet free of reserved words.

    Normalised to NFKC as Python itself does (PEP 3131), so that two names which Python would
    take for one come out equal here.
    """
    folded = unicodedata.normalize("NFKC", written)
    name = "".join(c if f"a{c}".isidentifier() else "_" for c in folded)
    if not any(c.isalnum() for c in name):
        return fallback
    if not name[0].isidentifier():
        name = f"{fallback}_{name}"
    return name if unicodedata.normalize("NFKC", name).isidentifier() else fallback


def unique(name: str, taken: Collection[str]) -> str:
    """`name`, or `name2`, `name3`... where it is taken."""
    if name not in taken:
        return name
    stem = f"{name}_" if name[-1].isdigit() else name
    number = 2
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"


def callable_names(written: Iterable[str]) -> dict[str, str]:
    """Names for function stubs: ``math.lcm`` -> ``math_lcm``, ``print`` -> ``print_``."""
    return _chosen(list(written), RESERVED, fallback="tool")


def parameter_names(written: Iterable[str]) -> dict[str, str]:
    """Names for the parameters of one function.

    Only keywords give way (``class`` -> ``class_``): a parameter called ``list`` shadows nothing
    that the caller of a function could miss.
    """
    return _chosen(list(written), KEYWORDS, fallback="arg")


def _chosen(written: list[str], reserved: frozenset[str], *, fallback: str) -> dict[str, str]:
    """Unique Python names by wire name, in order. A name that can stay as it is stays, and is not
    taken away by another that must change."""
    chosen = {name: name for name in written if name not in reserved and _is_identifier(name)}
    taken = set(chosen)
    for name in written:
        if name not in chosen:
            safe = identifier(name, fallback=fallback)
            chosen[name] = unique(f"{safe}_" if safe in reserved else safe, taken)
            taken.add(chosen[name])
    return {name: chosen[name] for name in written}


def class_name(title: object, hint: str, taken: Collection[str], *, item: bool = False) -> str:
    """A name for a nested model: its title if that reads like a name, else from its place.

    `item` says that the model is one item of the list called `hint`: ``attendees`` -> ``Attendee``.
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
