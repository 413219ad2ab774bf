"""Serve a WSGI app on loopback for as long as a test needs it. Knows nothing of the emulator.

werkzeug's threaded server, not gunicorn: it starts in the test's own process, in no time, and its
write fails when the client has gone, which is what a stream needs of a server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class _Handler(WSGIRequestHandler):
    # werkzeug writes a chunk in three pieces; Nagle's algorithm would hold the last two back.
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextmanager
def serve(app: WSGIApplication) -> Iterator[str]:
    """Yield the URL (`http://127.0.0.1:PORT`, no path) of a threaded server running `app`."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
