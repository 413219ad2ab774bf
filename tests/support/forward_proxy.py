"""An HTTP forward proxy on loopback, as HTTPS_PROXY and HTTP_PROXY name one: it forwards and tunnels bytes.

Every host name leads to 127.0.0.1, so that a test may send requests to a host that does not exist.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import AbstractContextManager, suppress
from urllib.parse import urlsplit

from tests.support.serving import serving


class ForwardProxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heads: list[bytes] = []
        """The first head on each connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    server: ForwardProxy

    def handle(self) -> None:
        lines = [self.rfile.readline()]
        while lines[-1].strip():
            lines.append(self.rfile.readline())
        self.server.heads.append(b"".join(lines))
        method, target, _ = lines[0].split()
        is_tunnel = method == b"CONNECT"
        parts = urlsplit((b"//" + target if is_tunnel else target).decode())
        with socket.create_connection(("127.0.0.1", parts.port or 80)) as upstream:
            if is_tunnel:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = target.split(b"/", 3)[3]
                upstream.sendall(b"%b /%b HTTP/1.1\r\n" % (method, path) + b"".join(lines[1:]))
            back = threading.Thread(
                target=copy_bytes, args=(upstream, self.connection), daemon=True
            )
            back.start()
            with suppress(OSError):
                while data := self.rfile.read1(65536):
                    upstream.sendall(data)
                upstream.shutdown(socket.SHUT_WR)
            back.join()


def copy_bytes(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def forward_proxy() -> AbstractContextManager[ForwardProxy]:
    return serving(ForwardProxy())
