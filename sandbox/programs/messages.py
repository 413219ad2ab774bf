"""Stops: messages of a child that are too large, too many, not JSON objects, too deep, or that contain what
JSON for others cannot (numbers that are not finite, lone surrogates), from reaching the host's code.

Does not stop: lies. What a message means, the caller checks.

The form is that of `sandbox.programs.inside.channel`. Knows no process and no time.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Never

from sandbox.errors import SandboxDied, SandboxLimit
from sandbox.programs.inside.channel import LENGTH, LIMIT, MOST_RECEIVED, MOST_SENT

MOST_BYTES = 16 * MOST_SENT
"""Bytes that a child may send in one run."""
MOST_MESSAGES = 4096
"""Messages that a child may send in one run."""
MOST_LEVELS = 200
"""Levels of lists and objects in a message. Far below what any code of the proxy can handle."""

_LIMITS = frozenset({"memory", "output", "calls"})
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode(message: Mapping[str, Any]) -> bytes:
    """A message for a child, with its length. Raises SandboxLimit if it is too large."""
    data = json.dumps(message).encode()
    if len(data) > MOST_RECEIVED:
        raise SandboxLimit("input")
    return LENGTH.pack(len(data)) + data


class Reader:
    """Splits the bytes of one child into messages. Any error is final."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._bytes = 0
        self._messages = 0

    @property
    def wanted(self) -> int:
        """The number of bytes that the current message still lacks, at least 1."""
        return max(1, LENGTH.size + (self._length() or 0) - len(self._buffer))

    def feed(self, data: bytes) -> None:
        """Raises SandboxLimit."""
        self._bytes += len(data)
        self._buffer += data
        if self._bytes > MOST_BYTES or (self._length() or 0) > MOST_SENT:
            raise SandboxLimit("output")

    def take(self) -> dict[str, Any] | None:
        """The next complete message, or None. Raises SandboxLimit, SandboxDied."""
        length = self._length()
        if length is None or len(self._buffer) < LENGTH.size + length:
            return None
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            raise SandboxLimit("messages")
        data = bytes(self._buffer[LENGTH.size : LENGTH.size + length])
        del self._buffer[: LENGTH.size + length]
        message = parse(data)
        if LIMIT in message:
            what = message[LIMIT]
            raise SandboxLimit(what if isinstance(what, str) and what in _LIMITS else "memory")
        return message

    def _length(self) -> int | None:
        """The length of the current message, or None if it is not known yet."""
        if len(self._buffer) < LENGTH.size:
            return None
        return int(LENGTH.unpack_from(self._buffer)[0])


def parse(data: bytes) -> dict[str, Any]:
    """A message of a child as an object. Raises SandboxDied."""
    try:
        message = json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
        if data.count(b"[") + data.count(b"{") > MOST_LEVELS:
            _refuse_depth(message)
        if _SURROGATE.search(data):  # pairs are characters, others cannot be encoded
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        raise SandboxDied(f"the program's process sent no valid message: {error}") from error
    if not isinstance(message, dict):
        raise SandboxDied("the program's process sent no valid message: not an object")
    return message


def _refuse_depth(message: Any) -> None:
    level = [message]
    for _ in range(MOST_LEVELS):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    if any(isinstance(each, dict | list) for each in level):
        raise ValueError(f"more than {MOST_LEVELS} levels")


def _refuse(word: str) -> Never:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:40]} is too large")
    return number
