"""From the start's words to Ctrl-C, with the process that people start."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import sys
import urllib.request
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.command_line import command_line, environment, served
from tests.support.processes import ROOT, Process
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream

CALL = '```tool_code\nget_weather(location="London")\n```'


def messages(proxy: Process) -> str:
    """What a log collector reads: every line is a JSON object."""
    return "".join(json.loads(line)["event"] + "\n" for line in proxy.output.splitlines())


def try_it(printed: str, key: str) -> Any:
    """What the printed curl line gets, `$CLIENT_KEY` being `key`."""
    curl = printed.split("Try: ")[1].splitlines()[0]
    words = shlex.split(curl.replace("$CLIENT_KEY", key))
    assert words[0] == "curl"
    headers = [words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H"]
    body = words[words.index("-d") + 1].encode()
    request = urllib.request.Request(words[1], data=body, headers=dict(headers))
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_the_proxy_serves_once_it_says_so_its_example_works_and_ctrl_c_ends_it(
    tmp_path: Path,
) -> None:
    """Ctrl-C used to wait for kernels that started, and then came SIGKILL and "Perhaps out of memory?".

    Nothing is open but a connection that asks nothing: what may go on for an hour is not waited for.
    """
    with (
        ScriptedUpstream(default=CALL) as upstream,
        served(
            *("--port", "0", "--host", "0.0.0.0", "--client-keys", "first,second"),
            *("--base-url", upstream.base_url, "--drain-seconds", "3600"),
            home=tmp_path,
        ) as proxy,
    ):
        proxy.wait_for("}}]}'")
        printed = messages(proxy)
        address = re.search(
            r"Serving http://127\.0\.0\.1:(\d+)/v1 \(listening on 0\.0\.0\.0\)", printed
        )
        assert address is not None, printed
        assert f"in front of {upstream.base_url} (--base-url)." in printed
        assert "Stored: responses for 30 days and programs for 1 day in ~/.local/state/" in printed
        with socket.create_connection(("127.0.0.1", int(address[1]))):
            answer = try_it(printed, "second")
            call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            assert call == {"name": "get_weather", "arguments": '{"location":"London"}'}
            assert "first" not in printed
            assert (tmp_path / ".local/state/tool-use-api-emulator/emulator.sqlite").exists()
            proxy.wait_for('"event": "request"')  # the answer has left before its request has ended
            proxy.interrupt()
            assert proxy.exit_code() == 0
        assert not re.search("SIGKILL|memory|Traceback|Ending", messages(proxy)), proxy.output


def stream(port: int) -> socket.socket:
    """A connection whose answer has begun."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    body = json.dumps(
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall((head + body).encode())
    read = b""
    while b"Hello" not in read:
        data = connection.recv(65536)
        assert data, read
        read += data
    return connection


def rest(connection: socket.socket) -> bytes:
    read = b""
    while data := connection.recv(65536):
        read += data
    return read


def test_the_first_ctrl_c_waits_for_an_open_stream_and_the_second_does_not(tmp_path: Path) -> None:
    """One answer ends while the proxy waits for it, another never would: only the second Ctrl-C ends that."""
    slow = Reply(chunks=["Hello", *["."] * 20, " there"], delay=0.1)
    silent = Reply(chunks=["Hello", "x"], fault="silent", after=1)
    with (
        ScriptedUpstream() as upstream,
        served(
            *("--port", "0", "--base-url", upstream.base_url, "--drain-seconds", "3600"),
            home=tmp_path,
        ) as proxy,
    ):
        upstream.reply(silent, slow)
        proxy.wait_for("}}]}'")
        printed = messages(proxy)
        address = re.search(r"Serving http://127\.0\.0\.1:(\d+)/v1 in front", printed)
        assert address is not None, printed
        pages = f"http://127.0.0.1:{address[1]}/"
        token = re.search(
            rf"The inspector shows each request: ({pages}\?token=\w{{48}})\n", printed
        )
        assert token is not None, printed
        assert [fetch(pages)[0], fetch(token[1])[0]] == [401, 303]
        with stream(int(address[1])), stream(int(address[1])) as ending:
            proxy.interrupt()
            proxy.wait_for("open request(s) have 3600 s to finish; press Ctrl-C again to stop")
            assert b"there" in rest(ending)
            proxy.interrupt()
            assert proxy.exit_code() == 0
        assert not re.search("SIGKILL|memory|Traceback", messages(proxy)), proxy.output


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("database", "reason"),
    [
        ([], "nothing is stored: the state folder cannot be used"),
        (["--database", "none"], "nothing is remembered: programs end with their turn"),
    ],
    ids=["an unusable state folder", "none"],
)
def test_a_start_that_stores_nothing_says_so_and_why_once(
    tmp_path: Path, workers: str, database: list[str], reason: str
) -> None:
    """The state folder is unusable in a container whose file system is read-only."""
    (tmp_path / ".local").write_text("no folder")
    with (
        ScriptedUpstream() as upstream,
        served(
            *("--port", "0", "--base-url", upstream.base_url, "--workers", workers, *database),
            home=tmp_path,
        ) as proxy,
    ):
        proxy.wait_for("}}]}'")
        printed = messages(proxy)
    assert printed.count(reason) == 1
    told = [line for line in printed.splitlines() if re.match("Stored|Nothing", line)]
    assert told == ["Nothing is stored: all data is lost when the proxy stops."]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--database", "/proc/x/y"], "the setting database: /proc/x/y: "),
        (
            ["--database", "postgresql://me:secret@127.0.0.1:9/x"],
            "the setting database: PostgreSQL",
        ),
        (["--database", "d.sqlite", "--files-dir", "/proc/x"], "files_dir cannot be used: "),
    ],
)
def test_a_database_or_folder_that_was_named_and_cannot_be_used_stops_the_start(
    tmp_path: Path, upstream: ScriptedUpstream, arguments: list[str], reason: str
) -> None:
    arguments = ["--port", "0", "--base-url", upstream.base_url, *arguments]
    with served(*arguments, home=tmp_path) as proxy:
        assert proxy.exit_code() == 1
        printed = proxy.output
    assert reason in printed
    assert "secret" not in printed
    assert "Traceback" not in printed


def test_at_a_terminal_the_line_to_try_can_be_copied(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.default = CALL
    command = [str(ROOT / "app.py"), "--port", "0", "--base-url", upstream.base_url]
    env = environment(tmp_path)
    with closing(pexpect.spawn(sys.executable, command, env=env, encoding="utf-8")) as terminal:
        terminal.expect(r"(Serving http[^{]*)Try:\r\n\r\n(curl .*\}\]\}')\r\n", timeout=60)
        assert [line.split()[0] for line in terminal.match[1].splitlines()] == [
            *("Serving", "The", "Stored:")
        ]
        curl = f"Try: {terminal.match[2]}".replace("\r\n", " ")
        assert try_it(curl, "")["choices"][0]["finish_reason"] == "tool_calls"


def test_a_line_of_a_library_is_json_too(tmp_path: Path) -> None:
    """gunicorn's words about a killed worker were the last plain lines."""
    with (
        ScriptedUpstream() as upstream,
        served("--port", "0", "--base-url", upstream.base_url, home=tmp_path) as proxy,
    ):
        proxy.wait_for("}}]}'")
        [worker] = Path(f"/proc/{proxy.group}/task/{proxy.group}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        proxy.wait_for("SIGKILL")
        assert "Perhaps out of memory?" in messages(proxy)


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    """gunicorn tried again for five seconds, with two lines each time."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = command_line("--port", str(port), home=tmp_path)
    line = f"port {port} of 127.0.0.1 is in use: stop that program, or choose another --port\n"
    assert (ended.code, ended.out, ended.err) == (1, "", line)


def test_kernels_that_do_not_work_are_reported_at_the_start(tmp_path: Path) -> None:
    """Only if they are asked for there. The proxy serves what needs no kernel."""
    with (
        ScriptedUpstream() as upstream,
        served(
            *("--port", "0", "--base-url", upstream.base_url, "--interpreter", "on"),
            *("--sandbox", "gateway", "--gateway-url", "http://127.0.0.1:9"),
            home=tmp_path,
        ) as proxy,
    ):
        proxy.wait_for("code interpreter off")
        assert re.search("gateway|websockets", proxy.output)
        proxy.wait_for("}}]}'")
        assert "Traceback" not in proxy.output


@pytest.mark.parametrize("interpreter", ["on", "off"])
@pytest.mark.parametrize(
    ("sandbox", "package", "reason"),
    [
        (["docker"], "docker", "the Docker engine failed"),
        (
            ["gateway", "--gateway-url", "http://127.0.0.1:9"],
            "websockets",
            "the URL does not answer",
        ),
    ],
    ids=["docker", "gateway"],
)
def test_the_start_says_that_the_chosen_sandbox_is_not_there(
    tmp_path: Path, sandbox: list[str], package: str, reason: str, interpreter: str
) -> None:
    """Without --interpreter on, only a first cell said so. `make test` does not install docker."""
    reason = reason if find_spec(package) else "is not installed"
    with served(
        *("--port", "0", "--base-url", "http://127.0.0.1:9/v1", "--interpreter", interpreter),
        *("--sandbox", *sandbox),
        home=tmp_path,
        variables={"DOCKER_HOST": f"unix://{tmp_path}/no-engine.sock"},
    ) as proxy:
        proxy.wait_for("code interpreter off")
        proxy.wait_for("Try:")
        events = [json.loads(line) for line in proxy.output.splitlines()]
    [warning] = [event for event in events if event["event"] == "code interpreter off"]
    assert warning["sandbox"] == sandbox[0]
    assert reason in warning["reason"] and warning["fix"]
