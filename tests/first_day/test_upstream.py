"""The first own upstream: one that leads back here, one that is not there, one that is no provider's."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.command_line import served
from tests.support.forwarder import forwarder
from tests.support.processes import SECONDS, Process, free_port, wait_until
from tests.support.scripted import ScriptedUpstream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
EMBEDDING = {"model": "m", "input": "Hi"}


def port_of(proxy: Process) -> int:
    printed = proxy.wait_for("Serving http://127.0.0.1:")
    found = re.search(r"Serving http://127\.0\.0\.1:(\d+)/v1 ", proxy.wait_for("/v1 in front"))
    assert found is not None, printed
    return int(found[1])


def asked(url: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of a GET, or of a POST of `body`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_proxy_that_is_its_own_upstream_by_another_name_says_so(tmp_path: Path) -> None:
    """Each request asked for another, until no thread was left, not even for /healthz."""
    with (
        forwarder() as elsewhere,
        served(
            *("--port", "0", "--warm-kernels", "0"),
            *("--base-url", f"http://localhost:{elsewhere.port}/v1"),
            home=tmp_path,
        ) as proxy,
    ):
        elsewhere.to = port_of(proxy)
        here = f"http://127.0.0.1:{elsewhere.to}"
        told = (
            "This request has already passed through this proxy: the setting base_url "
            f"http://localhost:{elsewhere.port}/v1 leads back to it. It must name the model server."
        )
        for path, body in (("chat/completions", CHAT), ("models", None), ("embeddings", EMBEDDING)):
            status, answer = asked(f"{here}/v1/{path}", body)
            assert (status, answer["error"]["code"]) == (508, "loop_detected")
            assert told in answer["error"]["message"]
        assert asked(f"{here}/healthz")[0] == 200


class NothingHere(BaseHTTPRequestHandler):
    """What a server says whose API is below /v1."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(404)
        self.send_header("content-length", "18")
        self.end_headers()
        self.wfile.write(b"404 page not found")

    do_POST = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: Any) -> None:
        """Not into the test's output."""


def test_a_base_url_without_its_v1_is_guessed_at_and_named(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NothingHere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with served(
            *("--port", "0", "--warm-kernels", "0", "--base-url", url), home=tmp_path
        ) as proxy:
            proxy.wait_for(f"upstream {url} has no /models; did you mean {url}/v1?")
            here = f"http://127.0.0.1:{port_of(proxy)}"
            assert asked(f"{here}/readyz")[0] == 200
            status, answer = asked(f"{here}/v1/chat/completions", CHAT)
            assert status == 404
            assert f"({url}/chat/completions)" in answer["error"]["message"]
        server.shutdown()


def test_an_upstream_that_is_not_there_is_told_by_its_url_and_no_key_of_another_is_sent(
    tmp_path: Path,
) -> None:
    """DEEPSEEK_API_KEY was sent to whatever host OPENAI_BASE_URL named."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    with served(
        *(
            "--port",
            "0",
            "--warm-kernels",
            "0",
            "--upstream-retries",
            "0",
            "--breaker-failures",
            "0",
        ),
        home=tmp_path,
        variables={
            "DEEPSEEK_API_KEY": "sk-of-deepseek",
            "OPENAI_BASE_URL": f"{url}/chat/completions",
        },
    ) as proxy:
        here = f"http://127.0.0.1:{port_of(proxy)}"
        printed = proxy.wait_for(f"upstream {url} does not answer: ")
        assert (
            f"/chat/completions is the address of an endpoint; the base URL is {url}\n" in printed
        )
        assert f"DEEPSEEK_API_KEY is not sent to {url}" in printed
        status, state = asked(f"{here}/readyz")
        assert (status, [*state["upstreams"]]) == (503, [url])
        for path, body in (("chat/completions", CHAT), ("embeddings", EMBEDDING)):
            status, answer = asked(f"{here}/v1/{path}", body)
            assert status == 502
            assert f"127.0.0.1:{port}" in answer["error"]["message"]
            assert path in answer["error"]["message"]
        with ScriptedUpstream("Hello", port=port) as upstream:
            wait_until(lambda: asked(f"{here}/readyz")[0] == 200)
            assert asked(f"{here}/v1/chat/completions", CHAT)[0] == 200
            keys = {exchange.headers.get("authorization") for exchange in upstream.exchanges}
            assert keys == {"Bearer lol"}
