"""Addresses of the API: every spelling that clients use works, and an error names the right address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from emulator.core.client_keys import entry
from tests.conftest import StartProxy
from tests.support.other_endpoints import OtherEndpoints, other_endpoints
from tests.support.raw_http import fetch, send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

CALL = '```tool_code\nget_weather(location="Oslo")\n```'
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def azure(proxy: str, key: str = "k", **options: Any) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(
        azure_endpoint=proxy, api_key=key, api_version="2024-10-21", max_retries=0, **options
    )


@pytest.mark.parametrize("stream", [False, True])
def test_azures_client_asks_for_a_deployment(
    proxy: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    upstream.reply(CALL)
    request: dict[str, Any] = {"model": "qwen3", "messages": CHAT["messages"], "stream": stream}
    answer = azure(proxy).chat.completions.create(**request, tools=[GET_WEATHER])
    choices = (
        [chunk.choices[0].delta for chunk in answer] if stream else [answer.choices[0].message]
    )
    names = [call.function.name for each in choices for call in each.tool_calls or ()]
    assert "get_weather" in names
    assert upstream.requests[0]["model"] == "qwen3"


def test_a_deployment_in_the_path_is_the_model(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.default = "Hi."
    for deployment, body in (("one", {}), ("two", {"model": "other"}), ("three/", CHAT)):
        path = f"/openai/deployments/{deployment.rstrip('/')}/chat/completions"
        sent = {"messages": CHAT["messages"], **body}
        assert send(f"{proxy}{path}{'/' * deployment.endswith('/')}", sent)[0] == 200
    assert [sent["model"] for sent in upstream.requests] == ["one", "two", "three"]
    status, _, answer = send(f"{proxy}/openai/deployments/one/chat/completions", [1])
    assert (status, answer["error"]["message"]) == (400, "The request body must be a JSON object.")


def test_azures_client_uses_the_other_paths_and_its_own_header_for_the_key(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(client_keys=("secret",))
    upstream.default = "Hi."
    client = azure(url, "secret")
    assert client.responses.create(model="m", input="Hi").output_text == "Hi."
    assert [model.id for model in client.models.list()]
    with pytest.raises(openai.AuthenticationError):
        azure(url, "wrong").models.list()


def test_a_key_may_use_its_models_in_the_path_too(tmp_path: Path, start_proxy: StartProxy) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(entry("ann", "ann") + 'models = ["small"]\n')
    proxy = start_proxy(client_keys_file=str(keys))
    for model, status in (("small", 404), ("large", 403)):
        path = f"/openai/deployments/{model}/embeddings"
        answer = send(f"{proxy}{path}", {"model": "small"}, {"api-key": "ann"})
        assert answer[0] == status, answer


SLASHED = ("/v1/chat/completions/", "/chat/completions/", "/chat/completions", "/v1/responses/")


@pytest.mark.parametrize("path", SLASHED)
def test_a_slash_at_the_end_and_a_missing_v1_do_not_matter(
    proxy: str, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.default = "Hi."
    body = {"model": "m", "input": "Hi"} if "responses" in path else CHAT
    assert send(f"{proxy}{path}", body)[0] == 200
    listed = send(f"{proxy}{path.replace('chat/completions', 'models')}")[0]
    assert listed == (405 if "responses" in path else 200)


@pytest.fixture
def other() -> Any:
    with other_endpoints() as server:
        yield server


# A path -> what its 404 names.
WRONG = {
    "/v1/v1/chat/completions": "/v1/chat/completions",
    "/v1/v1/responses": "/v1/responses",
    "/v1/v1/embeddings": "/v1/embeddings",
    "/openai/v1/chat/completions": "/v1/chat/completions",
    "/v1/openai/deployments/m/chat/completions": "/v1/chat/completions",
    "/engines/m/chat/completions": "/v1/chat/completions",
    "/v1/engines/m/completions": "/v1/completions",
    "/v1/engines/m/embeddings": "/v1/embeddings",
    "/v1/chat/completions/chat/completions": "/v1/chat/completions",
    "/api/v1/chat/completions": "/v1/chat/completions",
    "/embeddings": "/v1/embeddings",
    "/completions": "/v1/completions",
    "/audio/speech": "/v1/audio/speech",
    "/v2/models": "/v1/models",
    "/api/chat": "OpenAI mode",
    "/api/tags": "OpenAI mode",
    "/v1/api/show": "OpenAI mode",
    "/.env": "/v1/chat/completions",
    "/robots.txt": "/v1/chat/completions",
    "/favicon.ico": "/v1/chat/completions",
    "/v1": "/v1/chat/completions",
    "/openai": "/v1/chat/completions",
}


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_address_is_answered_with_the_right_one_and_does_not_reach_the_upstream(
    start_proxy: StartProxy, other: OtherEndpoints, path: str
) -> None:
    proxy = start_proxy(base_url=other.base_url)
    for body in (None, {"model": "m"}):
        status, _, answer = send(f"{proxy}{path}", body)
        assert status == 404, answer
        assert WRONG[path] in answer["error"]["message"]
        assert answer["error"].keys() == {"message", "type", "param", "code"}
    assert other.asked == []


@pytest.mark.parametrize("path", ["/v1/v1/messages", "/anthropic/v1/messages"])
def test_a_wrong_address_of_messages_is_answered_in_anthropics_shape(proxy: str, path: str) -> None:
    status, _, answer = send(f"{proxy}{path}", {})
    assert (status, answer["type"], answer["error"]["type"]) == (404, "error", "not_found_error")
    assert "use /v1/messages" in answer["error"]["message"]


def test_messages_of_another_api_have_openais_errors(
    start_proxy: StartProxy, other: OtherEndpoints
) -> None:
    other.refusals = [(400, {})]
    proxy = start_proxy(base_url=other.base_url)
    status, headers, answer = send(f"{proxy}/v1/threads/t/messages", {})
    assert (status, "request-id" in headers, "type" in answer) == (400, False, False)


def test_a_compressed_body_is_refused_by_name(proxy: str) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    status, _, body = fetch(f"{proxy}/v1/chat/completions", b"\x1f\x8b\x08", headers)
    assert status == 415
    assert "content-encoding" in json.loads(body)["error"]["message"]


def test_a_schemas_enum_may_be_null(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply(CALL)
    location = {"type": "string", "enum": None}
    parameters = {"type": "object", "properties": {"location": location}}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    answer = send(f"{proxy}/v1/chat/completions", {**CHAT, "tools": [tool]})[2]
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"location": "Oslo"}


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]])
@pytest.mark.parametrize("asked", [False, True])
def test_with_include_usage_only_the_last_chunk_has_it_and_the_others_have_null(
    client: openai.OpenAI, upstream: ScriptedUpstream, tools: list[Any], asked: bool
) -> None:
    upstream.reply("Hello there.")
    options: dict[str, Any] = {"stream_options": {"include_usage": asked}, "stream": True}
    if tools:
        options["tools"] = tools
    *chunks, last = client.chat.completions.create(**CHAT, **options)
    assert all(("usage" in chunk.model_fields_set) == asked for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)
    assert (last.usage is not None) == asked
