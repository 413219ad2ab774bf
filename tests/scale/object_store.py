"""An object store as Amazon's S3 speaks, on loopback: moto's server. It keeps nothing when it is stopped."""

from __future__ import annotations

import itertools
import signal
import sys
import urllib.request
from pathlib import Path

from tests.support.processes import Process, RestartableServer, answers, free_port

_numbers = itertools.count()


class ObjectStore(RestartableServer):
    """A server on a port of its own."""

    stop_signal = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._port = free_port()

    @property
    def variables(self) -> dict[str, str]:
        """The environment by which s3fs finds it."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self._url}

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def bucket(self) -> str:
        """The name of a new, empty one."""
        name = f"files-{next(_numbers)}"
        self.make(name)
        return name

    def make(self, bucket: str) -> None:
        request = urllib.request.Request(f"{self._url}/{bucket}", method="PUT")
        urllib.request.urlopen(request).close()

    def launch(self) -> Process:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        return Process(command, self._log)

    def is_ready(self) -> bool:
        return answers(self._url)
