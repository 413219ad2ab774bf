"""Keys stay where they are, and what others say does not write our log."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest
import structlog

from emulator.core import logs
from sandbox.fences import probes
from tests.conftest import StartProxy
from tests.support.processes import wait_until
from tests.support.raw_http import read_page, send
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER
from tests.support.uploads import form

SECRET = "sk-the-operators-own-key"
CLIENT = "a-clients-own-key"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
QUOTED = {"error": {"message": f"Incorrect API key provided: {SECRET}.", "code": "invalid_api_key"}}
REPLIES = {
    "in the body of a 401": Reply(status=401, body=QUOTED),
    "in a body that is text": Reply(status=500, body=f"bad key {SECRET}"),
    "in a stream": Reply(frames=[f'data: {{"error": {{"message": "{SECRET}"}}}}\n\n'.encode()]),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[io.StringIO, Terminal], ids=["file", "terminal"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = request.param()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("debug")
    yield stream
    monkeypatch.undo()
    logs.configure("warning")


@pytest.mark.parametrize("tools", [[], [GET_WEATHER]], ids=["no tools", "tools"])
@pytest.mark.parametrize("where", REPLIES)
def test_a_key_that_the_upstream_quotes_reaches_neither_client_nor_log(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    log: io.StringIO,
    where: str,
    tools: list[Any],
) -> None:
    url = start_proxy(api_key=SECRET, client_keys=(CLIENT,), upstream_retries=0)
    upstream.reply(REPLIES[where])
    body = BODY | ({"tools": tools} if tools else {})
    headers = {"authorization": f"Bearer {CLIENT}"}
    _, told, answer = send(f"{url}/v1/chat/completions", body, headers)
    assert upstream.headers[-1]["authorization"] == f"Bearer {SECRET}"
    wait_until(lambda: "/v1/chat/completions" in log.getvalue())
    for text in (str(answer), str(told), log.getvalue()):
        assert SECRET not in text
        assert CLIENT not in text
    assert "[hidden]" in answer["error"]["message"]


HOSTILE = "/v1/%0aforged%20line%1b%5b31m%c2%85%e2%80%ae%0d"


def test_a_path_writes_no_line_of_its_own_into_the_log(
    start_proxy: StartProxy, log: io.StringIO
) -> None:
    url = start_proxy()
    assert send(f"{url}{HOSTILE}")[0] in (400, 404)
    wait_until(lambda: "forged" in log.getvalue())
    structlog.get_logger().info("said", name="a\x1b[2Jb\nc\u202ed")
    lines = log.getvalue().splitlines()
    assert not any(line.lstrip().startswith("forged") for line in lines)
    assert "\x1b[2J" not in log.getvalue() and "\u202e" not in log.getvalue()
    assert r"\x1b[2Jb\nc\u202ed" in log.getvalue().replace("\\\\", "\\")


def test_the_lines_of_a_reason_are_one_line_of_the_log(log: io.StringIO) -> None:
    """They had a backslash and an n between them, where a person reads them."""
    structlog.get_logger().warning("failed", reason="the model gave no answer\n  there is no JSON")
    assert "the model gave no answer | there is no JSON" in log.getvalue()


FORGED = "a\nforged line\x1b[2J\u202e\x85forged line"
TOOL = {"type": "function", "function": {"name": FORGED, "parameters": {"type": "object"}}}
SAID = {"role": "assistant", "content": FORGED}
NAMED: dict[str, tuple[str, Any]] = {
    "a model": ("/v1/chat/completions", {**BODY, "model": FORGED}),
    "a tool": ("/v1/chat/completions", {**BODY, "tools": [TOOL]}),
    "a tool's type": ("/v1/chat/completions", {**BODY, "tools": [{"type": FORGED}]}),
    "a choice": ("/v1/chat/completions", {**BODY, "tools": [GET_WEATHER], "tool_choice": FORGED}),
    "a message": ("/v1/chat/completions", {**BODY, "messages": [SAID]}),
    "a field": ("/v1/chat/completions", {**BODY, FORGED: 1}),
    "a response": ("/v1/responses", {"model": "m", "input": "x", "previous_response_id": FORGED}),
    "a conversation": ("/v1/conversations", {"metadata": {FORGED: FORGED}}),
    "a container": ("/v1/containers", {"name": FORGED}),
    "a file of a container": ("/v1/containers", {"name": "c", "file_ids": [FORGED]}),
    "a message's model": ("/v1/messages", {**BODY, "model": FORGED, "max_tokens": 9}),
}


@pytest.mark.parametrize("what", NAMED)
def test_a_name_writes_no_line_of_its_own_into_the_log(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: io.StringIO, what: str
) -> None:
    """Also where the upstream says it again, and where whole bodies are logged."""
    error = {"error": {"message": FORGED, "type": FORGED, "code": FORGED}}
    upstream.default = Reply(status=500, body=error)
    path, body = NAMED[what]
    url = start_proxy(log_bodies=True, upstream_retries=0)
    raw = json.dumps(body, ensure_ascii=False).encode()
    assert send(f"{url}{path}", raw, {"content-type": "application/json"})[0] in (
        200,
        400,
        404,
        500,
    )
    check_plain(log, path)


def test_a_files_name_writes_no_line_of_its_own_into_the_log(
    start_proxy: StartProxy, log: io.StringIO
) -> None:
    body, headers = form(
        {"purpose": FORGED.replace("\n", " ")}, (FORGED.replace("\n", "%0A"), b"x")
    )
    assert send(f"{start_proxy(log_bodies=True)}/v1/files", body, headers)[0] in (200, 400)
    check_plain(log, "/v1/files")


def test_a_models_call_writes_no_line_of_its_own_into_the_log(
    start_proxy: StartProxy, upstream: ScriptedUpstream, log: io.StringIO
) -> None:
    upstream.default = (
        f"```tool_code\n{FORGED!r}.get_weather()\nget_weather({FORGED!r}, {FORGED!r})\n```"
    )
    body = {**BODY, "tools": [GET_WEATHER], "tool_choice": "required"}
    assert send(f"{start_proxy(log_bodies=True)}/v1/chat/completions", body)[0] in (200, 502)
    check_plain(log, "/v1/chat/completions")


def check_plain(log: io.StringIO, path: str) -> None:
    wait_until(lambda: path in log.getvalue())  # the line of the request, which comes last
    logged = log.getvalue()
    assert not any(line.lstrip().startswith("forged") for line in logged.splitlines())
    assert not any(each in logged for each in ("\x1b[2J", "\u202e", "\x85"))


PROCESSES = "import glob, os\nfolders = ()"
"""Outside, other people's folders are large, and none of this test's business."""
SANDBOX = "import glob, os\nfolders = '/run', '/tmp', '/mnt/data', '/dev/shm'"
LOOK = """
wanted = [half + "-recognizable" for half in ("upstreams", "clients")]
found = []
for path in [*glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline"),
             *(os.path.join(folder, name) for top in folders
               for folder, _, names in os.walk(top) for name in names)]:
    try:
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            content = file.read(10**6)
    except OSError:
        continue
    found += [path for each in wanted if each.encode() in content]
"""
UPSTREAMS, CLIENTS = "upstreams-recognizable", "clients-recognizable"


def test_keys_are_neither_in_a_sandbox_nor_in_metrics_errors_or_logs(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are in the server's own environment here, as deployments have them."""
    if (why := probes.problem()) is not None:
        pytest.skip(str(why))
    monkeypatch.setenv("EMULATOR_API_KEY", UPSTREAMS)
    monkeypatch.setenv("EMULATOR_CLIENT_KEYS", CLIENTS)
    look = f"{PROCESSES}\n{LOOK}\nraise SystemExit(min(len(found), 99))"
    outside = [sys.executable, "-c", look, f"--key={UPSTREAMS}"]
    assert subprocess.run(outside, check=False).returncode >= 2, "it is there to be found"
    url = start_proxy(
        api_key=UPSTREAMS, client_keys=(CLIENTS,), log_bodies=True, upstream_retries=0
    )
    headers = {"authorization": f"Bearer {CLIENTS}"}
    said = []

    def ask(path: str, body: Any, headers: dict[str, str] = headers) -> Any:
        answered = send(f"{url}{path}", body, headers)
        said.append(str(answered))
        return answered[2]

    container = ask("/v1/containers", {"name": "c"})["id"]
    seen = ask(f"/v1/containers/{container}/execute", {"code": f"{SANDBOX}\n{LOOK}\nfound"})
    assert seen["result"] == "[]", seen
    upstream.default = Reply(status=401, body={"error": {"message": f"bad key {UPSTREAMS}"}})
    for path, body in (
        ("/v1/chat/completions", BODY),
        ("/v1/chat/completions", {**BODY, "tools": [GET_WEATHER], "stream": True}),
        ("/v1/responses", {"model": "m", "input": "Hi"}),
        ("/v1/messages", {**BODY, "max_tokens": 9}),
        ("/v1/chat/completions", b"{"),
        ("/v1/no-such-path", BODY),
    ):
        ask(path, body)
        ask(path, body, {"x-api-key": CLIENTS})
        ask(path, body, {"authorization": f"Bearer {CLIENTS}-mistyped"})
    said.append(read_page(f"{url}/metrics"))
    assert "emulator_requests_total" in said[-1]
    for text in (*said, log.getvalue()):
        assert UPSTREAMS not in text
        assert CLIENTS not in text
