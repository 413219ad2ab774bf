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
    data = "data"

    def __init__(self, folder: Path) -> None:
        """PostgreSQL refuses to run as root; there it runs as nobody."""
        self._folder = folder
        self._as_user = ""
        if os.geteuid() == 0:
            self._as_user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
            os.chown(folder, NOBODY, NOBODY)
        self._port = free_port()
        self._server = f"postgresql://emulator@127.0.0.1:{self._port}"
        self.prepare()

    def prepare(self) -> None:
        """Make the server's data."""
        command = f"{self._as_user} {self.initdb}".split()
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder)

    @property
    def initdb(self) -> str:
        folders = f"-D {self._folder}/{self.data} -X {self._folder}/writes"
        return f"{_PROGRAMS[-1]}/initdb {folders} -U emulator -A trust --no-sync -E UTF8 --locale=C"

    @property
    def command(self) -> str:
        folder, port = self._folder, self._port
        run = f"{_PROGRAMS[-1]}/postgres -D {folder}/{self.data} -k {folder} -p {port} -c fsync=off"
        return f"{self._as_user} {run} -c listen_addresses=127.0.0.1"

    def launch(self) -> Process:
        return Process(self.command.split(), self._folder / "log", cwd=self._folder)

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


class SmallPostgres(Postgres):
    """Its data, except its log of writes, are on a disk of 64 MiB that only its own processes see. It starts
    once."""

    data = "disk/data"

    def prepare(self) -> None:
        (self._folder / "disk").mkdir()

    def launch(self) -> Process:
        mount = f"mount -t tmpfs -o size=64m,mode=777 none {self._folder}/disk"
        script = f"{mount} && {self._as_user} {self.initdb} && exec {self.command}"
        command = ["unshare", "--mount", "sh", "-c", script]
        return Process(command, self._folder / "log", cwd=self._folder)


@contextmanager
def postgres(kind: type[Postgres] = Postgres) -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        with kind(folder) as server:
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
