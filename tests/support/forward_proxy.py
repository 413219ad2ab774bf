"""An HTTP forward proxy on loopback, as HTTPS_PROXY and HTTP_PROXY name one: it forwards and tunnels bytes.

Every host name leads to 127.0.0.1, so that a test may send requests to a host that does not exist.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.support.forwarder import copy


class ForwardProxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

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
            back = threading.Thread(target=copy, args=(upstream, self.connection), daemon=True)
            back.start()
            with suppress(OSError):
                while data := self.rfile.read1(65536):
                    upstream.sendall(data)
                upstream.shutdown(socket.SHUT_WR)
            back.join()


@contextmanager
def forward_proxy() -> Iterator[ForwardProxy]:
    with ForwardProxy() as proxy:
        threading.Thread(target=proxy.serve_forever, args=[0.02], daemon=True).start()
        yield proxy
        proxy.shutdown()
