"""A real nginx on loopback that gives each request to the next of several servers."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process, free_port, listens

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
    """The URL at which requests go to each of `urls` in turn, those left out that do not answer."""
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
