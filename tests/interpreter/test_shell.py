"""Shell commands in a container's kernel, under its fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emulator.interpreter.shell import run_command
from sandbox.fences import probes

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")


def test_commands_run_in_the_container_under_its_fences(
    start_app: Callable[..., tuple[str, Any]],
) -> None:
    _, services = start_app()
    container = services.interpreter.containers.create("")

    def run(command: str, most: int = 1000) -> tuple[str, str, dict[str, Any]]:
        shown = run_command(services.interpreter, container, command, 2.0).json_output(most)
        return shown["stdout"], shown["stderr"], shown["outcome"]

    done = {"type": "exit", "exit_code": 0}
    assert run("pwd; echo oops >&2; exit 3") == (
        "/mnt/data\n",
        "oops\n",
        {"type": "exit", "exit_code": 3},
    )
    assert run("echo 'a b' > f.txt && cat f.txt") == ("a b\n", "", done)
    [file] = services.interpreter.containers.files(container.id)
    assert file.path == "/mnt/data/f.txt"
    assert run("echo begun; sleep 60 & sleep 60") == ("begun\n", "", {"type": "timeout"})
    assert run("pgrep -c sleep || true")[0] in ("0\n", "")
    assert run("yes | head -c 1000000", 100)[0].count("y") == 50
    stdout, _, outcome = run("curl -s -m 1 http://1.1.1.1; cat /etc/shadow")
    assert (stdout, outcome["exit_code"]) == ("", 1)
