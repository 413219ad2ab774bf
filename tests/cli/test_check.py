"""`tool-emulator check` in front of servers that answer as Ollama, LM Studio, llama.cpp and vLLM do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emulator.cli.check import find_servers, usual_places
from emulator.settings.settings import Settings
from emulator.upstream import local_model
from tests.support.command_line import Ended, command_line
from tests.support.processes import free_port
from tests.support.scripted import Body, Reply, ScriptedUpstream

CALL = "```tool_code\ntrack_parcel(number='7Q-4481')\n```"
NATIVE = Reply(tool_calls=[{"name": "track_parcel", "arguments": {"number": "7Q-4481"}}])
NO_PARSER = Reply(
    status=400,
    body={"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}},
)
CONSTRAINS = 'which can constrain calls (grammar = "json_schema" in [[profiles]])'


def models(owner: str, *rows: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server's /v1/models."""
    common = {"object": "model", "created": 1, "owned_by": owner}
    return {"/v1/models": {"object": "list", "data": [common | row for row in rows]}}


def loaded(name: str, tokens: int) -> dict[str, Any]:
    """The answer of Ollama's list of models in memory."""
    return {"/api/ps": {"models": [{"name": name, "model": name, "context_length": tokens}]}}


SERVERS: dict[str, tuple[dict[str, Any], Reply, list[str]]] = {
    "Ollama": (
        models("library", {"id": "nomic-embed-text"}, {"id": "qwen3:8b"})
        | loaded("qwen3:8b", 4096)
        | {"/api/version": {"version": "0.20.0"}},
        NATIVE,
        [
            "server works URL is Ollama, " + CONSTRAINS,
            "models works nomic-embed-text, qwen3:8b (4,096 tokens)",
            'call works qwen3:8b: track_parcel(number="7Q-4481"), after N s',
            "native tools works the model makes calls itself; --tools auto uses them",
            "window weak 4,096 tokens, too few for coding agents",
            "fix: OLLAMA_CONTEXT_LENGTH=32768 ollama serve",
        ],
    ),
    "LM Studio": (
        models("organization_owner", {"id": "text-embedding-3"}, {"id": "qwen3-8b"})
        | {
            "/api/v0/models": {
                "data": [
                    {"id": "text-embedding-3", "type": "embeddings"},
                    {"id": "qwen3-8b", "type": "llm", "loaded_context_length": 32_768},
                ]
            }
        },
        NATIVE,
        [
            "server works URL is LM Studio, " + CONSTRAINS,
            "models works text-embedding-3, qwen3-8b (32,768 tokens)",
            'call works qwen3-8b: track_parcel(number="7Q-4481"), after N s',
            "native tools works the model makes calls itself; --tools auto uses them",
            "window works 32,768 tokens",
        ],
    ),
    "llama.cpp": (
        models("llamacpp", {"id": "model.gguf", "meta": {"n_params": 8_000_000_000}})
        | {"/props": {"chat_template": "", "default_generation_settings": {"n_ctx": 8192}}},
        Reply("It is on its way."),
        [
            "server works URL is llama.cpp, " + CONSTRAINS,
            "models works model.gguf (8,192 tokens)",
            'call works model.gguf: track_parcel(number="7Q-4481"), after N s',
            "native tools works none: this proxy makes the calls",
            "window weak 8,192 tokens, too few for coding agents",
            "fix: start it with --ctx-size 32768",
        ],
    ),
    "vLLM": (
        models("vllm", {"id": "org/model", "root": "org/model", "max_model_len": 40_960}),
        NO_PARSER,
        [
            "server works URL is vLLM, " + CONSTRAINS,
            "models works org/model (40,960 tokens)",
            'call works org/model: track_parcel(number="7Q-4481"), after N s',
            "native tools works none: this proxy makes the calls",
            "window works 40,960 tokens",
        ],
    ),
}


def lines(ended: Ended, url: str) -> list[str]:
    """The report's lines without its columns, its durations and its address."""
    text = re.sub(r"after \d+\.\d s", "after N s", ended.out.replace(url, "URL"))
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize("name", SERVERS)
def test_the_report_says_what_each_kind_of_server_can_do(
    upstream: ScriptedUpstream, tmp_path: Path, name: str
) -> None:
    upstream.at_root, native, report = SERVERS[name]

    def answer(body: Body) -> Reply | str:
        return native if "tools" in body else CALL

    upstream.default = answer
    url = upstream.base_url
    ended = command_line("check", url, home=tmp_path)
    assert (ended.code, lines(ended, url)) == (0, ["URL (--base-url)", *report])


@pytest.mark.parametrize(
    ("owner", "after"),
    [
        ("library", loaded("small", 4096)),
        (
            "organization_owner",
            {"/api/v0/models": {"data": [{"id": "small", "loaded_context_length": 4096}]}},
        ),
    ],
    ids=["Ollama", "LM Studio"],
)
def test_the_window_of_a_model_is_read_after_the_call_that_loads_it(
    upstream: ScriptedUpstream, tmp_path: Path, owner: str, after: dict[str, Any]
) -> None:
    upstream.at_root = models(owner, {"id": "small"})

    def answer(body: Body) -> Reply | str:
        upstream.at_root |= after
        return NATIVE if "tools" in body else CALL

    upstream.default = answer
    url = upstream.base_url
    ended = command_line("check", "--base-url", url, home=tmp_path)
    assert "window weak 4,096 tokens, too few for coding agents" in lines(ended, url)


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        ("Let me\nlook into that.", "Let me look into that."),
        (Reply(""), "an empty answer"),
        ("```tool_code\ntrack_parcel(number='1')\n```", 'track_parcel(number="1")'),
        (Reply(status=404, body={"error": {"message": "no chat model"}}), "no chat model"),
        (Reply("\x1b[2J\u202e"), r"\x1b[2J\u202e"),
    ],
    ids=["words", "nothing", "another call", "a refusal", "control characters"],
)
def test_a_model_that_does_not_call_is_reported_with_its_answer(
    upstream: ScriptedUpstream, tmp_path: Path, reply: Reply | str, detail: str
) -> None:
    upstream.default = reply
    ended = command_line("check", upstream.base_url, "--model", "mine", home=tmp_path)
    [call] = [line for line in lines(ended, upstream.base_url) if line.startswith("call ")]
    assert ended.code == 1
    assert call.startswith("call OFF mine: ") and detail in call
    assert "fix: check --model MODEL asks another; fit measures other ways to ask" in ended.out
    assert {body["model"] for body in upstream.requests} == {"mine"}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"/v1/models": {"data": []}}, "no model is known to ask"),
        (models("x", {"id": "e", "type": "embedding"}), "no model is known to ask"),
    ],
    ids=["no models", "no model that chats"],
)
def test_a_server_without_a_model_that_chats_is_not_asked(
    upstream: ScriptedUpstream, tmp_path: Path, answers: dict[str, Any], why: str
) -> None:
    upstream.at_root = answers
    ended = command_line("check", upstream.base_url, home=tmp_path)
    assert (ended.code, why in ended.out, upstream.requests) == (1, True, [])
    assert "fix: name one: check --model MODEL" in ended.out


def test_each_of_several_upstreams_has_a_report(tmp_path: Path) -> None:
    with (
        ScriptedUpstream(default=CALL, models=["one"]) as first,
        ScriptedUpstream(default=CALL, models=["two"]) as second,
    ):
        rows = "".join(
            f'[[upstreams]]\nname = "{name}"\nbase_url = "{url}"\nmodels = ["{name}"]\n'
            for name, url in (("one", first.base_url), ("two", second.base_url))
        )
        (tmp_path / "emulator.toml").write_text(
            f'{rows}[[upstreams]]\nname = "gone"\nbase_url = "http://127.0.0.1:{free_port()}/v1"\n'
        )
        ended = command_line("check", home=tmp_path)
        titles = [line for line in ended.out.splitlines() if line in ("one", "two", "gone")]
        assert (ended.code, titles) == (1, ["one", "two", "gone"])
        one = command_line("check", "--model", "two", home=tmp_path)
        assert (one.code, "\none\n" in one.out, "\ntwo\n" in one.out) == (0, False, True)


def test_without_a_configured_upstream_the_usual_places_are_tried(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/v1"
    found = find_servers(Settings(), [nowhere, upstream.base_url])
    assert [*found] == [upstream.base_url]
    assert {
        "http://127.0.0.1:11434/v1": "Ollama",
        "http://127.0.0.1:1234/v1": "LM Studio",
        "http://127.0.0.1:8080/v1": "llama.cpp",
        "http://127.0.0.1:8000/v1": "vLLM",
    }.items() <= usual_places(Settings()).items()
    ended = command_line("check", home=tmp_path)
    assert ended.code == 3
    # A server of the machine that runs this test may be there.
    assert "http://127.0.0.1:11434/v1" in ended.out or "To use it: --base-url " in ended.out


def test_the_earlier_name_of_the_command_asks_only_if_it_shall(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """`make run` decides by its exit codes, and waits for it."""
    url = upstream.base_url
    upstream.default = CALL
    shown = command_line("upstream", "--base-url", url, home=tmp_path)
    assert (shown.code, shown.out, upstream.exchanges) == (0, f"{url} (--base-url)\n", [])
    assert command_line("upstream", home=tmp_path).code == 3
    assert command_line("upstream", "--base-url", "x", home=tmp_path).code == 2
    report = command_line("upstream", "--ask", "--base-url", url, home=tmp_path)
    assert (report.code, "track_parcel" in report.out) == (0, True)


def test_the_name_of_a_model_cannot_forge_a_line_of_the_report(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.default = CALL
    upstream.at_root = models("x", {"id": "m\nwindow  works  1,000,000 tokens\x1b[2J"})
    ended = command_line("check", upstream.base_url, home=tmp_path)
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == [
        *("server", "models", "call", "native", "window")
    ]
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.live
def test_the_embedded_model_makes_the_call(tmp_path: Path) -> None:
    ended = command_line("check", "--local-model", home=tmp_path)
    assert ended.code == 0, ended
    assert f"{local_model.MODEL_NAME}: track_parcel(" in ended.out
