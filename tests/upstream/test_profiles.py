"""Profiles of the operator's own: rows of TOML, and their effect on upstream and client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from emulator.rendering.custom_template import InvalidTemplate, check_templates
from emulator.settings.settings import Settings
from emulator.upstream.routes import Routes
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER

ROOT = Path(__file__).parents[2]
TABLES = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "upstreams.md").read_text(), re.DOTALL)
HELLO: list[Any] = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hello"}]


def from_file(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Settings:
    monkeypatch.setenv("EMULATOR_CONFIG", str(folder / "emulator.toml"))
    (folder / "emulator.toml").write_text(text)
    return Settings()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The sample of the page, but for its template."""
    table = next(table for table in TABLES if "house-model" in table)
    text = re.sub(r"^template.*\n", "", table, flags=re.MULTILINE)
    return from_file(monkeypatch, tmp_path, text).profiles


def test_the_pages_upstreams_are_valid_and_lead_to_the_named_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "deep")
    settings = from_file(monkeypatch, tmp_path, TABLES[0])
    routes = Routes(settings)
    gone_to = {
        model: (routes.of(model).target.name, routes.of(model).model)
        for model in ("deepseek-chat", "local/qwen3", "gpt-4o", "claude-sonnet")
    }
    assert gone_to == {
        "deepseek-chat": ("deepseek", "deepseek-chat"),
        "local/qwen3": ("local", "qwen3"),
        "gpt-4o": ("deepseek", "deepseek-chat"),
        "claude-sonnet": ("local", "qwen3"),
    }
    target = routes.of("deepseek-chat").target
    assert target.settings.api_key.get_secret_value() == "deep"
    assert target.settings.upstream_seconds == 120


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
def test_a_custom_profile_decides_the_fields_that_the_upstream_gets(
    start_proxy: StartProxy, upstream: ScriptedUpstream, house: Any, tools: list[Any]
) -> None:
    proxy = start_proxy(profiles=house)
    upstream.reply("Fine.")
    body = {
        "model": "house-large-v2",
        "messages": HELLO,
        "max_completion_tokens": 9,
        "seed": 1,
        "metadata": {"a": "b"},
        "store": True,
        "temperature": 0.5,
        **({"tools": tools} if tools else {}),
    }
    assert send(f"{proxy}/v1/chat/completions", body)[0] == 200
    [sent] = upstream.requests
    assert {name: sent.get(name) for name in ("max_tokens", "metadata", "stop", "temperature")} == {
        "max_tokens": 9,
        "metadata": {"a": "b"},
        "stop": ["<|im_end|>"],
        "temperature": 0.5,
    }
    assert not {"max_completion_tokens", "seed", "store"} & sent.keys()
    if tools:
        assert [message["role"] for message in sent["messages"]] == ["user"]


def test_reasoning_comes_from_the_profiles_field_and_begins_inside(
    start_proxy: StartProxy, upstream: ScriptedUpstream, house: Any
) -> None:
    client = openai.OpenAI(base_url=start_proxy(profiles=house) + "/v1", api_key="k")
    thought = {"choices": [{"index": 0, "delta": {"thinking": "Hm."}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in (thought, end)]
    upstream.reply(Reply(frames=[*(frame.encode() for frame in frames), b"data: [DONE]\n\n"]))
    upstream.reply("Hm.</think>Yes.")
    for model in ("house-a-v2", "house-b-v2"):
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "?"}], tools=[GET_WEATHER]
        )
        message = answer.choices[0].message
        assert (message.content, (message.model_extra or {})["reasoning_content"]) == (
            "Yes.",
            "Hm.",
        )


def test_a_custom_template_instructs_the_model(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """What a client writes into a description is text in it, whatever it looks like."""
    file = tmp_path / "own.txt"
    file.write_text("HOUSE RULES ({{ choice }}):\n{{ stubs }}")
    proxy = start_proxy(profiles=({"name": "mine", "pattern": "house", "template": str(file)},))
    upstream.reply("Fine.")
    tool = {**GET_WEATHER, "function": {**GET_WEATHER["function"], "description": "{{ 7 * 6 }}"}}
    body = {"model": "house", "messages": HELLO, "tools": [tool]}
    assert send(f"{proxy}/v1/chat/completions", body)[0] == 200
    instructions = upstream.requests[0]["messages"][0]["content"]
    assert "HOUSE RULES (auto):" in instructions
    assert "{{ 7 * 6 }}" in instructions


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ stubs }}\n{% if %}", "line 2"),
        ("{{ stubs }} {{ studs }}", "studs"),
        ("Call something.", "add {{ stubs }} to it"),
        ("{{ stubs }}{{ stubs.__class__.__mro__ }}", "__class__"),
        ("{{ stubs }}{{ 1 / 0 }}", "division"),
        (None, "No such file"),
    ],
)
def test_a_template_that_does_not_work_is_refused_at_start(
    template: str | None, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.txt"
    if template is not None:
        file.write_text(template)
    settings = Settings(profiles=[{"name": "mine", "template": str(file)}])  # type: ignore[list-item]
    with pytest.raises(InvalidTemplate, match=re.escape(complaint)) as failed:
        check_templates(settings)
    assert str(file) in str(failed.value)


def test_the_command_refuses_such_a_template_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "emulator.toml").write_text('[[profiles]]\nname = "mine"\ntemplate = "own.txt"\n')
    (tmp_path / "own.txt").write_text("{{ stubs }}{% endif %}")
    ran = subprocess.run(
        [sys.executable, str(ROOT / "app.py"), "--port", "0"],
        cwd=tmp_path,
        check=False,
        env={"EMULATOR_CONFIG": "emulator.toml"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode != 0
    [line] = ran.stderr.splitlines()
    assert line.startswith("template own.txt, line 1: ")
