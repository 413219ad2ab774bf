"""MCP servers of the settings that cannot be listed: answers do without them, and say so."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from emulator.hosted.session import _reason
from tests.conftest import StartProxy
from tests.support.inspected import Inspected, shown
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, request_body

BROKEN = (
    "import sys; print('error: no such key', file=sys.stderr); sys.exit('hint: see the manual')"
)


@pytest.mark.parametrize("api", APIS)
def test_an_omitted_server_is_named_in_a_header_and_on_the_status_page(
    start_app: Any, upstream: ScriptedUpstream, api: Any
) -> None:
    upstream.default = "Hello."
    row = {"command": sys.executable, "args": ["-c", BROKEN], "always": True}
    url, services = start_app(mcp={"shop": row}, inspector="open")
    for _ in range(2):  # the second time it is not even asked
        status, headers, _ = send(f"{url}{PATHS[api]}", request_body(api, None, stream=False))
        assert (status, headers["x-emulator-unavailable-tools"]) == (200, "shop")
    page = shown(Inspected(url, services.requests).get("/inspector/status")[2])
    assert "shop" in page and "error: no such key" in page
    assert "x-emulator-unavailable-tools" not in send(f"{url}/v1/models")[1]


STDERR = {
    "error: Failed to resolve\n  Caused by: x\nhint: try --offline": "error: Failed to resolve",
    "npm warn old\nnpm error code E404\nnpm error A log: /x": "npm error code E404",
    'Traceback (most recent call last):\n    raise KeyError("a")\nKeyError: a': "KeyError: a",
    "node:internal/modules:1\n  throw err;\n\nError: no module x\n    at y": "Error: no module x",
    "usage: x\nwhat went wrong": "what went wrong",
    "": "",
}


@pytest.mark.parametrize("stderr", STDERR)
def test_the_reason_is_the_first_error_not_the_last_hint(stderr: str) -> None:
    assert _reason(stderr) == STDERR[stderr]


def test_commands_get_the_variables_for_proxies_and_certificates(
    start_proxy: StartProxy, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/certificates/own.pem")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("SECRET_KEY", "no")
    names = "SSL_CERT_FILE", "https_proxy", "SECRET_KEY"
    script = f"import os, sys; sys.exit('error: ' + str([os.environ.get(n) for n in {names}]))"
    row = {"command": sys.executable, "args": ["-c", script]}
    url = start_proxy(mcp={"shop": row})
    tool = {"type": "mcp", "server_label": "shop"}
    status, _, answer = send(f"{url}/v1/responses", {"model": "m", "input": "Hi", "tools": [tool]})
    assert status == 424
    assert "['/certificates/own.pem', 'http://127.0.0.1:9', None]" in answer["error"]["message"]
