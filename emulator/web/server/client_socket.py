"""A client's connection, as its thread writes to it. Knows nothing of HTTP but where a head ends.

With a timeout Python asks the kernel before each write whether it may, which costs as much as the write, and
lets other threads in twice. Nearly always it may: so a write is tried first, and waited for only then. A head
leaves together with what follows it.
"""

from __future__ import annotations

import socket
from typing import Any

WRITE_SECONDS = 60
"""Longest wait for a client to take a piece of its answer."""
_JOINED = 64 * 1024
"""Larger pieces are not copied to stand behind their head."""
_BEGIN, _END = b"HTTP/1.", b"\r\n\r\n"


class ClientSocket(socket.socket):
    """Takes the place of ``accepted``. It never blocks, but in `sendall` and `sendfile`."""

    def __init__(self, accepted: socket.socket) -> None:
        family, kind, protocol = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, protocol, accepted.detach())
        self.settimeout(0)
        self._head = b""

    def setblocking(self, flag: bool) -> None:
        """gunicorn's threads expect one that blocks; its loop, one that does not."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """As the base class, within ``WRITE_SECONDS``. What looks like a head waits for what follows it."""
        if self._head:
            self._head, head = b"", self._head
            if len(data) > _JOINED:
                self._send(head, flags)
            else:
                data = head + data
        elif data.startswith(_BEGIN) and data.endswith(_END):
            self._head = data
            return
        self._send(data, flags)

    def flush(self) -> None:
        """Nothing follows the head."""
        if self._head:
            self._head, head = b"", self._head
            self._send(head)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        self.flush()
        self.settimeout(WRITE_SECONDS)
        try:
            return super().sendfile(file, offset, count)
        finally:
            self.settimeout(0)

    def _send(self, data: bytes, flags: int = 0) -> None:
        try:
            sent = self.send(data, flags)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.settimeout(WRITE_SECONDS)
            try:
                super().sendall(memoryview(data)[sent:], flags)
            finally:
                self.settimeout(0)
