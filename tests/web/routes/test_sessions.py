"""Azure's dynamic sessions over HTTP, as its specification and its documentation write them; real kernels.

The classes that people use are in tests/frameworks/test_azure_sessions.py.
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest

from sandbox.fences import probes
from tests.conftest import StartProxy
from tests.support.processes import wait_until
from tests.support.raw_http import fetch, send
from tests.support.uploads import Clock, form

OLD, NEW = "2024-02-02-preview", "2024-10-02-preview"
_PROBLEM = probes.problem()
needs_kernels = pytest.mark.skipif(
    _PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}"
)
TRACEBACK = (
    "Traceback (most recent call last):\n  line 1, in <module>\n    1 / 0\n"
    "ZeroDivisionError: division by zero\n"
)


class Session:
    """What one client sends about one session."""

    def __init__(
        self, url: str, version: str = NEW, identifier: str = "one", key: str = "k"
    ) -> None:
        self.url, self.key = f"{url}/v1/sessions", key
        self.query = {"api-version": version, "identifier": identifier}

    def address(self, path: str, /, **query: str) -> str:
        return f"{self.url}/{path}?{urlencode(self.query | query)}"

    def ask(self, method: str, path: str, body: Any = None, /, **query: str) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self.key}"}
        if isinstance(body, tuple):
            body, kind = form({}, body)
            headers |= kind
        status, _, raw = fetch(self.address(path, **query), body, headers, method)
        try:
            return status, json.loads(raw) if raw else None
        except ValueError:
            return status, raw

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """What the code comes to, by the API of the session's version."""
        body: Any = {
            "codeInputType": "inline",
            "executionType": "synchronous",
            "code": code,
            **fields,
        }
        if self.query["api-version"] == OLD:
            status, answer = self.ask("POST", "code/execute", {"properties": body})
            answer = answer.get("properties", answer)
        else:
            status, answer = self.ask("POST", "executions", body)
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found


# Executions


@needs_kernels
@pytest.mark.parametrize(
    ("code", "outputs", "result"),
    [
        ("print('out')", {"stdout": "out\n", "stderr": ""}, ""),
        ("6 * 7", {"stdout": "", "stderr": ""}, 42),
        ("1 < 2", {}, True),
        ("'text'", {}, "text"),
        ("{'a': (1, 2)}", {}, "{'a': (1, 2)}"),
        ("['long' * 9] * 3", {}, f"['{'long' * 9}',\n '{'long' * 9}',\n '{'long' * 9}']"),
        ("1 / 0", {"stdout": "", "stderr": TRACEBACK}, ""),
    ],
)
def test_code_is_run_and_answered_in_the_shape_of_either_version(
    proxy: str, code: str, outputs: dict[str, str], result: Any
) -> None:
    failed = code == "1 / 0"
    old = Session(proxy, OLD).run(code)
    assert old["status"] == ("Failure" if failed else "Success")
    assert isinstance(old["executionTimeInMilliseconds"], int)
    new = Session(proxy).run(code)
    shown = new.pop("result")
    assert shown.keys() == {"stdout", "stderr", "executionResult", "executionTimeInMilliseconds"}
    assert (old["result"], shown["executionResult"]) == (result, result)
    assert (
        {name: old[name] for name in outputs} == {name: shown[name] for name in outputs} == outputs
    )
    error = {"code": "code_failed", "message": "ZeroDivisionError: division by zero"}
    assert new.pop("id").startswith("exec_")
    assert new == {
        "identifier": "one",
        "executionType": "Synchronous",
        "status": "Failed" if failed else "Succeeded",
        **({"error": {"error": error}} if failed else {}),
    }


@needs_kernels
def test_a_picture_is_a_result_as_langchain_and_llamaindex_read_it(proxy: str) -> None:
    picture = base64.b64encode(b"no real PNG").decode()
    code = f"from IPython.display import display\ndisplay({{'image/png': {picture!r}}}, raw=True)"
    expected = {"type": "image", "format": "png", "base64_data": picture}
    assert Session(proxy, OLD).run(code)["result"] == expected


@needs_kernels
def test_variables_persist_in_a_session_and_are_those_of_its_client_alone(
    start_proxy: StartProxy,
) -> None:
    url = start_proxy(client_keys=("k", "other"))
    Session(url, OLD).run("secret = 1\nopen('secret.txt', 'w').write('1')")
    assert Session(url).run("secret")["result"]["executionResult"] == 1
    for stranger in (Session(url, key="other"), Session(url, identifier="two")):
        assert "NameError" in stranger.run("secret")["result"]["stderr"]
        assert stranger.ask("GET", "files") == (200, {"value": []})
        assert stranger.ask("GET", "files/secret.txt/content")[0] == 404
    assert Session(url, key="nobody's").ask("GET", "files")[0] == 401


@needs_kernels
def test_an_asynchronous_execution_is_polled_at_its_operation_location(
    start_proxy: StartProxy,
) -> None:
    url = start_proxy(client_keys=("k", "other"))
    session = Session(url)
    body = {"codeInputType": "Inline", "executionType": "Asynchronous", "code": "print(6)\n7"}
    headers = {"authorization": "Bearer k"}
    status, received, started = send(session.address("executions"), body, headers)
    assert (status, started["executionType"]) == (202, "Asynchronous")
    assert started["status"] in ("NotStarted", "Running") and "result" not in started
    assert received["operation-id"] == started["id"]

    def polled() -> Any:
        return send(received["operation-location"], None, headers)[2]

    wait_until(lambda: polled()["status"] not in ("NotStarted", "Running"))
    found = polled()
    assert found["result"].pop("executionTimeInMilliseconds") >= 0
    assert found == started | {
        "status": "Succeeded",
        "result": {"stdout": "6\n", "stderr": "", "executionResult": 7},
    }
    path = f"executions/{started['id']}"
    for stranger in (Session(url, key="other"), Session(url, identifier="two")):
        assert stranger.ask("GET", path)[0] == 404


@needs_kernels
def test_an_asynchronous_execution_that_fails_says_so(start_proxy: StartProxy) -> None:
    session = Session(start_proxy())
    body = {"executionType": "asynchronous", "code": base64.b64encode(b"oops").decode()}
    _, started = session.ask("POST", "executions", body | {"codeInputType": "inlineBase64"})
    path = f"executions/{started['id']}"
    wait_until(lambda: session.ask("GET", path)[1]["status"] == "Failed")
    failure = session.ask("GET", path)[1]
    assert failure["error"]["error"]["message"] == "NameError: name 'oops' is not defined"
    assert "NameError" in failure["result"]["stderr"]


# Files


@needs_kernels
def test_files_are_uploaded_and_downloaded_over_either_version(proxy: str) -> None:
    old, new = Session(proxy, OLD), Session(proxy)
    uploaded = old.ask("POST", "files/upload", ("/mnt/data/a.csv", b"1,2"))
    assert uploaded == old.ask("GET", "files")
    changed = uploaded[1]["value"][0]["properties"].pop("lastModifiedTime")
    assert uploaded == (200, {"value": [{"properties": {"filename": "a.csv", "size": 3}}]})
    status, file = new.ask("POST", "files", ("b.json", b"[1]"), path="/mnt/data/in")
    assert (status, file.pop("lastModifiedAt") >= changed) == (200, True)
    expected = {"type": "File", "contentType": "application/json", "sizeInBytes": 3}
    assert file == expected | {"name": "b.json"}
    code = "import os\nos.makedirs('out')\nopen('out/c', 'w').write(open('a.csv').read())"
    assert (
        new.run(f"{code}\nopen('/mnt/data/in/b.json').read()")["result"]["executionResult"] == "[1]"
    )
    listed = new.ask("GET", "files")[1]["value"]
    assert [one["name"] for one in listed] == ["a.csv", "in/b.json", "out/c"]
    assert [one["name"] for one in new.ask("GET", "files", path="in")[1]["value"]] == ["b.json"]
    assert new.ask("GET", "files/b.json", path="/mnt/data/in")[1]["sizeInBytes"] == 3
    for session, path in ((old, "files/content/out/c"), (new, "files/out/c/content")):
        assert session.ask("GET", path) == (200, b"1,2")
    assert new.ask("DELETE", "files/a.csv") == (204, None)
    assert new.ask("DELETE", "files/c", path="out") == (204, None)
    assert new.run("sorted(os.listdir())")["result"]["executionResult"] == "['in', 'out']"


# The life of a session


def test_a_session_expires_with_its_container_and_is_created_again(
    start_proxy: StartProxy, clock: Clock
) -> None:
    session = Session(start_proxy(now=clock))
    assert session.ask("DELETE", "session")[0] == 404
    session.ask("POST", "files", ("a", b"1"))
    for seconds, files in ((1199, 1), (1199, 1), (1200, 0)):
        clock.now += seconds
        assert len(session.ask("GET", "files")[1]["value"]) == files
    session.ask("POST", "files", ("a", b"1"))
    assert session.ask("DELETE", "session") == (204, None)
    assert session.ask("DELETE", "session")[0] == 404
    assert session.ask("GET", "files") == (200, {"value": []})


def test_first_requests_at_the_same_time_make_one_session(proxy: str) -> None:
    def upload(number: int) -> int:
        return Session(proxy).ask("POST", "files", (f"{number}", b"1"))[0]

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(upload, range(16))) == {200}
    assert len(Session(proxy).ask("GET", "files")[1]["value"]) == 16
    assert len(send(f"{proxy}/v1/containers?name=one")[2]["data"]) == 1


# Errors

INVALID, NAME, IDENTIFIER = "invalid_request_error", "invalid_file_name", "invalid_identifier"


@pytest.mark.parametrize(
    ("request_", "query", "status", "code", "target"),
    [
        (("POST", "executions", {"code": 1}), {}, 400, INVALID, "code"),
        (("POST", "executions", {"code": "#" * (2**20 + 1)}), {}, 400, INVALID, "code"),
        (
            ("POST", "executions", {"code": "", "codeInputType": "file"}),
            {},
            400,
            INVALID,
            "codeInputType",
        ),
        (
            ("POST", "executions", {"code": "", "executionType": "later"}),
            {},
            400,
            INVALID,
            "executionType",
        ),
        (
            ("POST", "executions", {"code": "1", "codeInputType": "inlineBase64"}),
            {},
            400,
            INVALID,
            "code",
        ),
        (("POST", "code/execute", {"code": "1"}), {}, 400, INVALID, "properties"),
        (("POST", "files", {}), {}, 400, INVALID, "file"),
        (("POST", "files", ("../etc/passwd", b"1")), {}, 400, NAME, "file"),
        (("POST", "files", ("/etc/passwd", b"1")), {}, 400, NAME, "file"),
        (("POST", "files", ("passwd", b"1")), {"path": "/etc"}, 400, NAME, "file"),
        (("POST", "files/upload", ("a", b"1" * 1001)), {}, 413, "file_too_large", "file"),
        (("GET", "files/none"), {}, 404, "file_not_found", "name"),
        (("GET", "files/content/none"), {}, 404, "file_not_found", "name"),
        (("DELETE", "files/none"), {}, 404, "file_not_found", "name"),
        (("GET", "executions/exec_none"), {}, 404, "execution_not_found", "executionId"),
        (("GET", "listSessions"), {}, 404, INVALID, None),
        (("PUT", "executions"), {}, 405, INVALID, None),
        (("GET", "files"), {"identifier": ""}, 400, IDENTIFIER, "identifier"),
        (("GET", "files"), {"identifier": "a:b"}, 400, IDENTIFIER, "identifier"),
        (("GET", "files"), {"identifier": "a" * 257}, 400, IDENTIFIER, "identifier"),
        (("GET", "files"), {"identifier": "another"}, 400, "too_many_containers", None),
        (
            ("DELETE", "session"),
            {"identifier": "another"},
            404,
            "container_not_found",
            "container_id",
        ),
    ],
)
def test_an_error_has_azures_shape_and_names_the_place(
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    request_: tuple[Any, ...],
    query: dict[str, str],
    status: int,
    code: str,
    target: str | None,
) -> None:
    monkeypatch.setattr("emulator.storage.containers._MAX_RUNNING", 1)
    session = Session(start_proxy(max_file_bytes=1000))
    session.ask("GET", "files")
    answered, answer = session.ask(*request_, **query)
    assert answered == status, answer
    error = answer["error"]
    assert (error["code"], error["target"]) == (code, target)
    assert error.keys() == {"code", "message", "target"} and error["message"]
