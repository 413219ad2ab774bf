"""A real PostgreSQL of its own on loopback, from Debian's package. It keeps nothing."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ordinary_user import NOBODY
from tests.support.processes import Process, RestartableServer, free_port

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
MISSING = "" if _PROGRAMS else "PostgreSQL is not installed: apt-get install postgresql"

_numbers = itertools.count()


class Postgres(RestartableServer):
    """A server in a folder of its own."""

    stop_signal = signal.SIGINT  # its fast shutdown

    def __init__(self, folder: Path) -> None:
        """PostgreSQL refuses to run as root; there it runs as nobody."""
        self._folder = folder
        self._as_user = ""
        if os.geteuid() == 0:
            self._as_user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
            os.chown(folder, NOBODY, NOBODY)
        self._port = free_port()
        self._server = f"postgresql://emulator@127.0.0.1:{self._port}"
        initdb = f"{_PROGRAMS[-1]}/initdb -D {folder}/data -U emulator -A trust --no-sync -E UTF8 --locale=C"
        subprocess.run(
            f"{self._as_user} {initdb}".split(), check=True, capture_output=True, cwd=folder
        )

    def launch(self) -> Process:
        folder, port = self._folder, self._port
        run = f"{_PROGRAMS[-1]}/postgres -D {folder}/data -k {folder} -p {port} -c fsync=off"
        command = f"{self._as_user} {run} -c listen_addresses=127.0.0.1".split()
        return Process(command, folder / "log", cwd=folder)

    def is_ready(self) -> bool:
        ready = f"{_PROGRAMS[-1]}/pg_isready -q -h 127.0.0.1 -p {self._port}"
        return subprocess.run(ready.split(), check=False).returncode == 0

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """None of its processes runs: connections stay open, and nothing answers."""
        assert self._process is not None
        main = self._process.group
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        pids = [main, *map(int, children)]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        name = f"emulator_{next(_numbers)}"
        with psycopg.connect(f"{self._server}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{self._server}/{name}"


@contextmanager
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        with Postgres(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder)


@contextmanager
def restarting(server: Postgres, _: str) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextmanager
def freezing(server: Postgres, _: str) -> Iterator[None]:
    with server.frozen():
        yield


@contextmanager
def locking(_: Postgres, place: str) -> Iterator[None]:
    """What VACUUM FULL and ALTER TABLE do."""
    import psycopg

    with psycopg.connect(place) as other:
        other.execute("LOCK TABLE documents")
        yield


OUTAGES = [restarting, freezing, locking]
"""Each is called with the server and the URL of a database, and lasts as long as its block."""
