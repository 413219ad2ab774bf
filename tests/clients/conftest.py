"""The proxy as a process of its own, a scripted model behind it, and the table of what works.

Nothing here imports the proxy: what a client meets is `python app.py`, started as a user starts it, in the
proxy's environment (`PROXY_PYTHON`, or else `.venv`). The client frameworks live in others.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.clients.compatibility import Results
from tests.support.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
PROXY_PYTHON = os.environ.get("PROXY_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
STARTS_WITHIN_SECONDS = 60
CLIENT_KEY = "client-key"
PROXY_SETTINGS = {
    "EMULATOR_CONFIG": os.devnull,
    "EMULATOR_STORE": ":memory:",
    "EMULATOR_FILES_DIR": ":temporary:",
    "EMULATOR_WARM_KERNELS": "0",
    "EMULATOR_LOG_LEVEL": "warning",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="write what worked to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--results"):
        config.pluginmanager.register(Results(path))


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
        found = [re.search("^The block ran.*```text\n(.*)```$", text, re.DOTALL) for text in told]
        return [match[1] for match in found if match]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the keys of whoever runs it, or reports what it does to anyone."""
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("proxy") / "log"
    foreign = ("EMULATOR_", "OPENAI_", "DEEPSEEK_", "PYTEST_")
    inherited = {name: v for name, v in os.environ.items() if not name.startswith(foreign)}
    command = [PROXY_PYTHON, "app.py", "--port", str(port), "--api-key", "upstream-key"]
    command += ["--base-url", shared_upstream.base_url]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=inherited | PROXY_SETTINGS, stdout=output, stderr=output
        )
    try:
        if not _answers(process, f"http://127.0.0.1:{port}/healthz"):
            pytest.exit(f"The proxy did not start ({' '.join(command)}):\n{log.read_text()}", 3)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)
        sys.stderr.write(log.read_text()[-4000:])


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the proxy answers; False if it ends before or takes too long."""
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


@pytest.fixture
def base_url(running_proxy: str, upstream: SharedUpstream) -> str:
    """What a client is given in place of OpenAI's address."""
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
