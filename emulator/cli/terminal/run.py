"""`tool-emulator run AGENT`: a proxy and a coding agent in a temporary home, which end together.

The agent stays in the terminal's process group: Ctrl-C is its own. The proxy has its own session.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

import urllib3

from emulator.cli.terminal.agents import AGENTS, Agent, AgentConnection
from emulator.settings.command_line import OptionParser, nearest
from emulator.settings.configuration import ConfigurationError, read
from emulator.settings.sources import CONFIG_VARIABLE, DEFAULT_FILE

_ROOT = Path(__file__).resolve().parents[3]
_START_SECONDS = 120.0
_STOP_SECONDS = 15.0
_AGENT_SECONDS = 5.0
"""How long an agent may take to end after a signal to this process."""
_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 0.1
_EXAMPLE = "Try: "
"""In the log, unless its level is higher, when the proxy has asked its server for the contexts' lengths."""
_LENGTH_SECONDS = 2.0
_LOAD_SECONDS = 300.0
"""A server may take minutes for a large model."""
_NOT_LOADED = "not-loaded"
"""What a list of models says of one that its server will load when it is asked."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_FOUND = 127
"""The exit code of a shell for an unknown program."""
_NOT_EXECUTABLE = 126
_INHERITED = frozenset(
    "PATH TERM COLORTERM NO_COLOR LANG LANGUAGE TZ SHELL USER LOGNAME TMPDIR VIRTUAL_ENV".split()
)
"""The user's variables that an agent gets, with ``LC_*``. Others may be keys, or lead to the user's files."""


_NO_MODEL = """No model server is configured. Name one that serves a model for agents:
  {program} run {agent} --base-url http://127.0.0.1:11434/v1    (Ollama, llama.cpp, vLLM, LM Studio ...)
  DEEPSEEK_API_KEY=... {program} run {agent}
--local-model starts the embedded model of 135 million parameters, which is too small for an agent."""
_SMALL_MODEL = (
    "The embedded model of 135 million parameters serves: it is too small for an agent, and slow. "
    "--base-url URL names another server."
)


class _CannotRun(Exception):
    """The message says why, and ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def main(program: str, arguments: Sequence[str]) -> int:
    """Run the command. Returns the agent's exit code; 127 if it is not installed, 1 or 2 without a start."""
    own = list(arguments)
    agent_arguments: list[str] = []
    if "--" in own:
        agent_arguments = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    options, rest = _parser(program).parse_known_args(own)
    if not _trusts_folder():
        os.environ[CONFIG_VARIABLE] = os.devnull
    try:
        name = _take_agent(program, rest)
        configuration = read(rest, listens=False, options=vars(options))
        if options.print_config:
            url = f"http://127.0.0.1:{configuration.settings.port or 8001}"
            connection = AgentConnection(
                url, options.model or "your-model", options.key or "your-key"
            )
            print(AGENTS[name].describe(name, connection))
            return 0
        command = shutil.which(name)
        if command is None:
            raise _CannotRun(
                f"{name} is not on PATH; install it: {AGENTS[name].install}", _NOT_FOUND
            )
        if not configuration.upstream_is_configured:
            raise _CannotRun(_NO_MODEL.format(program=program, agent=name), 2)
        if configuration.settings.local_model:
            print(_SMALL_MODEL, file=sys.stderr)
        for number in _SIGNALS:
            signal.signal(number, _exit)
        key = options.key or "any"
        with _home() as home, _proxy(rest, key, options.model) as (url, model, window):
            connection = AgentConnection(url, model, key, window)
            return _run_agent(AGENTS[name], command, agent_arguments, connection, home)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except _CannotRun as error:
        print(error, file=sys.stderr)
        return error.code
    except OSError as error:  # no executable, or a script whose interpreter is missing
        print(f"{error.filename or name}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE


def _trusts_folder() -> bool:
    """Ask before emulator.toml of a project, perhaps a cloned one, chooses the upstream or runs commands."""
    if os.environ.get(CONFIG_VARIABLE) or not Path(DEFAULT_FILE).exists():
        return True
    if sys.stdin.isatty():
        question = (
            f"{DEFAULT_FILE} in this folder may choose the model's server and start commands."
        )
        with suppress(EOFError):
            return input(f"{question} Read it? [y/N] ").strip().lower() in ("y", "yes")
        return False
    print(
        f"{DEFAULT_FILE} was not read; set {CONFIG_VARIABLE}={DEFAULT_FILE} to read it.",
        file=sys.stderr,
    )
    return False


def _take_agent(program: str, words: list[str]) -> str:
    """Remove the agent's name from ``words`` and return it. The other words are settings."""
    for n, word in enumerate(words):
        if word in AGENTS:
            after = words[n + 1 :]
            if after and not after[0].startswith("-"):
                example = f"{program} run {word} -- {shlex.join(after)}"
                raise _CannotRun(f"The agent's own arguments follow --: {example}", 2)
            words.remove(word)
            return word
    hint = nearest(words[0], list(AGENTS)) if words else ""
    raise _CannotRun(f"usage: {program} run {'|'.join(AGENTS)} [settings] [-- ARGS]{hint}", 2)


@contextmanager
def _home() -> Iterator[Path]:
    """A new folder, not in /tmp, where Codex's sandbox fails. At the end, kills the processes that use it."""
    parent = "/var/tmp"  # noqa: S108 - mkdtemp chooses the name
    with tempfile.TemporaryDirectory(
        prefix="tool-emulator-",
        dir=parent if os.access(parent, os.W_OK) else None,
        ignore_cleanup_errors=True,
    ) as folder:
        try:
            yield Path(folder)
        finally:
            end_processes_of(folder)


def end_processes_of(home: str) -> None:
    """Kill the processes whose HOME is ``home``: Cline leaves a daemon. Needs Linux's /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


@contextmanager
def _proxy(settings: Sequence[str], key: str, model: str | None) -> Iterator[tuple[str, str, int]]:
    """Serve on a free port; yields the URL, the model (by default the first), and its context in tokens.

    Raises `_CannotRun`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    # -P: the working folder is the user's project, whose modules must not replace the standard library's.
    command = [sys.executable, "-P", "-m", "emulator", "serve"]
    # The last value of a flag counts: the user may choose another store, but no other address.
    command += ["--database", ":memory:", *settings]
    command += ["--host", "127.0.0.1", "--port", port]
    with (
        tempfile.TemporaryFile() as log,  # without a name: the agent must not read the inspector's token
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            found = _wait_for_model(process, url, key, log, model)
            if inspector := re.search(rf"{url}/\?token=\w+", _read(log)):
                print(f"The inspector shows each request: {inspector[0]}", file=sys.stderr)
            yield url, *found
            if process.poll() is not None:
                log_end = _read(log)[-2000:].strip()
                print(f"The proxy ended while the agent ran:\n{log_end}", file=sys.stderr)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait_for_model(
    process: subprocess.Popen[bytes], url: str, key: str, log: IO[bytes], model: str | None
) -> tuple[str, int]:
    """Wait until the proxy lists models; return ``model``, or the first, and its context in tokens.

    A model that its server loads on demand is loaded first, since its context shows only then. "any" if the
    upstream has no list; 0 if it does not say, within a moment, how long the context is.
    """
    deadline = time.monotonic() + _START_SECONDS
    length_until = math.inf
    is_asked = False
    while time.monotonic() < deadline and process.poll() is None:
        has_asked = _EXAMPLE in _read(log)
        try:
            response = _request("GET", f"{url}/v1/models", key, _REQUEST_SECONDS)
        except urllib3.exceptions.HTTPError:
            time.sleep(_POLL_SECONDS)
            continue
        if response.status != 200:
            return _without_list(response, model), 0
        rows: list[dict[str, Any]] = response.json()["data"]
        names = (model, f"{model}:latest")
        row = next((row for row in rows if model is None or row["id"] in names), {})
        length = int(row.get("context_length") or 0)
        length_until = min(length_until, time.monotonic() + _LENGTH_SECONDS)
        is_loaded = row.get("state") != _NOT_LOADED
        if not (is_loaded or is_asked):
            _load(url, key, row["id"])
            is_asked = True
            deadline = time.monotonic() + _START_SECONDS
            length_until = time.monotonic() + _LENGTH_SECONDS
        elif not row or (is_loaded and (length or has_asked)) or time.monotonic() > length_until:
            return model or str(row.get("id", "any")), length
        time.sleep(_POLL_SECONDS)
    raise _CannotRun(f"The proxy did not start:\n{_read(log)[-2000:].strip()}")


def _load(url: str, key: str, model: str) -> None:
    """Ask the model for one token. A failure is the agent's to report."""
    print(f"The server loads {model}: only then it says how long the context is.", file=sys.stderr)
    question = [{"role": "user", "content": "Hi"}]
    body = json.dumps({"model": model, "messages": question, "max_tokens": 1}).encode()
    with suppress(urllib3.exceptions.HTTPError):
        _request("POST", f"{url}/v1/chat/completions", key, _LOAD_SECONDS, body)


def _request(
    method: str, url: str, key: str, seconds: float, body: bytes | None = None
) -> urllib3.BaseHTTPResponse:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    return urllib3.request(method, url, headers=headers, body=body, timeout=seconds, retries=False)


def _without_list(response: urllib3.BaseHTTPResponse, model: str | None) -> str:
    """The model's name if the upstream has no list. Raises `_CannotRun` for other failures."""
    message = response.json()["error"]["message"]
    if response.status in (401, 403):
        raise _CannotRun(f"{message} (--key KEY)")
    if response.status >= 500:
        raise _CannotRun(message)
    return model or "any"


def _read(log: IO[bytes]) -> str:
    """The text of ``log`` so far. The proxy shares the file's position, which must not move."""
    return os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")


def _run_agent(
    agent: Agent, command: str, arguments: Sequence[str], connection: AgentConnection, home: Path
) -> int:
    """Configure the agent in ``home``, run it in the working folder and return its exit code."""
    for path, text in agent.files_for(connection).items():
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    env = {n: v for n, v in os.environ.items() if n in _INHERITED or n.startswith("LC_")}
    env["HOME"] = str(home)
    env |= agent.variables_for(connection, os.environ)
    if agent.setup:
        _set_up([command, *(connection.fill(word) for word in agent.setup)], env)
    words = [connection.fill(word) for word in agent.arguments]
    # The terminal sends Ctrl-C to the agent too, which decides. (A handler does not outlast exec.)
    signal.signal(signal.SIGINT, lambda *_: None)
    process = subprocess.Popen([command, *words, *arguments], env=env)

    def end(received: int, _: FrameType | None) -> None:
        process.send_signal(received)
        kill = threading.Timer(_AGENT_SECONDS, process.kill)
        kill.daemon = True
        kill.start()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _set_up(command: Sequence[str], env: Mapping[str, str]) -> None:
    run = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if run.returncode:
        raise _CannotRun(f"{command[0]} cannot be configured:\n{run.stdout[-2000:].strip()}")


def _exit(number: int, _: FrameType | None) -> NoReturn:
    """A signal before the agent runs: leave, and so end the proxy and remove the home, undisturbed."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = OptionParser(
        prog=f"{program} run",
        usage=f"{program} run {{{','.join(AGENTS)}}} [settings] [-- ARGS]",
        description="Start a coding agent with a proxy of its own, and a configuration in a temporary home.",
        epilog="Settings may follow; one names the model's server, as --base-url URL does.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", help="the model (default: the first that the upstream lists)")
    add("--key", help="a client key of the proxy")
    add("--print-config", action="store_true", help="show what to write into the agent's own files")
    return parser
