"""A package index on loopback that passes on what this machine's own index has.

For builds in containers, which know neither this machine's certificates nor its pip configuration. Speaks the
HTML of the simple repository API (PEP 503); what it serves is what pip checks by hash anyway.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

from flask import Flask, Response, abort, request

from tests.support.serving import serve

PYPI = "https://pypi.org/simple"
BLOCK = 2**16


@contextmanager
def package_index() -> Iterator[str]:
    """The URL of an index that passes on what pip's index on this machine has."""
    with serve(_app(_index_url())) as url:
        yield f"{url}/simple"


def _index_url() -> str:
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(pip, check=False, capture_output=True, text=True)
    return answer.stdout.strip().rstrip("/") or PYPI


def _app(index: str) -> Flask:
    app = Flask(__name__)
    known: set[str] = set()
    """Servers that the index's pages lead to."""

    @app.get("/simple/<name>/")
    def page(name: str) -> str:
        address = f"{index}/{name}/"

        def through_here(link: re.Match[str]) -> str:
            there = urlsplit(urljoin(address, link[1]))
            known.add(f"{there.scheme}://{there.netloc}")
            fragment = f"#{there.fragment}" if there.fragment else ""
            return f'href="/files/{there.scheme}/{there.netloc}{there.path}{fragment}"'

        request = urllib.request.Request(address, headers={"Accept": "text/html"})
        with _opened(request) as found:
            return re.sub(r'href="([^"]+)"', through_here, found.read().decode())

    @app.get("/files/<scheme>/<server>/<path:path>")
    def file(scheme: str, server: str, path: str) -> Response:
        if f"{scheme}://{server}" not in known:
            abort(404)
        raw = request.path.removeprefix(f"/files/{scheme}/{server}")
        found = _opened(urllib.request.Request(f"{scheme}://{server}{raw}"))

        def blocks() -> Iterator[bytes]:
            with found:
                while block := found.read(BLOCK):
                    yield block

        length = found.headers["Content-Length"]
        return Response(blocks(), headers={"Content-Length": length} if length else {})

    return app


def _opened(request: urllib.request.Request):  # noqa: ANN202 - urllib calls its type private
    try:
        return urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        abort(error.code)
