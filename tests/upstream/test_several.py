"""Several upstreams: which upstream serves a model, with which key, and which replaces a failed upstream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import openai
import pytest
from pydantic import ValidationError

from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.other_endpoints import OtherEndpoints, other_endpoints
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def second() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(models=("small", "scripted")) as server:
        yield server
    assert server.failures == []


def row(upstream: ScriptedUpstream, **fields: Any) -> dict[str, Any]:
    return {"base_url": upstream.base_url, **fields}


def ask(proxy: str, model: str, **fields: Any) -> tuple[int, dict[str, str], Any]:
    body = {"model": model, "messages": HELLO, **fields}
    return send(f"{proxy}/v1/chat/completions", body)


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
def test_a_models_name_selects_the_upstream_and_its_key(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream, tools: list[Any]
) -> None:
    proxy = start_proxy(
        upstreams=(
            row(second, models=["small*", "groq/*"], strip="groq/", api_key="key-2"),
            row(upstream, name="big", headers={"x-title": "t"}, query={"api-version": "7"}),
        ),
        aliases={"gpt-4o": "small-one", "claude-*": "large"},
    )
    servers = {"small-one": second, "groq/llama": second, "gpt-4o": second, "claude-x": upstream}
    for model, server in servers.items():
        server.reply("Hi.")
        status, _, answer = ask(proxy, model, **({"tools": tools} if tools else {}))
        assert (status, text_of(answer), answer["model"]) == (200, "Hi.", model)
    assert [body["model"] for body in second.requests] == ["small-one", "llama", "small-one"]
    assert [body["model"] for body in upstream.requests] == ["large"]
    assert {headers["authorization"] for headers in second.headers} == {"Bearer key-2"}
    # A key belongs to its provider: a row without one does not get that of the settings.
    assert upstream.headers[0]["authorization"] == "Bearer none"
    assert upstream.headers[0]["x-title"] == "t"
    assert upstream.exchanges[0].path.endswith("?api-version=7")


def test_a_model_of_no_upstream_is_not_found(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(upstreams=(row(upstream, models=["a-*"]),))
    status, _, answer = ask(proxy, "b")
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )


def test_each_upstream_has_settings_of_its_own(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    """The profile goes by the name that the upstream knows: an alias may hide which model it is."""
    proxy = start_proxy(
        upstreams=(
            row(second, models=["small"], drop_fields=["seed"]),
            row(upstream),
        ),
        aliases={"thinker": "deepseek-r1"},
    )
    upstream.reply("Hi.")
    second.reply("Hi.")
    ask(proxy, "thinker", seed=1, tools=[GET_WEATHER])
    ask(proxy, "small", seed=1, tools=[GET_WEATHER])
    assert upstream.requests[0]["seed"] == 1
    assert "seed" not in second.requests[0]
    assert [upstream.requests[0]["messages"][0]["role"]] == ["user"]
    assert [second.requests[0]["messages"][0]["role"]] == ["system"]


def test_the_model_lists_are_merged_and_name_the_owner_of_each_model(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    proxy = start_proxy(
        upstreams=(
            row(second, name="near", models=["small", "near/*"], strip="near/"),
            row(upstream, name="far"),
            {"base_url": "http://127.0.0.1:9/v1", "name": "down", "models": ["nothing"]},
        ),
        aliases={"gpt-4o": "small", "claude-*": "small"},
    )
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    owners = {model.id: model.owned_by for model in client.models.list()}
    # The upstream that serves the name "scripted" owns it; the near one has it under its own prefix.
    assert owners == {
        "near/small": "near",
        "near/scripted": "near",
        "scripted": "far",
        "gpt-4o": "near",
    }
    assert client.models.retrieve("gpt-4o").owned_by == "near"


def test_a_list_fails_only_if_every_upstream_fails(start_proxy: StartProxy) -> None:
    proxy = start_proxy(
        upstreams=(
            {"base_url": "http://127.0.0.1:9/v1", "name": "a"},
            {"base_url": "http://127.0.0.1:9/v1", "name": "b"},
        )
    )
    assert send(f"{proxy}/v1/models")[0] == 502


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=503),
        Reply(status=429, headers={"retry-after": "7"}),
        Reply(text="", fault="drop"),
        Reply(text="", fault="error_event"),
    ],
    ids=["503", "429", "dropped", "error event"],
)
def test_another_model_answers_where_the_upstream_fails(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    second: ScriptedUpstream,
    fault: Reply,
    tools: list[Any],
    stream: bool,
) -> None:
    proxy = start_proxy(
        upstreams=(
            row(upstream, models=["big"], fallbacks=["gone", "small"], upstream_retries=0),
            {"base_url": "http://127.0.0.1:9/v1", "models": ["gone"], "upstream_retries": 0},
            row(second, models=["small"]),
        )
    )
    upstream.reply(fault)
    second.reply("Hi.")
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    fields: dict[str, Any] = {"tools": tools} if tools else {}
    if stream:
        chunks = client.chat.completions.create(model="big", messages=HELLO, stream=True, **fields)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    else:
        plain = client.chat.completions.create(model="big", messages=HELLO, **fields)
        text = plain.choices[0].message.content or ""
    assert text == "Hi."
    assert second.requests[0]["model"] == "small"
    # Both were offered the tools, each by the profile of its model.
    assert ("get_weather" in json.dumps(second.requests[0])) == bool(tools)


def test_a_faulty_request_is_not_sent_to_a_fallback(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    proxy = start_proxy(
        upstreams=(row(upstream, models=["big"], fallbacks=["small"]), row(second)),
    )
    upstream.reply(Reply(status=400))
    assert ask(proxy, "big")[0] == 400
    assert second.requests == []


def test_an_answer_that_has_begun_is_not_repeated_by_a_fallback(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    proxy = start_proxy(
        upstreams=(row(upstream, models=["big"], fallbacks=["small"]), row(second)),
    )
    upstream.reply("One two", chunks=4, fault="drop", after=1)
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
    stream = client.chat.completions.create(model="big", messages=HELLO, stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)
    assert second.requests == []


def test_the_clients_own_key_is_sent_if_the_setting_says_so(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """Stored responses are separated by these keys."""
    proxy = start_proxy(pass_client_key=True)
    upstream.reply("Hi.", "Hi.")
    for key in ("first-key", "second-key"):
        client = openai.OpenAI(base_url=f"{proxy}/v1", api_key=key, max_retries=0)
        client.chat.completions.create(model="m", messages=HELLO)
    assert [headers["authorization"] for headers in upstream.headers] == [
        "Bearer first-key",
        "Bearer second-key",
    ]
    first = openai.OpenAI(base_url=f"{proxy}/v1", api_key="first-key", max_retries=0)
    upstream.reply("Kept.")
    stored = first.responses.create(model="m", input="Hi")
    assert first.responses.retrieve(stored.id).output_text == "Kept."
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(stored.id)
    status, _, answer = ask(proxy, "m")
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


def test_a_clients_key_goes_to_no_server_but_that_of_its_model(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    """Listing the models, and a fallback, sent each client's key to all upstreams."""
    rows = (
        row(upstream, models=["big"], fallbacks=["small", "own"]),
        row(second, models=["small"]),
    )
    own = row(second, models=["own"], name="own", api_key="operators", pass_client_key=False)
    proxy = start_proxy(pass_client_key=True, upstreams=(*rows, own), upstream_retries=0)
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="clients-key", max_retries=0)
    client.models.list()
    upstream.reply(Reply(status=500, body={}))
    second.reply("From the operator's row.")
    answer = client.chat.completions.create(model="big", messages=HELLO)
    assert answer.choices[0].message.content == "From the operator's row."
    sent = [
        (e.method, e.path, e.headers["authorization"])
        for e in upstream.exchanges + second.exchanges
    ]
    with_key = [one for one in sent if "clients-key" in one[2]]
    assert with_key == [("POST", "/v1/chat/completions", "Bearer clients-key")]


def test_forms_and_json_go_to_the_upstream_of_their_model(start_proxy: StartProxy) -> None:
    with other_endpoints() as one, other_endpoints() as other:
        proxy = start_proxy(
            upstreams=(
                {"base_url": one.base_url, "models": ["a/*"], "strip": "a/", "api_key": "key-a"},
                {"base_url": other.base_url},
            ),
            aliases={"whisper-1": "a/whisper-large"},
        )
        client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0)
        client.embeddings.create(model="a/e", input="Hi", encoding_format="float")
        client.embeddings.create(model="e", input="Hi", encoding_format="float")
        sound = BytesIO(b'--sound\r\nname="model"\r\n\r\nnot this one\r\n')
        sound.name = "a.mp3"
        client.audio.transcriptions.create(model="whisper-1", file=sound)
        assert send(f"{proxy}/v1/batches")[0] == 200
        assert paths(one) == ["/v1/embeddings", "/v1/audio/transcriptions"]
        assert paths(other) == ["/v1/embeddings", "/v1/batches"]
        assert json.loads(one.asked[0][3])["model"] == "e"
        assert one.asked[0][2]["authorization"] == "Bearer key-a"
        form = one.asked[1][3]
        assert b'name="model"\r\n\r\nwhisper-large\r\n--' in form
        assert b"not this one" in form


def paths(server: OtherEndpoints) -> list[str]:
    return [path for _, path, _, _ in server.asked]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"upstreams": [{"base_url": "localhost:8000/v1"}]}, "http://localhost:8000/v1"),
        ({"upstreams": [{"base_url": "http://a/v1", "modles": ["x"]}]}, "modles"),
        ({"upstreams": [{"base_url": "http://a/v1"}, {"base_url": "http://a/v1"}]}, "named 'a'"),
        ({"upstreams": [{"base_url": "http://a/v1", "api_key_env": "NOT_THERE"}]}, "NOT_THERE"),
        ({"upstreams": [{"base_url": "http://a/v1", "profile": "typo"}]}, "typo"),
        (
            {"upstreams": [{"base_url": "http://a/v1", "models": ["x"], "fallbacks": ["y"]}]},
            "fallbacks.*'y'",
        ),
        ({"aliases": {"a": "b"}, "upstreams": [{"base_url": "http://a", "models": ["x"]}]}, "'b'"),
        ({"profiles": [{"name": "mine", "pattern": "("}]}, "pattern"),
        ({"profiles": [{"name": "mine"}, {"name": "mine"}]}, "mine"),
        ({"pass_client_key": True, "client_keys": "abc"}, "pass_client_key"),
    ],
)
def test_invalid_rows_are_refused_at_start(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){complaint}"):
        Settings(**settings)


def test_a_variable_can_contain_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "from-there")
    settings = Settings(upstreams=[{"base_url": "http://a/v1", "api_key_env": "SOME_KEY"}])  # type: ignore[list-item]
    assert settings.upstreams[0].api_key.get_secret_value() == "from-there"


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize(
    "silent",
    [
        Reply(first_delay=3600),
        Reply(chunks=["x"], fault="silent"),
        Reply(frames=[b": waiting\n\n"] * 9999, delay=0.05),
    ],
    ids=["no head", "a role", "comments"],
)
def test_a_silent_upstream_gives_way_to_a_fallback(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    second: ScriptedUpstream,
    silent: Reply,
    tools: list[Any],
) -> None:
    """It used to take three times upstream_seconds."""
    upstream.reply(silent)
    second.reply(Reply("Hello.", chunks=1, delay=0.1))
    proxy = start_proxy(
        upstreams=(
            row(upstream, models=["a"], fallbacks=["b"], first_token_seconds=0.3),
            row(second, models=["b"], first_token_seconds=0.01),
        ),
        upstream_seconds=3600,
    )
    fields = {"tools": tools} if tools else {}
    assert text_of(ask(proxy, "a", **fields)[2]) == "Hello."
    assert upstream.exchanges[-1].aborted.wait(60)


def test_retries_and_fallbacks_share_one_deadline(
    start_proxy: StartProxy, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    upstream.default = second.default = Reply(first_delay=3600)
    proxy = start_proxy(
        upstreams=(row(upstream, models=["a"], fallbacks=["b"]), row(second, models=["b"])),
        upstream_seconds=3600,
        first_token_seconds=0.3,
        answer_seconds=3,
    )
    assert ask(proxy, "a")[0] == 504
    assert len(upstream.requests) == len(second.requests) == 1


def test_an_upstream_that_has_begun_may_pause_for_longer(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply("Hello there.", chunks=6, delay=1))
    proxy = start_proxy(
        upstreams=(row(upstream, fallbacks=["b"], first_token_seconds=0.5),), upstream_seconds=60
    )
    assert text_of(ask(proxy, "a")[2]) == "Hello there."


def test_the_proxy_is_ready_while_one_upstream_answers(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    gone = "http://127.0.0.1:9/v1"
    rows = (row(upstream, models=["a"]), {"base_url": gone, "models": ["b"], "upstream_retries": 0})
    url, services = start_app(upstreams=rows)
    services.reachability.check()
    answered, _, state = send(f"{url}/readyz")
    assert (answered, [*state["upstreams"]]) == (200, [gone])
