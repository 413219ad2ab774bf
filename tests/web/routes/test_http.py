"""What is HTTP about the proxy: routes, keys, errors, health."""

from __future__ import annotations

import json
import socket
from typing import Any

import openai
import pytest

from emulator.settings.configuration import ConfigurationError, read
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.raw_http import fetch, read_page, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


BAD_BODIES: list[tuple[bytes, str | None, str]] = [
    (b"", None, "not valid JSON"),
    (b"{", None, "not valid JSON"),
    (b"[]", None, "must be a JSON object"),
    (b"{}", "model", "required"),
    (b'{"model": "m"}', "messages", "required"),
    (b'{"model": "m", "messages": []}', "messages", "at least 1"),
    (b'{"model": "m", "messages": [{"role": "king", "content": "x"}]}', "messages[0].role", "king"),
    (b'{"model": "m", "messages": [{"role": "user", "content": 5}]}', "messages[0].content", ""),
    (b'{"model": "m", "messages": [{"role": "user"}], "tool_choice": "maybe"}', "tool_choice", ""),
    (b'{"model": "m", "messages": [{"role": "user"}], "tools": {}}', "tools", "list"),
    (
        b'{"model": "m", "messages": [{"role": "user"}], "tool_choice": "required"}',
        "tool_choice",
        "no tools",
    ),
    (
        b'{"model": "m", "messages": [{"role": "user"}], "tools": [{"type": "function"}]}',
        "tools[0].function",
        "",
    ),
    (
        json.dumps(
            {
                "model": "m",
                "messages": HELLO,
                "tools": [GET_WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            }
        ).encode(),
        "tool_choice.function.name",
        "'f'",
    ),
    (
        json.dumps(
            {
                "model": "m",
                "messages": HELLO,
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"$ref": "/etc/passwd"}},
                    }
                ],
            }
        ).encode(),
        "tools[0].function.parameters.$ref",
        "",
    ),
]


@pytest.mark.parametrize(("body", "param", "words"), BAD_BODIES)
@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_bad_input_gets_an_openai_error_that_names_the_place(
    proxy: str, prefix: str, body: bytes, param: str | None, words: str
) -> None:
    status, headers, answer = send(f"{proxy}{prefix}/chat/completions", body)
    error = answer["error"]
    assert status == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert set(error) == {"message", "type", "param", "code"}
    assert words in error["message"] or words == "king"
    assert headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/responses/a/b/c", 404),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/responses", 405),
    ],
)
def test_unknown_routes_answer_in_json(proxy: str, method: str, path: str, status: int) -> None:
    answered, headers, body = send(proxy + path, method=method)
    assert (answered, headers["content-type"]) == (status, "application/json")
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize("code", [None, "model_not_found"])
def test_an_unknown_model_is_answered_with_where_the_models_are_listed(
    start_proxy: StartProxy, upstream: ScriptedUpstream, code: str | None, tools: list[Any]
) -> None:
    """A page's example names a model that the reader's server may not have."""
    upstream.reply(Reply(status=404, body={"error": {"message": "no model 'm'", "code": code}}))
    body = {"model": "m", "messages": HELLO, "tools": tools}
    status, _, answer = send(f"{start_proxy()}/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (404, code)
    assert "GET /v1/models lists the models)" in answer["error"]["message"]


def test_a_wrong_method_is_answered_with_the_right_one(proxy: str) -> None:
    """A browser's address line asks with GET."""
    for method, path, right in (
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
    ):
        _, _, body = send(proxy + path, method=method)
        assert body["error"]["message"] == f"{method} {path}: use {right}."


def test_a_body_over_the_bound_is_refused(start_proxy: StartProxy) -> None:
    proxy = start_proxy(max_body_bytes=1024)
    status, _, body = send(f"{proxy}/v1/chat/completions", b" " * 2000)
    assert (status, body["error"]["type"]) == (413, "invalid_request_error")


def test_health_says_whether_programs_run(proxy: str) -> None:
    status, _, body = send(f"{proxy}/healthz")
    assert (status, body["status"]) == (200, "ok")
    assert body["programs"] == "on"


ORIGIN = {"origin": "https://app.example", "access-control-request-method": "POST"}


@pytest.mark.parametrize(
    ("allowed", "answered"),
    [
        ((), None),
        (("https://other.example",), None),
        (("https://app.example",), "https://app.example"),
        (("*",), "https://app.example"),
    ],
)
def test_browsers_may_call_only_from_the_origins_of_the_setting(
    start_proxy: StartProxy, allowed: tuple[str, ...], answered: str | None
) -> None:
    proxy = start_proxy(cors_origins=allowed, client_keys=("k",))
    status, headers, body = fetch(f"{proxy}/v1/chat/completions", None, ORIGIN, "OPTIONS")
    assert (status, headers.get("access-control-allow-origin")) == (
        200 if answered else 403,
        answered,
    )
    assert answered or b"cors_origins" in body


def test_fields_that_the_upstream_refuses_are_dropped(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(drop_fields=("seed",))
    body = {"messages": HELLO, "seed": 1, "logprobs": True, "temperature": 0}
    for model in ("some-model", "deepseek-reasoner"):
        upstream.reply("Hi.")
        send(f"{proxy}/v1/chat/completions", {**body, "model": model})
    assert [sorted(set(sent) & set(body) - {"messages"}) for sent in upstream.requests] == [
        ["logprobs", "temperature"],
        ["temperature"],
    ]


def test_metrics_count_by_route_and_never_by_values_of_clients(proxy: str) -> None:
    send(f"{proxy}/v1/made-up-by-a-client")
    page = read_page(f"{proxy}/metrics")
    assert 'emulator_requests_total{path="/v1/<path:rest>",status="404"}' in page
    assert "emulator_turns_saved_total" in page and "made-up" not in page


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_the_models_route_lists_the_upstreams_models(
    proxy: str, upstream: ScriptedUpstream, prefix: str
) -> None:
    _, _, listed = send(f"{proxy}{prefix}/models")
    assert listed["object"] == "list"
    name = listed["data"][0]["id"]
    assert send(f"{proxy}{prefix}/models/{name}")[2]["id"] == name
    status, _, body = send(f"{proxy}{prefix}/models/none")
    assert (status, body["error"]["code"]) == (404, "model_not_found")


def test_client_keys_are_required_where_they_are_set(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(client_keys=("first", "second"))
    for key in ("wrong", "first2", ""):
        status, _, body = send(f"{proxy}/v1/models", headers={"authorization": f"Bearer {key}"})
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
    for key in ("first", "second"):
        assert send(f"{proxy}/v1/models", headers={"authorization": f"Bearer {key}"})[0] == 200
    assert send(f"{proxy}/healthz")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ([], True),
        (["--host", "::1"], True),
        (["--host", "localhost"], True),
        (["--host", "0.0.0.0"], False),
        (["--host", "0.0.0.0", "--open"], True),
        (["--host", "0.0.0.0", "--client-keys", "k"], True),
    ],
)
def test_listening_beyond_loopback_needs_keys_or_the_option_open(
    arguments: list[str], fits: bool
) -> None:
    if fits:
        read(arguments)
    else:
        with pytest.raises(ConfigurationError, match="EMULATOR_CLIENT_KEYS"):
            read(arguments)


def test_settings_come_from_command_line_environment_file_and_default_in_that_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "emulator.toml"
    file.write_text('port = 1\nthreads = 11\nprofile = "tiny"\nbase_url = "http://file/v1"\n')
    monkeypatch.setenv("EMULATOR_CONFIG", str(file))
    monkeypatch.setenv("EMULATOR_PORT", "2")
    monkeypatch.setenv("EMULATOR_THREADS", "12")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "deep")
    monkeypatch.setenv("OPENAI_API_KEY", "open")
    settings = read(["--port", "3"]).settings
    assert (settings.port, settings.threads, settings.profile) == (3, 12, "tiny")
    assert settings.base_url == "http://file/v1"
    assert settings.api_key.get_secret_value() == "lol"  # a provider's key is for its own host
    assert Settings().repair_attempts == 3


UPSTREAM_TROUBLE: list[tuple[Reply, int, str | None]] = [
    (
        Reply(status=400, body={"error": {"message": "too long", "type": "t", "code": "c"}}),
        400,
        "c",
    ),
    (Reply(status=401), 401, None),
    (Reply(status=404), 404, None),
    (Reply(status=422), 422, None),
    (Reply(status=429, headers={"retry-after": "7"}), 429, None),
    (Reply(status=500), 500, None),
    (Reply(status=503), 503, None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize(("reply", "status", "code"), UPSTREAM_TROUBLE)
def test_the_upstreams_error_keeps_its_status(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    reply: Reply,
    status: int,
    code: str | None,
    tools: Any,
    stream: bool,
) -> None:
    proxy = start_proxy(upstream_retries=0)
    upstream.reply(reply)
    body = {"model": "m", "messages": HELLO, "stream": stream} | ({"tools": tools} if tools else {})
    answered, headers, answer = send(f"{proxy}/v1/chat/completions", body)
    assert (answered, answer["error"]["code"]) == (status, code)
    assert headers["x-should-retry"] == "false"
    assert headers.get("retry-after") == reply.headers.get("retry-after")
    assert (status >= 500 or status in (401, 404)) == (
        upstream.base_url in answer["error"]["message"]
    )


def test_a_temporary_upstream_fault_is_retried(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply(status=500, headers={"retry-after-ms": "1"}), "Hello!")
    completion = client.chat.completions.create(model="m", messages=HELLO, tools=[GET_WEATHER])
    assert completion.choices[0].message.content == "Hello!"


@pytest.mark.parametrize("fault", ["drop", "malformed", "error_event"])
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
def test_a_fault_after_the_first_byte_is_the_streams_last_event(
    proxy: str, upstream: ScriptedUpstream, fault: Any, tools: Any
) -> None:
    upstream.reply(Reply(chunks=["Hello there", " you"], fault=fault, after=1))
    body = {"model": "m", "messages": HELLO, "stream": True} | ({"tools": tools} if tools else {})
    _, _, data = fetch(f"{proxy}/v1/chat/completions", body)
    events = [line[6:] for line in data.decode().splitlines() if line[:6] == "data: "]
    assert json.loads(events[0])["choices"]
    assert json.loads(events[-1])["error"]["type"] == "upstream_error"


def test_an_unreachable_upstream_is_a_502(start_proxy: StartProxy) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    proxy = start_proxy(base_url=url, upstream_retries=0)
    status, _, body = send(f"{proxy}/v1/chat/completions", {"model": "m", "messages": HELLO})
    assert (status, body["error"]["code"]) == (502, "upstream_down")
