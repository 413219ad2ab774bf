"""From nothing to a tool call: `python -m benchmarks.first_run`.

Clones what is committed here into an empty folder, with an empty home, runs `make run` there as a newcomer
does, sends the line that it prints, and tells the seconds (time that passed) until its first tool call.
Nearly all of them are the download: the package index and the line decide, so they are of one place and day.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PATIENCE = 1800.0
_END_SECONDS = 15.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        clone, home = Path(folder, "clone"), Path(folder, "home")
        home.mkdir()
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        told = ("EMULATOR_", "OPENAI_", "DEEPSEEK_", "VIRTUAL_ENV", "XDG_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(told)}
        environment |= {"HOME": str(home), "EMULATOR_PORT": str(port)}
        began = time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        with subprocess.Popen(
            ["make", "run"], cwd=clone, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        ) as proxy:  # fmt: skip
            late = threading.Timer(_PATIENCE, os.killpg, (proxy.pid, signal.SIGKILL))
            late.start()
            try:
                line = _line_to_try(proxy)
                serving = time.perf_counter() - began
                asked = subprocess.run(["sh", "-c", line], check=True, capture_output=True)
                [call] = json.loads(asked.stdout)["choices"][0]["message"]["tool_calls"]
                took = time.perf_counter() - began
            finally:
                late.cancel()
                os.killpg(proxy.pid, signal.SIGTERM)
                try:
                    proxy.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(proxy.pid, signal.SIGKILL)
    print(f"{call['function']['name']}({call['function']['arguments']})")
    print(f"served after {serving:.0f} s, called after {took:.0f} s")


def _line_to_try(proxy: subprocess.Popen[str]) -> str:
    """The command that is printed once it serves; what else is printed goes on to standard error."""
    assert proxy.stdout is not None
    for printed in proxy.stdout:
        sys.stderr.write(printed)
        if printed.startswith('{"event": "Try: '):
            return str(json.loads(printed)["event"]).removeprefix("Try: ")
    raise SystemExit("make run ended before it served")


if __name__ == "__main__":
    main()
