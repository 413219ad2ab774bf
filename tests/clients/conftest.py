"""The proxy as a separate process in front of a scripted model, and the table of features that work.

Nothing here imports the proxy: what a client meets is `python app.py`, started as a user starts it, in the
proxy's environment (`PROXY_PYTHON`, or else `.venv`). The client frameworks live in others.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.compatibility import FEATURES
from tests.support.processes import proxy
from tests.support.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
REQUIREMENTS = {
    "openai_3": ROOT / "requirements-clients.txt",
    "openai_2": ROOT / "requirements-clients-old.txt",
}
"""The folder of tests -> what its environment is made of."""
PROXY_PYTHON = os.environ.get("PROXY_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
CLIENT_KEY = "client-key"
OPTIONS = ("--api-key", "upstream-key", "--database", ":memory:", "--log-level", "warning")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Record for docs/compatibility.md what a test is of: the client and the packages that its file names as
    CLIENT and PACKAGES, and the features of its marks. A file that names no client has no row."""
    for item in items:
        if not hasattr(item.module, "CLIENT") or item.path.parent.name not in REQUIREMENTS:
            continue  # another folder's module has its own CLIENT, if all tests are collected
        features = [mark.args[0] for mark in item.iter_markers("feature")]
        assert set(features) <= set(FEATURES), item.nodeid
        pins = read_pins(REQUIREMENTS[item.path.parent.name])
        packages = ", ".join(f"`{name}{pins[name]}`" for name in item.module.PACKAGES)
        item.user_properties += [("client", item.module.CLIENT), ("packages", packages)]
        item.user_properties.append(("features", ", ".join(features)))


@cache
def read_pins(requirements: Path) -> dict[str, str]:
    """Package -> the versions asked for: ``{"openai": "~=3.52", "npm:ai": "@^7.0.173"}``."""
    pins = {}
    for line in requirements.read_text().splitlines():
        if match := re.match(r"([\w.-]+)(?:\[.*?\])?\s*([~=<>!][^;#]*)", line):
            pins[match[1]] = match[2].strip()
    node = json.loads((ROOT / "tests/clients/node/package.json").read_text())["dependencies"]
    return pins | {f"npm:{name}": f"@{version}" for name, version in node.items()}


class SharedUpstream(ScriptedUpstream):
    """One scripted model for all tests of a run: the proxy is started with its address."""

    def forget(self) -> None:
        with self._lock:
            self._queue.clear()
        self.exchanges.clear()
        self.failures.clear()

    def outputs_told(self) -> list[str]:
        """What the last request tells the model that cells before it have printed."""
        told = [str(message["content"]) for message in self.requests[-1]["messages"]]
        found = [
            re.search("^The (?:block|program) ran.*?```text\n(.*)```", text, re.DOTALL)
            for text in told
        ]
        return [match[1] for match in found if match]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the keys of the user who runs it, or reports its activity to anyone."""
    for name in os.environ:
        if name.startswith(("OPENAI_", "LANGCHAIN_", "LANGSMITH_", "LOGFIRE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", CLIENT_KEY)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")


@pytest.fixture(scope="session")
def shared_upstream() -> Iterator[SharedUpstream]:
    with SharedUpstream() as server:
        yield server


@pytest.fixture
def upstream(shared_upstream: SharedUpstream) -> Iterator[SharedUpstream]:
    """A scripted model. Its replies are neither too few nor too many for what the client asks."""
    shared_upstream.forget()
    yield shared_upstream
    assert (shared_upstream.failures, shared_upstream.pending) == ([], 0)


@pytest.fixture(scope="session")
def running_proxy(
    shared_upstream: SharedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of the proxy's API, ``http://127.0.0.1:PORT/v1``."""
    log = tmp_path_factory.mktemp("proxy") / "log"
    command = (PROXY_PYTHON, "app.py")
    with proxy(shared_upstream.base_url, log, *OPTIONS, command=command) as (_, url):
        yield f"{url}/v1"
    sys.stderr.write(log.read_text()[-4000:])


@pytest.fixture
def base_url(running_proxy: str, upstream: SharedUpstream) -> str:
    """The base URL that a client gets instead of OpenAI's."""
    return running_proxy


@pytest.fixture(scope="session")
def container(running_proxy: str) -> Iterator[str]:
    """The id of a container in which code has run: the tests that share it wait for no kernel.

    Skips where the proxy has no sandbox.
    """
    with openai.OpenAI(base_url=running_proxy, api_key=CLIENT_KEY, max_retries=0) as client:
        made = client.containers.create(name="shared")
        try:
            said = _execute(client, made.id, "print('here')")
        except openai.APIStatusError as error:
            pytest.skip(f"the proxy cannot run code: {error}")
        assert said["stdout"] == "here\n", said
        yield made.id


@pytest.fixture
def matplotlib(running_proxy: str, container: str) -> None:
    """Skips where the proxy's kernels cannot plot."""
    with openai.OpenAI(base_url=running_proxy) as client:
        said = _execute(client, container, "import matplotlib")
    if said["status"] != "Success":
        pytest.skip(f"the proxy's kernels cannot plot: {said['stderr']}")


@pytest.fixture
def interpreter(base_url: str, container: str) -> Iterator[str]:
    """`base_url`, where a test's containers do not outlive it: the proxy has but so many kernels."""
    yield base_url
    with openai.OpenAI(base_url=base_url) as client:
        for made in client.containers.list(limit=100):
            if made.id != container:
                client.containers.delete(made.id)


def _execute(client: openai.OpenAI, container: str, code: str) -> Any:
    return client.post(f"/containers/{container}/execute", body={"code": code}, cast_to=object)
