"""The blocks of docs/other-programs.md have the form that programs read; the proxy accepts their requests."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.settings.configuration import read
from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream

PAGE = (Path(__file__).parents[2] / "docs" / "other-programs.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
HOST = "host.docker.internal:8001"


def block(kind: str, place: int = 0) -> str:
    return [text for name, text in BLOCKS if name == kind][place]


def test_every_base_url_and_key_of_the_page_is_the_same() -> None:
    [editor] = json.loads(block("json"))
    [model] = editor["models"]
    [chat] = yaml.safe_load(block("yaml"))["endpoints"]["custom"]
    assert model["url"] == "http://127.0.0.1:8001/v1/chat/completions"
    # VS Code 1.139 reads a stored secret's name here; for any other text it sends no key.
    assert editor["apiKey"] == "${input:chat.lm.secret.ID}"
    assert (chat["apiKey"], chat["baseURL"]) == ("your-key", f"http://{HOST}/v1")
    command = shlex.split(block("sh", 1).replace("\\\n", " "))
    assert {"OPENAI_API_KEY=your-key", f"OPENAI_API_BASE_URL=http://{HOST}/v1"} <= {*command}


def test_the_command_of_the_page_starts_a_proxy_that_containers_reach() -> None:
    program, *arguments = shlex.split(block("sh"))
    settings = read(arguments).settings
    assert (program, settings.host, settings.wants_keys) == ("tool-emulator", "0.0.0.0", True)


@pytest.mark.parametrize(
    ("settings", "key", "status"),
    [
        ({"client_keys": "your-key"}, "your-key", 200),
        ({"client_keys": "your-key"}, "", 401),
        ({"allowed_hosts": "host.docker.internal"}, "", 200),
        ({}, "", 403),
    ],
    ids=["key", "no key", "allowed host", "neither"],
)
def test_a_container_reaches_the_proxy_by_the_hosts_name(
    start_proxy: Any, upstream: ScriptedUpstream, settings: dict[str, str], key: str, status: int
) -> None:
    headers = {"host": HOST} | ({"authorization": f"Bearer {key}"} if key else {})
    assert fetch(f"{start_proxy(**settings)}/v1/models", None, headers)[0] == status
