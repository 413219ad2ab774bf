"""The first own upstream: one that leads back here, one that is not there, one that is no provider's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flask import Flask

from tests.support.command_line import command_line, served
from tests.support.forward_proxy import forward_proxy
from tests.support.processes import Process, free_port, wait_until
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
EMBEDDING = {"model": "m", "input": "Hi"}


def port_of(proxy: Process) -> int:
    printed = proxy.wait_for("Serving http://127.0.0.1:")
    found = re.search(r"Serving http://127\.0\.0\.1:(\d+)/v1 ", proxy.wait_for("/v1 in front"))
    assert found is not None, printed
    return int(found[1])


def asked(url: str, body: Any = None) -> tuple[int, Any]:
    status, _, answer = send(url, body)
    return status, answer


def test_a_proxy_that_is_its_own_upstream_by_another_name_says_so(tmp_path: Path) -> None:
    """Each request asked for another, until no thread was left, not even for /healthz."""
    port = str(free_port())
    url = f"http://elsewhere.test:{port}/v1"
    with (
        forward_proxy() as names,
        served(
            *("--port", port, "--base-url", url),
            home=tmp_path,
            variables={"HTTP_PROXY": names.url},
        ) as proxy,
    ):
        here = f"http://127.0.0.1:{port_of(proxy)}"
        told = (
            f"This request has already passed through this proxy: the setting base_url {url} "
            "leads back to it. It must name the model server."
        )
        for path, body in (("chat/completions", CHAT), ("models", None), ("embeddings", EMBEDDING)):
            status, answer = asked(f"{here}/v1/{path}", body)
            assert (status, answer["error"]["code"]) == (508, "loop_detected")
            assert told in answer["error"]["message"]
        assert asked(f"{here}/healthz")[0] == 200


def test_a_base_url_without_its_v1_is_guessed_at_and_named(tmp_path: Path) -> None:
    with (
        serve(Flask("nothing but 404")) as url,
        served(*("--port", "0", "--base-url", url), home=tmp_path) as proxy,
    ):
        proxy.wait_for(f"upstream {url} has no /models; did you mean {url}/v1?")
        here = f"http://127.0.0.1:{port_of(proxy)}"
        assert asked(f"{here}/readyz")[0] == 200
        status, answer = asked(f"{here}/v1/chat/completions", CHAT)
        assert status == 404
        assert f"({url}/chat/completions; did you mean {url}/v1?)" in answer["error"]["message"]
        ended = command_line("check", url, home=tmp_path)
        assert (ended.code, ended.err) == (1, "")
        assert ended.out.endswith(f"{url} has no /models; did you mean {url}/v1?\n")


def test_the_report_on_an_upstream_without_tls_suggests_its_scheme(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    url = upstream.base_url.replace("http:", "https:")
    ended = command_line("check", url, home=tmp_path)
    assert (ended.code, ended.err) == (1, "")
    assert f"; does it speak http://, not https://? ({url}/models)\n" in ended.out


def test_an_unreachable_upstream_is_reported_with_its_url_and_gets_no_other_providers_key(
    tmp_path: Path,
) -> None:
    """DEEPSEEK_API_KEY was sent to whatever host OPENAI_BASE_URL named."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    with served(
        *(
            "--port",
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
        assert f'/chat/completions is the address of an endpoint; the base URL is {url}"' in printed
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
