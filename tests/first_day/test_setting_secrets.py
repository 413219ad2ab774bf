"""A secret in a setting is shown nowhere: on no page, in no message, error, log or metric, to no model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from emulator.cli import start_messages
from emulator.settings.configuration import ConfigurationError, read
from emulator.settings.redaction import shown
from emulator.settings.settings import Settings
from tests.support.command_line import command_line, served
from tests.support.processes import free_port
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream

SECRET = "open-sesame"
URLS = (
    f"http://ali:{SECRET}@127.0.0.1:1/v1",
    f"http://ali:{SECRET}@127.0.0.1:port/v1",
    f"http://127.0.0.1:1/v1?key={SECRET}",
    f"http://ali:12/{SECRET}@127.0.0.1:1/v1",
    f"http://ali:a@b/{SECRET}@127.0.0.1:1/v1",
    f"http://ali:{SECRET}#1@127.0.0.1:1/v1",
    f"http://ali:{SECRET}℀@127.0.0.1:1/v1",
    f"https//ali:{SECRET}@127.0.0.1:1/v1",
    f"redis://ali:{SECRET}@127.0.0.1:1/0",
    f"redis://ali:{SECRET}/x@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"postgresql://ali:{SECRET}@127.0.0.1:1/emulator?sslpassword={SECRET}",
    f"tcp://ali:{SECRET}@127.0.0.1:1",
    f"ali:{SECRET}@127.0.0.1:1/v1",
)
"""As people write them, with passwords that they should have escaped, too."""
TABLES: dict[str, Any] = {
    "upstreams": {"base_url": "http://127.0.0.1:1/v1"},
    "profiles": {"name": "mine"},
    "mcp": {"url": "http://127.0.0.1:1/mcp"},
    "web_search": {"provider": "searxng", "url": "http://127.0.0.1:1"},
}
"""What a row of a table must have besides."""


def with_secret(annotation: Any, row: dict[str, Any]) -> Iterator[Any]:
    """Values of this type, each with a secret in one place; ``row`` has what its table requires."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is SecretStr:
        yield from (SECRET, *URLS)
    elif annotation is str:
        yield from URLS
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            required = {"command": "x"} if name in ("args", "env") else row
            for value in with_secret(field.annotation, {}):
                yield {**required, name: value}
    elif origin is Annotated:
        yield from with_secret(arguments[0], row)
    elif origin in (Union, UnionType):
        for each in arguments:
            yield from with_secret(each, row)
    elif origin is tuple:
        yield from ([value] for value in with_secret(arguments[0], row))
    elif origin is dict:
        yield from ({"shop": value} for value in with_secret(arguments[1], row))


def toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


CASES = {
    name: [*with_secret(field.annotation, TABLES.get(name, {}))]
    for name, field in Settings.model_fields.items()
}


@pytest.mark.parametrize("name", [name for name, values in CASES.items() if values])
def test_no_message_shows_a_secret_of_a_setting(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the value is accepted or refused, and wherever it is written. The address of the upstream was
    printed with its password at each start."""
    file = tmp_path / "emulator.toml"
    monkeypatch.setenv("EMULATOR_CONFIG", str(file))
    for value in CASES[name]:
        file.write_text(f"{name} = {toml(value)}\n")
        assert SECRET not in messages([]), value
        file.write_text("")
        written = value if isinstance(value, str) else json.dumps(value)
        with monkeypatch.context() as variables:
            variables.setenv(f"EMULATOR_{name.upper()}", written)
            assert SECRET not in messages([]), value
        assert SECRET not in messages([f"--{name.replace('_', '-')}={written}"]), value


def messages(arguments: list[str]) -> str:
    """What is printed and shown of the settings: why they are refused, or at the start and on the status
    page."""
    try:
        configuration = read(arguments)
    except ConfigurationError as error:
        return str(error)
    settings = configuration.settings
    lines = [
        start_messages.serving(settings, configuration.upstream),
        start_messages.stored(settings, is_kept=True),
        start_messages.inspector(settings),
        *configuration.notes,
        *(shown(getattr(settings, name)) for name in Settings.model_fields),
    ]
    return "\n".join(lines)


def test_these_tests_try_every_setting_that_may_contain_text() -> None:
    """Of a type that `with_secret` does not know, nothing would be tried."""
    types = {name: repr(field.annotation) for name, field in Settings.model_fields.items()}
    plain = "Literal|class 'int'|class 'float'|class 'bool'|Optional[int]|int | None"
    untried = {types[name] for name, values in CASES.items() if not values}
    assert [one for one in untried if not re.search(plain.replace("[", r"\["), one)] == []


OPERATOR = "operators-open-sesame"
CONFIGURATION = f"""
client_keys = ["clients-{SECRET}"]
inspector_key = "{OPERATOR}"
program_key = "programs-{SECRET}"
gateway_url = "http://ali:gateway-{SECRET}@127.0.0.1:1/"
gateway_token = "tokens-{SECRET}"
sandbox = "gateway"
log_bodies = true
upstream_retries = 0

[[upstreams]]
base_url = "http://ali:upstreams-{SECRET}@UPSTREAM/v1"
api_key = "keys-{SECRET}"
headers = {{ x-key = "headers-{SECRET}", authorization = "Basic basics-{SECRET}" }}
query = {{ key = "queries-{SECRET}" }}

[mcp.command]
command = "PYTHON"
args = ["-c", "import os, sys; sys.exit(sys.argv[1] + os.environ['SHOP_KEY'])", "--key=${{ARGUMENT}}"]
env = {{ SHOP_KEY = "variables-{SECRET}" }}

[mcp.url]
url = "http://ali:urls-{SECRET}@127.0.0.1:1/paths-{SECRET}/mcp?key=servers-{SECRET}"
token = "bearers-{SECRET}"
headers = {{ x-key = "fields-{SECRET}" }}

[web_search]
provider = "searxng"
url = "http://ali:searches-{SECRET}@127.0.0.1:port/?key=search-{SECRET}"
token = "search-tokens-{SECRET}"
"""
VARIABLES = {"ARGUMENT": f"arguments-{SECRET}"}
QUOTED = " ".join(
    f"{name}-{SECRET}" for name in ("upstreams", "keys", "headers", "basics", "queries")
)
QUESTION = [{"role": "user", "content": "Hi"}]
MCP = [{"type": "mcp", "server_label": "command"}]
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": QUESTION},
    "/v1/responses": {"input": "Hi", "tools": [{**MCP[0], "require_approval": "never"}]},
    "/v1/messages": {"messages": QUESTION, "max_tokens": 9},
    "/v1/embeddings": {"input": "Hi"},
}


def test_a_running_proxy_shows_no_secret_of_its_settings(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The status page had the passwords of the store, the index of files, Docker's engine and the search."""
    address = upstream.base_url.split("/")[2]
    text = CONFIGURATION.replace("UPSTREAM", address).replace("PYTHON", sys.executable)
    (tmp_path / "emulator.toml").write_text(text)
    upstream.default = Reply(status=401, body={"error": {"message": QUOTED}})
    key = {"authorization": f"Bearer clients-{SECRET}"}
    seen = []
    port = free_port()
    with served(f"--port={port}", home=tmp_path, variables=VARIABLES) as process:
        process.wait_for("Try:")
        url = f"http://127.0.0.1:{port}"
        for path, body in BODIES.items():
            seen.append(fetch(url + path, {"model": "m", **body}, key))
            seen.append(fetch(url + path, {"model": "m", "stream": True, **body}, key))
        searching = {**BODIES["/v1/chat/completions"], "web_search_options": {}}
        upstream.reply("```tool_code\nprint(web_search('tea'))\n```", "No tea.")
        seen.append(fetch(url + "/v1/chat/completions", {"model": "m", **searching}, key))
        asked = json.dumps(upstream.requests)
        assert "web search failed" in asked
        operator = {"authorization": f"Bearer {OPERATOR}"}
        for path in ("/inspector", "/inspector/status", "/metrics", "/readyz", "/healthz"):
            seen.append(fetch(url + path, None, operator))
            seen.append(fetch(url + path))
        seen.append(fetch(f"{url}/inspector/status/doctor", b"", operator, "POST"))
        printed = process.output
    for command in (["doctor"], ["doctor", "--sandbox=docker"], ["mcp"], ["check"]):
        ended = command_line(*command, home=tmp_path, variables=VARIABLES)
        seen.append((ended.code, {}, f"{command}: {ended.out}{ended.err}".encode()))
    seen += [(0, {}, printed.encode()), (0, {}, asked.encode())]
    for status, _, body in seen:
        assert SECRET not in body.decode(), (status, body.decode())
