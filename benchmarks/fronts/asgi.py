"""`benchmarks.load.bare` for ASGI servers: a2wsgi gives each request a thread, its bytes to the loop.

(asgiref's adapter runs all requests in one thread, one after another: it cannot hold two streams.)
"""

from __future__ import annotations

import os

from a2wsgi import WSGIMiddleware

from benchmarks.load.bare import app as flask_app

app = WSGIMiddleware(flask_app, workers=int(os.environ["THREADS"]))
