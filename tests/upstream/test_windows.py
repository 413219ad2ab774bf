"""A prompt that cannot fit the window is refused, and the window is the one that the server has now."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processes import wait_until
from tests.support.raw_http import fetch, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api, request_body
from tests.support.tools import GET_WEATHER

StartApp = Callable[..., tuple[str, Any]]
LONG = 42_000
"""Characters of a prompt of more than twice 4,096 tokens."""


def listed(owner: str, name: str = "small", **fields: Any) -> dict[str, Any]:
    row = {"id": name, "object": "model", "created": 1, "owned_by": owner, **fields}
    return {"/v1/models": {"object": "list", "data": [row]}}


def ollama(tokens: int, name: str = "small") -> dict[str, Any]:
    """An Ollama that has loaded its model with a context of ``tokens``; 0: that has not."""
    loaded = [{"name": name, "model": name, "context_length": tokens}] if tokens else []
    version = {"/api/version": {"version": "0.20"}}
    return {**listed("library", name), **version, "/api/ps": {"models": loaded}}


def lm_studio(tokens: int) -> dict[str, Any]:
    """An LM Studio that has loaded its model with a context of ``tokens``; 0: that has not."""
    row = {"id": "small", "max_context_length": 131_072}
    loaded = {"state": "loaded", "loaded_context_length": tokens} if tokens else {}
    model = listed("organization_owner", max_context_length=131_072)
    return {**model, "/api/v0/models": {"data": [{**row, **loaded}]}}


def start(start_app: StartApp, upstream: ScriptedUpstream, answers: Any, **settings: Any) -> str:
    """The URL of a proxy that has asked its server, which answers ``answers``."""
    upstream.at_root = answers
    url, services = start_app(**settings)
    services.reachability.check()
    return url


def question(api: Api, characters: int, **fields: Any) -> dict[str, Any]:
    body = request_body(api, fields.pop("tool", None), stream=fields.pop("stream", False))
    words = [{"role": "user", "content": "What? " * (characters // 6)}]
    return {
        **body,
        "model": "small",
        "input" if api == "responses" else "messages": words,
        **fields,
    }


def ask(url: str, characters: int, **fields: Any) -> tuple[int, Any]:
    status, _, answer = send(url + PATHS["chat"], question("chat", characters, **fields))
    return status, answer


def asked(upstream: ScriptedUpstream, path: str) -> int:
    """How many times the server was asked for ``path``."""
    return sum(exchange.path == path for exchange in upstream.exchanges)


def length_at(url: str) -> int | None:
    [row] = send(f"{url}/v1/models")[2]["data"]
    length: int | None = row.get("context_length")
    return length


MODES: dict[str, tuple[Any, dict[str, str]]] = {
    "relayed": (None, {}),
    "native": (GET_WEATHER, {"tools": "native"}),
    "emulated": (GET_WEATHER, {"tools": "emulate"}),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_that_seems_twice_the_window_is_refused_in_each_apis_words(
    start_app: StartApp, upstream: ScriptedUpstream, mode: str
) -> None:
    """Ollama cuts it, and the model answers without the tools or the task."""
    tool, settings = MODES[mode]
    url = start(start_app, upstream, ollama(4096), **settings)
    for api in APIS:
        for stream in (False, True):
            body = question(api, LONG, tool=tool, stream=stream)
            status, _, raw = fetch(url + PATHS[api], body)
            text = raw.decode()
            if status == 200:
                assert (api, stream) == ("responses", True)
                assert "event: response.failed" in text
                error = json.loads(text.rpartition("data: ")[2])["response"]["error"]
            else:
                assert status == 400
                error = json.loads(text)["error"]
                assert error["type"] == "invalid_request_error"
            message = error["message"]
            assert "4096 tokens" in message
            assert "the prompt has about 1" in message
            assert "Ollama: OLLAMA_CONTEXT_LENGTH=32768 ollama serve" in message
            if api == "messages":
                assert message.startswith("prompt is too long: ")
            else:
                assert error["code"] == "context_length_exceeded"
    assert upstream.requests == []


PASSED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "once to twice the window": (ollama(4096), ollama(4096), 30_000),
    "a window that has grown": (ollama(4096), ollama(32_768), LONG),
    "a model that was unloaded since": (ollama(4096), ollama(0), LONG),
    "a server that does not answer": (ollama(4096), listed("library"), LONG),
    "a window that is not known": (ollama(0), ollama(0), LONG),
    "another server's window that has grown": (
        listed("vllm", max_model_len=4096),
        listed("vllm", max_model_len=32_768),
        LONG,
    ),
}
"""What the server says at first and then, and the characters of a prompt."""


@pytest.mark.parametrize("case", PASSED)
def test_a_prompt_that_may_fit_goes_to_the_server(
    start_app: StartApp, upstream: ScriptedUpstream, case: str
) -> None:
    before, after, characters = PASSED[case]
    url = start(start_app, upstream, before)
    upstream.at_root = after
    upstream.reply("Yes.")
    assert ask(url, characters)[0] == 200


def test_images_do_not_count(start_app: StartApp, upstream: ScriptedUpstream) -> None:
    url = start(start_app, upstream, ollama(4096))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    upstream.reply("Eight dots.")
    content = [{"type": "text", "text": "What?"}, *[image] * 8]
    assert ask(url, 0, messages=[{"role": "user", "content": content}])[0] == 200


def test_the_refusal_of_another_server_names_its_own_setting(
    start_app: StartApp, upstream: ScriptedUpstream
) -> None:
    url = start(start_app, upstream, listed("vllm", max_model_len=8192))
    message = ask(url, 200_000)[1]["error"]["message"]
    assert "8192 tokens" in message
    assert "vLLM: start it with --max-model-len 65536" in message


@pytest.mark.parametrize(
    ("longer", "answers"), [(32_768, True), (4096, False)], ids=["longer", "no longer"]
)
@pytest.mark.parametrize("counts", [True, False], ids=["by the server", "by the estimate"])
def test_a_fallback_with_a_longer_window_answers(
    start_app: StartApp, upstream: ScriptedUpstream, longer: int, answers: bool, counts: bool
) -> None:
    with ScriptedUpstream() as second:
        second.at_root = listed("vllm", "large", max_model_len=longer)
        second.default = "Yes."
        rows = [
            {"base_url": upstream.base_url, "models": ["small"], "fallbacks": ["large"]},
            {"base_url": second.base_url},
        ]
        url = start(start_app, upstream, ollama(4096), upstreams=rows)
        if counts:
            error = {"code": "context_length_exceeded", "message": "too long"}
            upstream.reply(Reply(status=400, body={"error": error}))
        status, _ = ask(url, 30_000 if counts else LONG)
    assert status == (200 if answers else 400)
    assert len(second.requests) == answers


def test_a_model_is_known_without_its_tag(start_app: StartApp, upstream: ScriptedUpstream) -> None:
    """Ollama lists `llama3:latest`, which clients call `llama3`: its window was never known."""
    url = start(start_app, upstream, ollama(4096, "llama3:latest"), aliases={"gpt-4o": "llama3"})
    for model in ("llama3", "llama3:latest", "gpt-4o"):
        assert ask(url, LONG, model=model)[0] == 400


@pytest.mark.parametrize("server", [ollama, lm_studio])
def test_a_window_is_asked_again_after_answers_but_not_after_each(
    start_app: StartApp, upstream: ScriptedUpstream, server: Callable[[int], dict[str, Any]]
) -> None:
    """A model that was loaded again kept its first window until the proxy ended, and LM Studio's, which loads
    models on demand, was asked at the start only."""
    url = start(start_app, upstream, server(4096))
    upstream.at_root = server(32_768)
    upstream.default = "Yes."
    path = "/api/ps" if server is ollama else "/api/v0/models"
    before = asked(upstream, path)
    assert ask(url, 10)[0] == 200
    wait_until(lambda: length_at(url) == 32_768)
    assert [ask(url, 10)[0] for _ in range(3)] == [200] * 3
    assert asked(upstream, path) == before + 1


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        (ollama(0), "not-loaded"),
        (ollama(4096), None),
        (lm_studio(0), "not-loaded"),
        (lm_studio(4096), None),
        (listed("vllm"), None),
    ],
    ids=["Ollama", "Ollama, loaded", "LM Studio", "LM Studio, loaded", "vLLM"],
)
def test_the_list_says_which_models_are_loaded_on_demand(
    start_app: StartApp, upstream: ScriptedUpstream, answers: dict[str, Any], state: str | None
) -> None:
    url = start(start_app, upstream, answers)
    [row] = send(f"{url}/v1/models")[2]["data"]
    assert row.get("state") == state
