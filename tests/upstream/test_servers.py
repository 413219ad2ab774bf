"""Detection of an upstream's server software, and the page's snippet for each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from flask import Flask, abort
from structlog.testing import capture_logs

from app import create_app
from emulator.cli.check import examine
from emulator.core import logs
from emulator.settings.settings import Settings
from emulator.upstream.client import OpenAIUpstream
from emulator.upstream.routes import Routes
from emulator.upstream.servers import SERVERS, UNKNOWN, identify_server
from tests.support.command_line import command_line
from tests.support.processes import free_port
from tests.support.serving import serve

PAGE = (Path(__file__).parents[2] / "docs" / "upstreams.md").read_text()
SECTION = PAGE.partition("## A row for each server")[2].partition("\n## ")[0]
SNIPPETS = {
    name: snippet
    for names, snippet in re.findall(
        r"^(\*\*[^\n]+)\n\n```toml\n(.*?)```", SECTION, re.DOTALL | re.MULTILINE
    )
    for name in re.findall(r"\*\*(.+?)\*\*", names)
}


class Root:
    """A server that says at its root what ``answers`` holds."""

    url = ""
    answers: ClassVar[dict[str, Any]] = {}


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    app, root = Flask("root"), Root()

    @app.get("/<path:path>")
    def answer(path: str) -> Any:
        return root.answers[f"/{path}"] if f"/{path}" in root.answers else abort(404)

    with serve(app) as root.url:
        yield root


def described(settings: Settings) -> tuple[str, bool]:
    """The first line of the report of `check`, and whether the server answers."""
    [report] = examine(settings)
    return report.checks[0].detail, report.checks[0].ok


@pytest.mark.parametrize("server", [s for s in SERVERS if s.path], ids=lambda s: s.name)
def test_a_server_is_identified_by_its_models_or_by_its_own_path(root: Root, server: Any) -> None:
    url = f"{root.url}/v1"
    upstream = OpenAIUpstream(Settings(base_url=url))
    root.answers = {server.path: {server.key: "1.0"}}
    assert identify_server(url, [server.owner], lambda _: pytest.fail("requested")) is server
    assert identify_server(url, ["somebody"], upstream.at_root) is server
    root.answers = {server.path: ["another"]}
    assert identify_server(url, [], upstream.at_root) is UNKNOWN
    upstream.close()


@pytest.mark.parametrize(
    ("owners", "name"),
    [(["me"], "llama-cpp-python"), (["vllm"] * 2, "vLLM"), ([None], "unknown"), ([""], "unknown")],
)
def test_some_servers_are_identified_by_the_owner_of_their_models_alone(
    owners: list[str | None], name: str
) -> None:
    """LocalAI names no owner, and has `/version` and Ollama's `/api/version`."""
    found = identify_server("http://127.0.0.1:1/v1", owners, lambda _: pytest.fail("requested"))
    assert found.name == name


@pytest.mark.parametrize("name", [server.name for server in SERVERS])
def test_the_pages_row_of_each_server_is_valid_and_is_that_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tomllib.loads(SNIPPETS[name])
    for row in rows["upstreams"]:
        if "api_key_env" in row:
            monkeypatch.setenv(row["api_key_env"], "secret")
    settings = Settings(**rows)
    [target] = Routes(settings).targets
    server = next(server for server in SERVERS if server.name == name)
    if not server.path and not server.owner:
        found = identify_server(target.settings.base_url, [], lambda _: pytest.fail("requested"))
        assert found is server
        assert target.settings.api_key.get_secret_value() == "secret"
    fields = {row.grammar for row in settings.profiles}
    assert fields <= {server.schema_field}, "a schema goes in the field that this server takes"
    assert bool(fields) == (server.schema_field != "off")


def test_the_command_names_the_kind_of_server(root: Root, tmp_path: Path) -> None:
    url = f"{root.url}/v1"
    root.answers = {"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}
    known = f'{url} is vLLM, which can constrain calls (grammar = "json_schema" in [[profiles]])'
    ended = command_line("check", url, home=tmp_path)
    assert [f"{url} (--base-url)", f"server  works  {known}"] == ended.out.splitlines()[:2]
    root.answers = {"/v1/models": {"data": [{"id": "m", "owned_by": "somebody"}]}}
    unknown = f"{url} is a server of unknown kind"
    assert described(Settings(base_url=url)) == (unknown, True)
    gone, answers = described(Settings(base_url="http://user:secret@127.0.0.1:1/v1"))
    assert gone.startswith("http://127.0.0.1:1/v1 does not answer: ") and not answers


@pytest.mark.parametrize(
    ("listing", "listed"),
    [
        ({"data": 5}, []),
        ([1], []),
        ({"data": [None, {"id": None}, {"object": "model"}]}, []),
        ({"data": [{"id": "m", "owned_by": ["a"]}]}, ["m"]),
        ({"data": [{"id": 7, "cls": 1, "_fields_set": 1, "self": 1, "meta": [1]}]}, ["7"]),
    ],
)
def test_a_list_of_models_may_be_nonsense(root: Root, listing: Any, listed: list[str]) -> None:
    root.answers = {"/v1/models": listing}
    settings = Settings(
        base_url=f"{root.url}/v1",
        database=":memory:",
    )
    unknown = f"{root.url}/v1 is a server of unknown kind"
    assert described(settings) == (unknown, True)
    app = create_app(settings)
    try:
        models = app.test_client().get("/v1/models").json
        assert [model["id"] for model in models["data"]] == listed
    finally:
        app.extensions["emulator"].close()


def test_the_command_fails_without_an_answering_upstream_and_suggests_a_url(
    root: Root, tmp_path: Path
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for order in (
        ["--base-url", nowhere, "check"],
        ["check", nowhere],
    ):
        ended = command_line(*order, home=tmp_path)
        assert (ended.code, ended.out.count("does not answer"), ended.err) == (1, 1, "")
        assert ended.out.endswith(f"; did you mean {nowhere}/v1?\n")
    root.answers = {}
    ended = command_line("check", root.url, home=tmp_path)
    assert (ended.code, f"did you mean {root.url}/v1?" in ended.out) == (1, True)


def test_a_refused_key_names_the_flag_that_sets_it(root: Root) -> None:
    """Without a configured key the proxy sends one that no setting of the user's has."""
    url = f"{root.url}/v1"
    root.answers = {"/v1/models": ({"error": {"message": "Incorrect API key provided: lol"}}, 401)}
    line, _ = described(Settings(base_url=url))
    assert line.startswith(f"{url} refuses the key (--api-key): Incorrect API key provided")


def test_the_start_says_what_an_unreachable_url_may_lack() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with capture_logs() as events:
        described(Settings(base_url=nowhere))
    [warning] = [event["event"] for event in events]
    assert warning.endswith(f"; did you mean {nowhere}/v1?")


def test_the_embedded_models_server_is_not_described(root: Root) -> None:
    """The first request of a new user logged the advice to set a grammar."""
    root.answers = {"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}
    logs.configure("info")
    try:
        for is_embedded, lines in ((False, 1), (True, 0)):
            settings = Settings(base_url=f"{root.url}/v1", local_model=is_embedded)
            with capture_logs() as events:
                described(settings)
            assert len(events) == lines
    finally:
        logs.configure("warning")


def test_readiness_names_the_kinds_of_servers(root: Root) -> None:
    url = f"{root.url}/v1"
    root.answers = {"/v1/models": {"data": [{"id": "m", "owned_by": "library"}]}}
    settings = Settings(
        base_url=url,
        database=":memory:",
    )
    app = create_app(settings)
    try:
        assert app.test_client().get("/readyz").json == {"status": "ready"}
        app.extensions["emulator"].reachability.check()
        expected = {"status": "ready", "servers": {url: "Ollama"}}
        assert app.test_client().get("/readyz").json == expected
    finally:
        app.extensions["emulator"].close()
