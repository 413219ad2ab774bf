"""Ctrl-C and SIGTERM while a command starts and works: it ends, says nothing, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import socket
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_line import environment, own_process
from tests.support.processes import NEW_PROCESS, Process, members, wait_until

COMMANDS = {
    "serve": [
        "--port",
        "0",
    ],
    "serve with workers": ["serve", "--port", "0", "--workers", "2"],
    "doctor": ["doctor", "--mcp", "silent=sleep 1000"],
    "check": ["check"],
    "fit": ["fit"],
}
TRIES = [(0.0, "SIGINT"), (0.5, "SIGINT"), (1.0, "SIGTERM"), (2.0, "SIGINT"), (2.5, "SIGTERM")]
"""Seconds, after which the signal is sent. How far a command gets in them depends on the machine."""


def is_ours(process: Process) -> bool:
    """Return True once the interpreter, which ignores SIGPIPE, runs the command and not yet its own start."""
    status = Path(f"/proc/{process.group}/status").read_text()
    ignored, caught = (
        int(status.split(f"Sig{name}:")[1].split()[0], 16) for name in ("Ign", "Cgt")
    )
    return bool(ignored >> signal.SIGPIPE - 1 & 1) and not caught >> signal.SIGINT - 1 & 1


@pytest.mark.parametrize(
    "command", ["serve", *(pytest.param(one, marks=pytest.mark.nightly) for one in [*COMMANDS][1:])]
)
def test_a_command_can_be_interrupted_at_any_moment_and_leaves_nothing(
    tmp_path: Path, command: str
) -> None:
    """In Python that pydantic's Rust code calls, an interrupt was printed and forgotten: 8 of 100."""
    folder = Path(tempfile.mkdtemp())  # the path of a socket in it may have 107 characters
    mute = socket.create_server(("127.0.0.1", 0))  # accepts connections, answers nothing
    url = f"http://127.0.0.1:{mute.getsockname()[1]}/v1"
    env = environment(tmp_path, {"TMPDIR": str(folder), "EMULATOR_BASE_URL": url})
    for seconds, name in TRIES:
        sent = signal.Signals[name]
        process = Process(
            [*NEW_PROCESS, *COMMANDS[command]],
            *(tmp_path / "printed", env, tmp_path),
        )
        process.wait_until(partial(is_ours, process))
        time.sleep(seconds)
        process.kill(sent)
        try:
            code = process.exit_code()
        finally:
            process.kill()
        wait_until(lambda: not members(process.group), "a process is left")  # noqa: B023
        assert code in (-sent, 128 + sent, *([0] if "serve" in command else [])), process.output
        assert not re.search("Traceback|ignored", process.output), process.output
        assert [*folder.iterdir()] == []
    folder.rmdir()


def test_no_slow_module_is_imported_before_the_command_can_be_interrupted(tmp_path: Path) -> None:
    """Until then Ctrl-C is a traceback: it was one for 60 ms, while `typing` and `pathlib` were imported."""
    program = (
        "import sys; loaded = {*sys.modules}; import app; print(*sorted({*sys.modules} - loaded))"
    )
    ended = own_process(program, home=tmp_path)
    assert ended.out.split() == ["__future__", "app", "emulator", "emulator.__main__"], ended.err
