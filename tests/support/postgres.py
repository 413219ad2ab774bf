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
from tests.support.processes import Process, free_port

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
MISSING = "no PostgreSQL: apt-get install postgresql"

_numbers = itertools.count()


class Postgres:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._server = f"postgresql+psycopg://emulator@127.0.0.1:{port}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        import sqlalchemy

        name = f"files_{next(_numbers)}"
        engine = sqlalchemy.create_engine(
            f"{self._server}/postgres", isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
        )
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
        return f"{self._server}/{name}"


def is_there() -> bool:
    return bool(_PROGRAMS)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """It refuses to run as root, so it is nobody's there."""
    as_user = ""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if os.geteuid() == 0:
        as_user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
        os.chown(folder, NOBODY, NOBODY)
    programs, data, port = _PROGRAMS[-1], folder / "data", free_port()
    made = (
        f"{as_user} {programs}/initdb -D {data} -U emulator -A trust --no-sync -E UTF8 --locale=C"
    )
    subprocess.run(made.split(), check=True, capture_output=True, cwd=folder)
    run = f"{as_user} {programs}/postgres -D {data} -k {folder} -p {port} -c fsync=off"
    server = Process(f"{run} -c listen_addresses=127.0.0.1".split(), folder / "log", cwd=folder)
    ready = f"{programs}/pg_isready -q -h 127.0.0.1 -p {port}"
    try:
        server.wait_until(lambda: subprocess.run(ready.split(), check=False).returncode == 0)
        yield Postgres(port)
    finally:
        server.kill(signal.SIGINT)  # its fast shutdown
        shutil.rmtree(folder)
