"""The placeholder that stands for an unknown result inside a running program, and what looks for it there.

`definitions` run in front of a program, in any engine. A call that may be passed gives back its result
through ``_look_got``; the other functions give back what they are given, unless that is a placeholder, or
holds one: then they pause under the name `WAIT`, and the run is over. Nothing here can be caught by the
program.
"""

from __future__ import annotations

import secrets
from typing import Any

from sandbox.engine import JSON

WAIT = "_wait"
TOGETHER = "_together"
GOT = "_look_got"
PRINTED = "_Unknown"
"""What a placeholder is printed with."""
_NONCE = secrets.token_hex(16)
PLACEHOLDER: dict[str, JSON] = {"unknown": _NONCE}
"""What an engine is told instead of a result, and tells of a placeholder among the arguments of a call."""

_PLACEHOLDER = f"""
class {PRINTED}:
    def __init__(self):
        self.unknown = {_NONCE!r}


_look_unknown = {PRINTED}()
_look_given = []


def _look_got(value):
    if type(value) is dict and len(value) == 1 and value.get("unknown") == {_NONCE!r}:
        _look_given.append(True)
        return _look_unknown
    return value
"""

_LOOKS = {
    "_look(": f"""
def _look(value):
    if value is _look_unknown:
        {WAIT}()
    return value
""",
    "_look_items(": f"""
def _look_items(value):
    if _look_given and not isinstance(value, (list, tuple, dict, str, set, range, int, float)):
        {WAIT}()
    return value
""",
    "_look_deep(": f"""
def _look_deep(value):
    if _look_given and _look_holds(value, [0], 0):
        {WAIT}()
    return value


def _look_holds(value, seen, depth):
    if isinstance(value, (str, int, float, set, range)) or value is None:
        return False
    seen[0] += 1
    if depth > 50 or seen[0] > 50000:
        return True
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return True
    for item in value:
        if _look_holds(item, seen, depth + 1):
            return True
    return False
""",
}
"""What of an object cannot be looked through (iterators, objects of libraries) is taken to hold a placeholder
while there is any. The members of sets have been hashed, so that they are none."""


def definitions(source: str) -> str:
    """What has to run before a rewritten program: only what it calls, for a sandbox reads it each time."""
    return _PLACEHOLDER + "".join(code for call, code in _LOOKS.items() if call in source)


def holds_placeholder(value: Any) -> bool:
    """Whether an argument of a call, as an engine tells it, is or holds a placeholder."""
    if isinstance(value, dict):
        return value == PLACEHOLDER or any(map(holds_placeholder, value.values()))
    return isinstance(value, (list, tuple)) and any(map(holds_placeholder, value))
