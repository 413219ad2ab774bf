"""The classes that run code in Azure's dynamic sessions run it here, in kernels of a real proxy.

Each sets the endpoint of its session pool and a token, and nothing else. They share an environment
(environments/azure-sessions.txt) and a program (programs/azure_sessions.py).
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from sandbox.fences import probes
from tests.support.environments import Environment
from tests.support.forward_proxy import copy_bytes
from tests.support.processes import proxy
from tests.support.serving import serving

PROGRAM = Path(__file__).parent / "programs" / "azure_sessions.py"
ENVIRONMENT = Environment("frameworks", "azure-sessions")
_PROBLEM = "not installed" if not ENVIRONMENT.installed else probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sessions: {_PROBLEM}")

DIVISION = (
    "Traceback (most recent call last):\n  line 1, in <module>\n    total / 0\n"
    "ZeroDivisionError: division by zero\n"
)
NO_TOTAL = (
    "Traceback (most recent call last):\n  line 1, in <module>\n    total\n"
    "NameError: name 'total' is not defined\n"
)
PICTURE = {"type": "image", "format": "png"}

EXPECTED: dict[str, dict[str, Any]] = {
    "llama_index": {
        "uploaded": [["data.csv", "/mnt/data/data.csv"]],
        "results": [6, "", "", PICTURE | {"saved_to_local_path": True}],
        "status": ["Success", "Success", "Failure", "Success"],
        "stdout": "written\n",
        "stderr": DIVISION,
        "picture": b"\x89PNG\r\n\x1a\n".hex(),
        "files": {"data.csv": 5, "total.txt": 1, "PICTURE.png": 8},
        "content": "6",
    },
    "langchain": {
        "uploaded": ["/mnt/data/data.csv", "/mnt/data/in/words.txt"],
        "outputs": [
            {"result": 6, "stdout": "", "stderr": ""},
            {"result": "", "stdout": "written\n", "stderr": ""},
            {"result": "", "stdout": "", "stderr": DIVISION},
            {"result": PICTURE, "stdout": "", "stderr": ""},
        ],
        "files": {"data.csv": 5, "in/words.txt": 11, "total.txt": 1, "PICTURE.png": 8},
        "content": "6",
    },
    "semantic_kernel": {
        "uploaded": "/mnt/data/data.csv",
        "outputs": [
            "Status:\nSuccess\nResult:\n6\nStdout:\n\nStderr:\n",
            "Status:\nSuccess\nResult:\n\nStdout:\nwritten\n\nStderr:\n",
            f"Status:\nFailure\nResult:\n\nStdout:\n\nStderr:\n{DIVISION}",
        ],
        "files": {"data.csv": 5, "total.txt": 1},
        "content": "6",
    },
    "autogen": {
        "outputs": [[0, "42"], [0, "6written\n"], [1, DIVISION], [0, "some words\n"]],
        "files": ["data.csv", "total.txt", "words.txt"],
        "downloaded": ["total.txt"],
        "content": "6",
        "after restart": [1, NO_TOTAL],
    },
}


@pytest.fixture(scope="module")
def running_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("proxy") / "log"
    options = ("--client-keys", "client-key", "--database", ":memory:", "--log-level", "warning")
    with proxy("http://127.0.0.1:9/v1", log, *options) as (_, url):
        yield url


@contextmanager
def https(url: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """A server that decrypts what it gets for ``url``; its address and its certificate."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    host, port = url.removeprefix("http://").split(":")

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with (
                context.wrap_socket(self.request, server_side=True) as outside,
                socket.create_connection((host, int(port))) as inside,
            ):
                threading.Thread(target=copy_bytes, args=(inside, outside), daemon=True).start()
                copy_bytes(outside, inside)

        def finish(self) -> None:
            """Handled by the context managers."""

    class Front(ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with serving(Front(("127.0.0.1", 0), Handler)) as front:
        yield f"https://localhost:{front.server_address[1]}", certificate


@pytest.mark.parametrize("name", EXPECTED)
def test_a_class_runs_its_code_here_after_changing_its_endpoint(
    running_proxy: str, tmp_path: Path, name: str
) -> None:
    (tmp_path / "data.csv").write_text("1,2,3")
    (tmp_path / "words.txt").write_text("some words\n")
    # Semantic Kernel accepts https alone; the proxy leaves TLS to the server before it.
    with https(running_proxy, tmp_path) as (secure, certificate):
        url = secure if name == "semantic_kernel" else running_proxy
        run = subprocess.run(
            [ENVIRONMENT.programs / "python", PROGRAM, name],
            cwd=tmp_path,
            env={
                "HOME": str(tmp_path),
                "PATH": os.environ["PATH"],
                "POOL_ENDPOINT": f"{url}/v1/sessions",
                "SSL_CERT_FILE": str(certificate),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-6000:]}"
    # A picture is also a file of its container, named after its execution.
    output = re.sub(r"exec_\w+-1(?=\.png)", "PICTURE", run.stdout)
    [report] = re.findall(r"^REPORT (.*)$", output, re.MULTILINE)
    assert json.loads(report) == EXPECTED[name]
