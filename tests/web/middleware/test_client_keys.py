"""Client keys in a file: which keys are valid, for which models and budgets, and what a reload changes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import openai
import pytest
from werkzeug.formparser import FormDataParser

from emulator.cli.commands import main
from emulator.core.client_keys import InvalidClientKeys, entry, new_key, read
from emulator.database import open_database
from tests.conftest import StartProxy
from tests.support.other_endpoints import other_endpoints
from tests.support.processes import proxy, wait_until
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.uploads import form

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "small", "messages": MESSAGES}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
Ask = Callable[..., tuple[int, dict[str, str], Any]]
NOON = 1_800_000_000.0


def keys_file(folder: Path, **grants: str) -> Path:
    """A file with one key for each of ``grants``, which is the key too; the values are lines of TOML."""
    path = folder / "keys.toml"
    path.write_text("\n".join(entry(name, name) + lines for name, lines in grants.items()))
    return path


def asking(url: str, key: str) -> Ask:
    def ask(path: str = "chat/completions", body: Any = CHAT, **headers: str) -> Any:
        sent = {"authorization": f"Bearer {key}", **headers}
        return send(f"{url}/v1/{path}", body, sent)

    return ask


@pytest.fixture
def open_to(start_proxy: StartProxy, tmp_path: Path, upstream: ScriptedUpstream) -> Any:
    """`open_to(name="lines of TOML", ...)`: the URL of a proxy with these keys."""
    upstream.default = "Hello!"

    def start(settings: dict[str, Any] | None = None, **grants: str) -> str:
        path = keys_file(tmp_path, **grants)
        return start_proxy(client_keys_file=str(path), now=lambda: NOON, **(settings or {}))

    return start


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", None),
        ("enabled = false", "The API key 'alice' is disabled."),
        ("expires = 2020-01-01", "The API key 'alice' has expired."),
        ("expires = 2027-01-15T07:59:59Z", "The API key 'alice' has expired."),
        ("expires = 2027-01-15T08:00:01Z", None),
        ("expires = 2027-01-15T08:00:01", None),
        ("expires = 2027-01-15T09:59:59+02:00", "The API key 'alice' has expired."),
    ],
)
def test_a_key_is_valid_until_its_table_disables_or_expires_it(
    open_to: Any, lines: str, said: str | None
) -> None:
    status, _, body = asking(open_to(alice=lines), "alice")()
    if said is None:
        assert status == 200
    else:
        error = {"message": said, "type": "invalid_request_error", "param": None}
        assert (status, body["error"]) == (401, {**error, "code": "invalid_api_key"})


def test_only_keys_of_the_setting_and_of_the_file_are_valid(open_to: Any) -> None:
    url = open_to({"client_keys": ("of-the-setting",)}, alice="")
    digest = read_hash(url)
    assert [asking(url, key)()[0] for key in ("of-the-setting", "alice", "bob", "", digest)] == [
        *(200, 200, 401, 401, 401)
    ]
    # As Anthropic's clients send it, and in the shape that these expect of an error.
    asked = {**CHAT, "max_tokens": 5}
    assert send(f"{url}/v1/messages", asked, {"x-api-key": "alice"})[0] == 200
    status, _, body = send(f"{url}/v1/messages", asked, {"x-api-key": "bob"})
    assert (status, body["error"]["type"]) == (401, "authentication_error")


def read_hash(_url: str) -> str:
    return entry("alice", "alice").split('"')[3]


FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", CHAT),
    "chat with tools": ("chat/completions", {**CHAT, "tools": [TOOL]}),
    "a stream": ("chat/completions", {**CHAT, "stream": True}),
    "responses": ("responses", {"model": "small", "input": "Hi"}),
    "messages": ("messages", {**CHAT, "max_tokens": 5}),
}


@pytest.mark.parametrize("front", FRONTS)
def test_a_key_with_a_list_of_models_may_use_only_these_in_every_api(
    open_to: Any, upstream: ScriptedUpstream, front: str
) -> None:
    path, body = FRONTS[front]
    url = open_to({"aliases": {"nick": "large"}}, alice='models = ["sm*l", "nick"]')
    ask = asking(url, "alice")
    for model, status in (("nick", 200), ("large", 403), ("none", 403), ("SMALL", 403)):
        if status == 200 and body.get("stream"):
            continue  # the helper reads JSON
        answered, _, said = ask(path, {**body, "model": model})
        assert answered == status, said
        if status == 403:
            message = f"The API key 'alice' does not have access to the model {model!r}."
            assert said["error"]["message"] == message
            assert path == "messages" or said["error"]["code"] == "model_not_found"
    for others in FURTHER_FIELDS:
        # Only a chat's further fields go upstream.
        assert ask(path, {**body, **others})[0] == (403 if path == "chat/completions" else 200)
    assert not [sent for sent in upstream.requests if set().union(*FURTHER_FIELDS) & sent.keys()]
    assert {sent["model"] for sent in upstream.requests} <= {"large", "small"}


def test_the_list_of_models_is_that_of_the_key(open_to: Any, upstream: ScriptedUpstream) -> None:
    url = open_to({"aliases": {"nick": "large", "nack": "large"}}, alice='models = ["ni*"]', bob="")
    listed = {
        key: [one["id"] for one in asking(url, key)("models", None)[2]["data"]]
        for key in ("alice", "bob")
    }
    assert listed["alice"] == ["nick"]
    assert {"nick", "nack"} < set(listed["bob"])
    assert asking(url, "alice")("models/nick", None)[0] == 200
    assert asking(url, "alice")("models/nack", None)[0] == 404


FORM = form({"model": "tts"}, ("a.wav", b"RIFF"))
ALLOWED_FORM = form({"model": "e", "further": "large"}, ("a.wav", b"RIFF"))
FURTHER = b'name="further"'
NAMES = """name="model"  name=model  name="Model"  name*=utf-8''model  name*0=mo;name*1=del
  name*0*=utf-8''mo;name*1=del  name="mo\\del"  name="models"  name="extra_body[model]"  name="model[]"
  name=" model"  name="x";name="model"  name="mo%64el"  name="m\\odel"  NAME="model"  name="x\\";name="model"
"""
FORMS = {
    name: ALLOWED_FORM[0].replace(FURTHER, name.encode())
    for name in re.split(r"\s{2,}", NAMES.strip())
}
JSON = {"content-type": "application/json"}
EMBED = {"model": "e", "input": "x"}
FURTHER_FIELDS: list[dict[str, Any]] = [
    {"models": ["large"]}, {"extra_body": {"model": "large"}}, {"Model": "large"}, {"MODEL": "large"},
    {"extra_body": {"extra_body": {"models": ["large"]}}}, {"fallbacks": [{"model": "large"}]},
    {"user_config": {"model_list": ["large"]}}, {"session": {"model": "large"}},
    {"plugins": [{"model": "large"}]},
    {"engine": "large"}, {"preset": "large"},
]  # fmt: skip
QUERIES = (
    "model=large",
    "model=e",
    "Model=large",
    "model%5B%5D=large",
    "models=large",
    "a=1&%6dodel=large",
)
PASSED: dict[
    str, tuple[str, Any, dict[str, str], int]
] = {  # 0: refused, or passed on under no such name
    "a model of the list": ("embeddings", {"model": "e", "input": "x"}, {}, 200),
    "another model": ("embeddings", {"model": "large", "input": "x"}, {}, 403),
    "no model": ("embeddings", {"input": "x"}, {}, 403),
    "no JSON": ("embeddings", b"model=e", JSON, 403),
    "two models": ("embeddings", b'{"model": "large", "model": "e"}', {}, 200),
    "a further model": ("embeddings", {"model": "e", "models": ["large"]}, {}, 403),
    "a model in the query": ("embeddings?model=large", {"model": "e"}, {}, 403),
    "a form with another model": ("audio/transcriptions", FORM[0], FORM[1], 403),
    "a form with a model of the list": ("audio/transcriptions", *ALLOWED_FORM, 200),
    "a form as a second part": (
        "audio/transcriptions",
        ALLOWED_FORM[0].replace(
            FURTHER, FURTHER + b'\r\nContent-Type: multipart/mixed; boundary="C"'
        ),
        ALLOWED_FORM[1],
        403,
    ),
    "JSON called a form": ("audio/translations", json.dumps(EMBED).encode(), ALLOWED_FORM[1], 403),
    "a form called JSON": (
        "embeddings",
        ALLOWED_FORM[0],
        {"content-type": "application/json"},
        403,
    ),
    "a form with json in its boundary": (
        "audio/transcriptions",
        ALLOWED_FORM[0].replace(b"--B", b"--json"),
        {"content-type": "multipart/form-data; boundary=json"},
        200,
    ),
    "a body that is nested deeply": (
        "embeddings",
        b'{"model": "e", "input": ' + b"[" * 600 + b"]" * 600 + b"}",
        JSON,
        400,
    ),
    "another encoding": (
        "embeddings",
        json.dumps(EMBED).encode("utf-16"),
        {"content-type": "application/json"},
        403,
    ),
    "a query's other separator": ("embeddings?a=1;model=large", EMBED, {}, 200),
    "the word in a text": ("embeddings", {**EMBED, "input": [{"model": "Volvo"}]}, {}, 200),
    **{
        f"a form: {name}": ("audio/transcriptions", body, ALLOWED_FORM[1], 0)
        for name, body in FORMS.items()
    },
    **{
        f"field {fields}": ("embeddings", {**EMBED, **fields}, {}, 403) for fields in FURTHER_FIELDS
    },
    **{f"query {query}": (f"embeddings?{query}", EMBED, {}, 403) for query in QUERIES},
    "nothing but a path": ("fine_tuning/jobs", None, {}, 403),
}


@pytest.mark.parametrize("case", PASSED)
def test_passed_through_requests_are_limited_to_the_keys_models(
    start_proxy: StartProxy, tmp_path: Path, case: str
) -> None:
    path, body, headers, status = PASSED[case]
    keys = str(keys_file(tmp_path, alice='models = ["e"]'))
    with other_endpoints() as other:
        url = start_proxy(base_url=other.base_url, client_keys_file=keys)
        answered = asking(url, "alice")(path, body, **headers)[0]
        assert answered == status or (not status and answered in (200, 403))
        assert len(other.asked) == (answered == 200)
        for _, target, headers, sent in other.asked:
            assert ";model" not in target
            read, files = read_form(sent, headers["content-type"])
            fields = read or json.loads(sent)
            assert (fields["model"], files) == ("e", {"file": b"RIFF"} if read else {})
            assert [name for name in fields if "model" in name.casefold()] == ["model"]


def read_form(body: bytes, content_type: str) -> tuple[dict[str, str], dict[str, bytes]]:
    """As another server's parser (werkzeug's) reads a form: fields and files."""
    environ = {
        "wsgi.input": BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": content_type,
    }
    _, fields, files = FormDataParser().parse_from_environ(environ)
    contents = {}
    for name, file in files.items():
        with closing(file.stream):
            contents[name] = file.read()
    return dict(fields), contents


# Budgets


def test_a_key_has_its_own_number_of_requests_a_minute(open_to: Any) -> None:
    url = open_to({"client_requests_per_minute": 1}, alice="requests_per_minute = 2", bob="")
    assert [asking(url, "alice")()[0] for _ in range(3)] == [200, 200, 429]
    assert [asking(url, "bob")()[0] for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("unit", "kind", "code"),
    [
        ("minute", "requests", "rate_limit_exceeded"),
        ("day", "insufficient_quota", "insufficient_quota"),
    ],
)
def test_a_key_gets_no_answer_once_its_tokens_are_spent(
    open_to: Any, upstream: ScriptedUpstream, front: str, unit: str, kind: str, code: str
) -> None:
    """Each answer of the scripted upstream takes ten tokens."""
    path, body = FRONTS[front]
    url = open_to(alice=f"tokens_per_{unit} = 15", bob="tokens_per_day = 15")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="alice", max_retries=2)
    for _ in range(2):
        assert client.chat.completions.create(**CHAT).usage.total_tokens == 10  # type: ignore[call-overload]
    status, headers, said = asking(url, "alice")(path, body)
    assert status == 429
    assert 1 <= int(headers["retry-after"]) <= (60 if unit == "minute" else 86_400)
    assert headers.get("x-should-retry") == (None if unit == "minute" else "false")
    if path != "messages":
        assert (said["error"]["type"], said["error"]["code"]) == (kind, code)
        assert said["error"]["message"].startswith(f"This key has spent its 15 tokens per {unit}. ")
    assert len(upstream.exchanges) == 2
    assert asking(url, "alice")("models", None)[0] == 200
    assert asking(url, "bob")(path, {**body, "stream": False})[0] == 200


def test_repairs_and_turns_without_usage_count_against_the_budget(
    open_to: Any, upstream: ScriptedUpstream
) -> None:
    url = open_to(alice="tokens_per_day = 60", bob="tokens_per_day = 100")
    # 20 tokens of an invalid reply and its repair, thrice.
    for _ in range(3):
        upstream.reply("```tool_code\nget_weather(\n```", "```tool_code\nget_weather()\n```")
        assert asking(url, "alice")(body={**CHAT, "tools": [TOOL]})[0] == 200
    assert asking(url, "alice")()[0] == 429
    # 400 characters without a usage: about 100 tokens, also in one chunk.
    upstream.reply(Reply("word " * 80, chunks=400, usage=None))
    assert asking(url, "bob")()[0] == 200
    assert asking(url, "bob")()[0] == 429


def test_a_stream_that_its_client_closed_counts_against_the_budget(
    open_to: Any, upstream: ScriptedUpstream
) -> None:
    url = open_to({"ping_seconds": 0.1}, alice="tokens_per_day = 5")
    upstream.reply(Reply(chunks=["a"] * 20, fault="silent", after=20))
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="alice", max_retries=0)
    stream = client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
    words = ""
    while len(words) < 20:  # pieces that arrive together come together
        words += "".join(choice.delta.content or "" for choice in next(stream).choices)
    stream.close()
    wait_until(lambda: asking(url, "alice")()[0] == 429)
    assert asking(url, "alice")()[0] == 429


def test_tokens_of_passed_through_requests_count_against_the_budget(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    """Embeddings report one token; speech reports none."""
    keys = str(keys_file(tmp_path, alice="tokens_per_day = 2"))
    with other_endpoints() as other:
        ask = asking(start_proxy(base_url=other.base_url, client_keys_file=keys), "alice")
        embed = {"model": "e", "input": "x"}
        assert [ask("embeddings", embed)[0] for _ in range(3)] == [200, 200, 429]


def test_replicas_share_budgets_and_count_alone_without_the_database(
    open_to: Any, database: str
) -> None:
    urls = [open_to({}, alice="tokens_per_day = 20") for _ in range(2)]
    assert [asking(url, "alice")()[0] for url in (*urls, *urls)] == [200, 200, 429, 429]
    with closing(open_database(database)) as opened:
        opened.run("DROP TABLE spent")
    assert asking(urls[0], "alice")()[0] == 200


# The file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alice\n", "line 1: this is not TOML"),
        ("[alice]\nenabled = 1\nenabled = 1\n", "line 3: this name is there twice"),
        ("[alice]\n[alice]\n", "line 2: this name is there twice"),
        ('key = "secret"', "'key' is not a key: write a table [NAME] with its sha256"),
        ("[alice]", "line 1: alice.sha256: 64 hexadecimal digits are expected"),
        ('[alice]\nsha256 = "secret"', "line 2: alice.sha256: 64 hexadecimal digits are expected"),
        (entry("alice", "k") + "models = 'secret'", "alice.models: input should be"),
        (entry("alice", "k") + "tokens_a_day = 5", "no such key; did you mean tokens_per_day?"),
        (entry("alice", "k") + "tokens_per_day = -1", "alice.tokens_per_day: input should be"),
        (entry("alice", "k") + "expires = 'soon'", "alice.expires: input should be a valid date"),
        (entry("alice", "k") + entry("bob", "k"), "'alice' and 'bob' have the same key"),
        ('["a\\nb"]\n', "'a\\nb' is not a key"),
    ],
)
def test_an_error_in_the_keys_file_is_reported_without_its_values(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(InvalidClientKeys) as raised:
        read(str(path))
    assert said in str(raised.value)
    assert str(path) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_an_error_in_the_keys_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry("alice", "k") + entry("bob", "l") + "tokens_per_day = -1\n")
    with pytest.raises(InvalidClientKeys, match=r"keys\.toml, line 5: bob\.tokens_per_day: "):
        read(str(path))
    path.write_text(entry("alice", "k") + "\n[bob]\nmodels = []\n")
    with pytest.raises(InvalidClientKeys, match=r"keys\.toml, line 4: bob\.sha256: 64 hexa"):
        read(str(path))


def test_a_new_key_is_shown_once_and_its_table_holds_only_its_hash(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("alice@example.org", "bob"):
        with pytest.raises(SystemExit) as ended:
            main(["keys", "new", name])
        assert ended.value.code == 0
    out, err = capsys.readouterr()
    keys = [line.split()[-1] for line in err.splitlines()]
    assert len({*keys}) == 2 and all(len(key) > 40 and key not in out for key in keys)
    path = tmp_path / "keys.toml"
    path.write_text(out)
    assert {grant.name for grant in read(str(path)).values()} == {"alice@example.org", "bob"}
    for arguments in (["keys"], ["keys", "new"], ["keys", "new", "a b"], ["keys", "old", "a"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_a_signal_reloads_the_keys_file_and_an_invalid_file_changes_nothing(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The signal goes to the process that was started; it is its worker that has the keys."""
    upstream.default = "Hello!"
    alice, bob = new_key(), new_key()
    path = tmp_path / "keys.toml"
    path.write_text(entry("alice", alice))
    options = ("--client-keys-file", str(path), "--database", ":memory:")
    with proxy(upstream.base_url, tmp_path / "log", *options) as (process, url):

        def statuses() -> list[int]:
            return [asking(url, key)()[0] for key in (alice, bob)]

        assert statuses() == [200, 401]
        path.write_text(entry("bob", bob))
        os.kill(process.group, signal.SIGHUP)
        wait_until(lambda: statuses() == [401, 200])
        path.write_text("[broken\n")
        os.kill(process.group, signal.SIGHUP)
        wait_until(lambda: "their file is invalid" in process.output)
        assert statuses() == [401, 200]
        log = process.output
        assert alice not in log and bob not in log
    refused = pytest.raises(AssertionError, match=r"client_keys_file: .* line 1: this is not TOML")
    with refused, proxy(upstream.base_url, tmp_path / "second", *options):
        pass


def test_a_request_without_a_key_is_told_how_to_send_one(open_to: Any) -> None:
    """The message was that of a wrong key."""
    url = open_to(alice="")
    messages = [
        send(f"{url}/v1/models")[2]["error"]["message"],
        asking(url, "bob")()[2]["error"]["message"],
    ]
    assert messages == [
        "No API key provided: send one of this proxy's client keys as 'authorization: Bearer KEY'.",
        "Incorrect API key provided.",
    ]


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["no tools", "tools"])
def test_a_key_that_the_upstream_refuses_is_not_taken_for_the_clients(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tools: list[Any]
) -> None:
    url = start_proxy(client_keys=("mine",), api_key="sk-old")
    body = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
    upstream.reply(Reply(status=401, body=body))
    question = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    status, _, answer = send(
        f"{url}/v1/chat/completions", question, {"authorization": "Bearer mine"}
    )
    assert status == 401
    assert f"({upstream.base_url}/chat/completions)" in answer["error"]["message"]
