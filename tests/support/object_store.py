"""An object store as Amazon's S3 speaks, on loopback: moto's server. It keeps nothing when it is stopped."""

from __future__ import annotations

import itertools
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process, free_port

_numbers = itertools.count()


class ObjectStore:
    """A server that may be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._port = free_port()
        self._process: Process | None = None

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
        made = urllib.request.Request(f"{self._url}/{bucket}", method="PUT")
        urllib.request.urlopen(made).close()

    def start(self) -> None:
        """Nothing happens if it runs."""
        if self._process is None:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]
            self._process = Process([*command, "-p", str(self._port)], self._log)
            self._process.wait_until(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self._url, timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def object_store_in(folder: Path) -> Iterator[ObjectStore]:
    server = ObjectStore(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
