"""Messages of a child over its socket: four bytes of length (big endian), then a JSON object as UTF-8.

The child has nothing else to read or to write. If the host closes the socket, the child ends. What a child
sends is untrusted: `sandbox.programs.messages` is the other end, and checks what `send` here only promises.
"""

import json
import os
import struct
from typing import Any, Never

from sandbox.programs.inside.filter import SOCKET

MOST_SENT = 1 << 20
"""Bytes of one message from a child."""
MOST_RECEIVED = 64 << 20
"""Bytes of one message to a child: the results of many calls."""
LENGTH = struct.Struct("!I")

LIMIT = "limit"
"""The key of a child's last message if it reached a limit: the host raises SandboxLimit with this value."""


class TooLarge(ValueError):
    """A message is longer than `MOST_SENT`."""


def send(message: dict[str, Any]) -> None:
    """Send one message. Raises ValueError before anything is sent if the message is `TooLarge`, or contains a
    number that is not finite or a lone surrogate; RecursionError if it is too deep."""
    data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    if len(data) > MOST_SENT:
        raise TooLarge(f"a message of {len(data)} bytes is larger than {MOST_SENT}")
    _write(LENGTH.pack(len(data)) + data)


def receive() -> dict[str, Any]:
    """The next message of the host. Ends the process if there is none."""
    (length,) = LENGTH.unpack(_read(LENGTH.size))
    message: dict[str, Any] = json.loads(_read(length))
    return message


_OUT_OF_MEMORY = json.dumps({LIMIT: "memory"}).encode()
_OUT_OF_MEMORY = LENGTH.pack(len(_OUT_OF_MEMORY)) + _OUT_OF_MEMORY


def end_out_of_memory() -> Never:
    """Report the limit of memory, without allocating any, and end the process."""
    _write(_OUT_OF_MEMORY)
    os._exit(1)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(SOCKET, rest) :]
        except OSError:
            os._exit(0)


def _read(size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        try:
            part = os.read(SOCKET, min(len(rest), 1 << 20))
        except OSError:
            os._exit(0)
        if not part:
            os._exit(0)
        rest[: len(part)] = part
        rest = rest[len(part) :]
    return data
