"""A real Jupyter gateway on loopback, a Kernel Gateway or an Enterprise Gateway, in its own environment.

JUPYTER_JUPYTER_GATEWAY is its command, `PYTHON -m kernel_gateway` or `PYTHON -m enterprise_gateway`: that of
`make test-gateway`, that of `make test-enterprise-gateway`. Its kernels run in the tests' environment.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process, free_port, listens

COMMAND = shlex.split(os.environ.get("JUPYTER_GATEWAY", ""))

_PREFIXES = {"kernel_gateway": "KG", "enterprise_gateway": "EG"}
"""The gateway's module -> how its variables begin."""


@contextmanager
def running(folder: Path, token: str) -> Iterator[str]:
    """The URL of a gateway whose kernel `python3` is this interpreter's; it keeps its files in `folder`."""
    port, prefix = free_port(), _PREFIXES[COMMAND[-1]]
    options = {
        "IP": "127.0.0.1",
        "PORT": str(port),
        "AUTH_TOKEN": token,
        "LIST_KERNELS": "True",
        # Enterprise Gateway starts no kernels for root, unless told that another user is the one.
        "UNAUTHORIZED_USERS": "nobody",
    }
    variables = {f"{prefix}_{name}": value for name, value in options.items()}
    folders = {
        "JUPYTER_PATH": str(_kernelspec(folder)),
        "JUPYTER_DATA_DIR": str(folder),
        "JUPYTER_RUNTIME_DIR": str(folder),
        "TMPDIR": str(folder),
    }
    process = Process(COMMAND, folder / "log", {**os.environ, **variables, **folders})
    url = f"http://127.0.0.1:{port}"
    try:
        process.wait_until(lambda: listens(port))
        yield url
    finally:
        process.kill(signal.SIGTERM)  # as its operator would: it takes its kernels along


def _kernelspec(folder: Path) -> Path:
    place = folder / "share" / "kernels" / "python3"
    place.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec))
    return folder / "share"
