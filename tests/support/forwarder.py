"""A second address for a server on this machine, as a reverse proxy or a container's port gives one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Forwarder:
    """Connections to `port` go on to the port `to`, once that is set."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.to: int | None = None

    def serve(self) -> None:
        """Until `close`."""
        with suppress(OSError):
            while True:
                taken, _ = self._server.accept()
                if self.to is None:
                    taken.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self.to))
                for source, sink in ((taken, there), (there, taken)):
                    threading.Thread(target=copy, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Send all bytes of ``source`` to ``sink``, and then that there are no more."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def forwarder() -> Iterator[Forwarder]:
    server = Forwarder()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
