"""What replicas share: a PostgreSQL, and an object store as Amazon's S3 speaks (moto's server)."""

from __future__ import annotations

import itertools
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Postgres, postgres
from tests.support.processes import Process, free_port

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL. It holds nothing when it starts."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = Process(command, tmp_path_factory.mktemp("s3") / "log")
    url = f"http://127.0.0.1:{port}"
    try:
        server.wait_until(lambda: _answers(url))
        yield url
    finally:
        server.kill()


_buckets = itertools.count()


@pytest.fixture
def bucket(object_store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """``s3://...``, and the environment by which s3fs finds the object store."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": object_store}.items():
        monkeypatch.setenv(name, value)
    name = f"files-{next(_buckets)}"
    made = urllib.request.Request(f"{object_store}/{name}", method="PUT")
    urllib.request.urlopen(made).close()
    return f"s3://{name}/kept"


@pytest.fixture(params=["folder", "bucket"])
def files_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "mounted")
    return str(request.getfixturevalue("bucket"))


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True
