"""The placeholder: an object that a running program gets instead of an unknown result.

`PREAMBLE` runs before a rewritten program, in any engine. ``_check_result`` turns what the host returns
for a deferred call into the result, the placeholder, or an exception. The other functions return their
argument; if it is a placeholder, or contains one, they pause the program under the name `WAIT`, and the
run ends there. A program cannot catch this.
"""

from __future__ import annotations

import secrets
from typing import Any

from sandbox.engine import JSON

WAIT = "_wait"
BATCH = "_batch"
CHECK_RESULT = "_check_result"
CLASS_NAME = "_Unknown"
"""The class of a placeholder: every text of a placeholder contains this name."""
_NONCE = secrets.token_hex(16)
PLACEHOLDER: dict[str, JSON] = {"unknown": _NONCE}
"""What the host returns to an engine for an unknown result, and what an engine reports for a placeholder
argument."""


def raising(text: str) -> dict[str, JSON]:
    """What the host returns to an engine for a deferred call that raises RuntimeError(text)."""
    return {"failure": _NONCE, "text": text}


PREAMBLE = f"""
class {CLASS_NAME}:
    def __init__(self):
        self.unknown = {_NONCE!r}


_check_unknown = {CLASS_NAME}()
_check_used = []


def {CHECK_RESULT}(value):
    if type(value) is dict and len(value) == 1 and value.get("unknown") == {_NONCE!r}:
        _check_used.append(True)
        return _check_unknown
    if type(value) is dict and len(value) == 2 and value.get("failure") == {_NONCE!r}:
        raise RuntimeError(value["text"])
    return value


def _check(value):
    if value is _check_unknown:
        {WAIT}()
    return value


def _check_items(value):
    if _check_used and not isinstance(value, (list, tuple, dict, str, set, range, int, float)):
        {WAIT}()
    return value


def _check_deep(value):
    if _check_used and _check_contains(value, [0], 0):
        {WAIT}()
    return value


def _check_contains(value, seen, depth):
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
        if _check_contains(item, seen, depth + 1):
            return True
    return False
"""
# Iterators and library objects cannot be searched: they count as containing a placeholder if the run has
# any. Members
# of sets were hashed, so they are no placeholders.


def holds_placeholder(value: Any) -> bool:
    """Return True if an argument of a call, as an engine reports it, is or contains a placeholder."""
    if isinstance(value, dict):
        return value == PLACEHOLDER or any(map(holds_placeholder, value.values()))
    return isinstance(value, (list, tuple)) and any(map(holds_placeholder, value))
