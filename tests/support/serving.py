"""Servers on loopback, in threads of the test's own process. Knows nothing of the emulator."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

Server = TypeVar("Server", bound=socketserver.TCPServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serve(app: WSGIApplication) -> Iterator[str]:
    """Yield the URL (`http://127.0.0.1:PORT`, no path) of a threaded server running `app`.

    werkzeug's, not gunicorn: it starts in no time, and its write fails when the client has gone, which is
    what a stream needs of a server.
    """
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        # werkzeug writes a chunk in three pieces; Nagle's algorithm would hold the last two back.
        disable_nagle_algorithm = True

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    made = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    with serving(made) as server:
        yield f"http://127.0.0.1:{server.server_port}"
