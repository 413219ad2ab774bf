"""What replicas share: a PostgreSQL, an object store, a gateway; and two of them behind nginx."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.scale.object_store import ObjectStore
from tests.scale.replicas import TOKEN, Replicas
from tests.support import gateways
from tests.support.postgres import Postgres
from tests.support.processes import Process, free_port, listens, proxy
from tests.support.scripted import ScriptedUpstream

_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/errors.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/unused-1;
    uwsgi_temp_path {folder}/unused-2;
    scgi_temp_path {folder}/unused-3;
    client_max_body_size 64m;
    upstream replicas {{
        {servers}
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header host $http_host;
            proxy_buffering off;
            proxy_read_timeout 120s;
            add_header x-replica $upstream_addr always;
        }}
    }}
}}
"""


@contextmanager
def balanced(urls: Sequence[str], folder: Path) -> Iterator[str]:
    """A real nginx: its URL, at which requests go to each of `urls` in turn, unless it does not answer."""
    port = free_port()
    servers = " ".join(f"server {url.removeprefix('http://')} fail_timeout=2s;" for url in urls)
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=port, servers=servers))
    command = [shutil.which("nginx") or "nginx", "-p", str(folder), "-c", str(configuration)]
    server = Process([*command, "-e", str(folder / "errors.log")], folder / "nginx.log")

    try:
        server.wait_until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill(signal.SIGTERM)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """``s3://...``, and the environment by which s3fs finds the object store."""
    for name, value in object_store.variables.items():
        monkeypatch.setenv(name, value)
    name = object_store.bucket()
    monkeypatch.setenv("BUCKET", name)
    return f"s3://{name}/kept"


@pytest.fixture(params=["folder", "bucket"])
def files_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "mounted")
    return str(request.getfixturevalue("bucket"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not gateways.COMMAND:
        pytest.skip("no gateway to test against: `make test-scale`")
    with gateways.running(tmp_path_factory.mktemp("gateway"), TOKEN) as url:
        yield url


@pytest.fixture
def replicas(
    upstream: ScriptedUpstream,
    postgres_server: Postgres,
    gateway: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Replicas]:
    place = f"--database {postgres_server.database()} --files-dir {tmp_path / 'mounted'}"
    shared = place.split()
    for option in getattr(request, "param", []):
        shared.append(request.getfixturevalue("bucket") if option == "BUCKET" else option)
    if "--sandbox" not in shared:
        shared += f"--sandbox gateway --gateway-url {gateway} --gateway-token {TOKEN}".split()
    with ExitStack() as opened:
        started = [
            opened.enter_context(proxy(upstream.base_url, tmp_path / f"{name}.log", *shared))
            for name in ("one", "two")
        ]
        urls = [url for _, url in started]
        balancer = opened.enter_context(balanced(urls, tmp_path))
        yield Replicas([process for process, _ in started], urls, balancer, gateway)
