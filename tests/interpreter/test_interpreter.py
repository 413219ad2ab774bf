"""The code interpreter through HTTP: cells run by hand, in a chat, over turns, and only when approved.

Real kernels in the real sandbox, a scripted model, the official SDK. Where bubblewrap cannot be had
these tests skip, aloud.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from emulator.interpreter.libraries import LIBRARIES
from sandbox.fences import probes
from sandbox.kernel.stub import STUB
from tests.conftest import StartProxy
from tests.interpreter.containers import Container
from tests.support.processes import proxy as proxy_process
from tests.support.raw_http import connect, post_bytes, read_until, send
from tests.support.scripted import ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}},
        },
    },
}


@pytest.fixture
def container(proxy: str) -> Container:
    return Container(proxy)


# By hand


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('out')", {"status": "Success", "stdout": "out\n", "stderr": "", "result": None}),
        ("6 * 7", {"status": "Success", "stdout": "", "stderr": "", "result": "42"}),
        (
            "import sys\nprint('hm', file=sys.stderr)",
            {"status": "Success", "stdout": "", "stderr": "hm\n", "result": None},
        ),
        (
            "x = 1\n1 / 0",
            {
                "status": "Failure",
                "stdout": "",
                "stderr": "Traceback (most recent call last):\n  line 2, in <module>\n    1 / 0\n"
                "ZeroDivisionError: division by zero\n",
                "result": None,
            },
        ),
        (
            "def f(:",
            {
                "status": "Failure",
                "stdout": "",
                "stderr": "Traceback (most recent call last):\n  line 1, in <module>\n    def f(:\n"
                "SyntaxError: invalid syntax\n",
                "result": None,
            },
        ),
        (
            "import warnings\nwarnings.warn('careful')",
            {
                "status": "Success",
                "stdout": "",
                "stderr": "line 2: UserWarning: careful\n",
                "result": None,
            },
        ),
        ("", {"status": "Success", "stdout": "", "stderr": "", "result": None}),
    ],
)
def test_an_execution_is_reported_as_azure_reports_it(
    container: Container, code: str, expected: dict[str, Any]
) -> None:
    report = container.execute(code)
    assert {name: report[name] for name in expected} == expected
    assert isinstance(report["executionTimeInMilliseconds"], int)


def test_variables_imports_and_files_stay_from_one_execution_to_the_next(
    container: Container,
) -> None:
    container.execute("import math\nradius = 2\nopen('note.txt', 'w').write('kept')")
    report = container.execute("print(open('note.txt').read())\nround(math.pi * radius**2, 2)")
    assert (report["stdout"], report["result"]) == ("kept\n", "12.57")


def test_a_stateless_container_keeps_files_but_no_variables(proxy: str) -> None:
    container = Container(proxy, stateful=False)
    container.execute("x = 1\nopen('a.txt', 'w').write('kept')")
    assert container.execute("open('a.txt').read()")["result"] == "'kept'"
    assert "NameError" in container.execute("x")["stderr"]


def test_containers_share_neither_variables_nor_files(proxy: str) -> None:
    one, other = Container(proxy), Container(proxy)
    one.execute("secret = 1\nopen('secret.txt', 'w').write('1')")
    assert "NameError" in other.execute("secret")["stderr"]
    assert other.execute("import os\nos.listdir('/mnt/data')")["result"] == "[]"


def test_uploaded_files_are_in_the_sandbox_and_written_ones_can_be_fetched(
    container: Container,
) -> None:
    container.upload("data.csv", b"a,b\n1,2\n3,4\n")
    report = container.execute(
        "rows = open('/mnt/data/data.csv').read().split()\n"
        "import os\nos.makedirs('out', exist_ok=True)\n"
        "open('out/sum.txt', 'w').write(str(sum(int(row.split(',')[0]) for row in rows[1:])))"
    )
    [written] = report["files"]
    assert (written["path"], written["bytes"]) == ("/mnt/data/out/sum.txt", 1)
    assert container.content(written["id"]) == b"4"
    assert {path: file["source"] for path, file in container.files().items()} == {
        "/mnt/data/data.csv": "user",
        "/mnt/data/out/sum.txt": "assistant",
    }


def test_a_file_changed_by_code_or_by_a_user_is_the_same_on_both_sides(
    container: Container,
) -> None:
    file = container.upload("a.txt", b"one")
    container.execute("open('a.txt', 'a').write(' two')")
    assert container.content(file["id"]) == b"one two"
    container.upload("a.txt", b"three")
    assert container.execute("open('a.txt').read()")["result"] == "'three'"
    container.upload("b.txt", b"")
    container.execute("import os\nos.remove('a.txt')")
    assert list(container.files()) == ["/mnt/data/b.txt"]
    container.http.delete(
        f"/containers/{container.id}/files/{container.files()['/mnt/data/b.txt']['id']}"
    )
    assert container.execute("os.listdir()")["result"] == "[]"


def test_a_large_file_is_copied_whole_in_both_directions(container: Container) -> None:
    content = bytes(range(256)) * 20_000
    container.upload("large.bin", content)
    report = container.execute(
        "data = open('large.bin', 'rb').read()\nopen('back.bin', 'wb').write(data[::-1])\nlen(data)"
    )
    assert report["result"] == str(len(content))
    assert container.content(report["files"][0]["id"]) == content[::-1]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.symlink('/etc/hostname', 'link')",
        "import os\nos.mkfifo('pipe')",
        "open('.hidden', 'w').write('x')",
    ],
)
def test_links_pipes_and_hidden_files_are_not_fetched(container: Container, code: str) -> None:
    assert container.execute(code)["files"] == []
    assert container.files() == {}


def test_a_hostile_file_name_is_refused_with_a_note(container: Container) -> None:
    report = container.execute("open('a\\nb', 'w').write('x')\nopen('fine', 'w').write('y')")
    assert [file["path"] for file in report["files"]] == ["/mnt/data/fine"]
    assert len(report["notes"]) == 1


def test_a_plot_is_a_picture_and_a_file(container: Container) -> None:
    pytest.importorskip("matplotlib")
    report = container.execute(
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.plot([1, 4, 9])\nplt.show()"
    )
    [display] = report["outputs"]
    png = base64.b64decode(display["image/png"])
    assert png.startswith(b"\x89PNG\r\n")
    assert report["result"]["type"] == "image"
    [file] = report["files"]
    assert container.content(file["id"]) == png


def test_rich_results_come_in_all_their_shapes(container: Container) -> None:
    report = container.execute(
        "from IPython.display import HTML, JSON, SVG, display\n"
        "display(HTML('<b>bold</b>'))\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n"
        "display(JSON({'a': [1]}))"
    )
    kinds = [sorted(set(display) - {"text/plain"}) for display in report["outputs"]]
    assert kinds == [["text/html"], ["image/svg+xml"], ["application/json"]]


def test_output_beyond_the_limit_is_cut_with_a_mark_and_the_session_continues(
    container: Container,
) -> None:
    report = container.execute("kept = 1\nprint('x' * 10_000_000)")
    mark = "\n[... more text left out]\n"
    assert report["stdout"] == "x" * 256 * 1024 + mark
    assert container.execute("kept")["result"] == "1"


def test_a_cell_that_runs_too_long_is_interrupted_and_its_variables_stay(
    start_proxy: StartProxy,
) -> None:
    container = Container(start_proxy(interpreter_seconds=1))
    report = container.execute("kept = 1\nprint('began')\nwhile True: pass")
    assert report["status"] == "Failure"
    assert report["stdout"] == "began\n"
    assert "longer than 1 s" in report["stderr"]
    assert container.execute("kept")["result"] == "1"


@pytest.mark.parametrize(
    "code",
    ["import os\nos._exit(1)", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"],
)
def test_a_kernel_that_dies_is_replaced_and_the_files_are_still_there(
    container: Container, code: str
) -> None:
    container.upload("a.txt", b"kept")
    container.execute("x = 1\nopen('b.txt', 'w').write('kept too')")
    report = container.execute(code)
    assert report["status"] == "Failure"
    assert any("was restarted" in note for note in report["notes"])
    after = container.execute("[open('a.txt').read(), open('b.txt').read(), 'x' in globals()]")
    assert after["result"] == "['kept', 'kept too', False]"
    assert after["notes"] == []  # it has been said


@pytest.mark.parametrize(("stateful", "told"), [(True, [True, False]), (False, [False, False])])
def test_a_restarted_proxy_reports_lost_variables_once(
    start_app: Callable[..., tuple[str, Any]], stateful: bool, told: list[bool]
) -> None:
    """Only the index of files was left to say that there had been any."""
    container = Container(start_app()[0], stateful=stateful)
    assert container.execute("x = 1")["notes"] == []
    container.http.base_url = httpx2.URL(f"{start_app()[0]}/v1")
    found = [any("was restarted" in note for note in container.execute("1")["notes"]) for _ in told]
    assert found == told


def test_a_long_cell_streams_its_output_as_it_comes(container: Container) -> None:
    code = "import time\nfor i in range(3):\n    print('step', i)\n    time.sleep(0.4)"
    events, times = [], []
    with container.http.stream(
        "POST", f"/containers/{container.id}/execute", json={"code": code, "stream": True}
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                times.append(time.monotonic())
    *logs, last = events
    assert "".join(event["text"] for event in logs) == "step 0\nstep 1\nstep 2\n"
    assert len(logs) > 1
    assert last["execution"]["stdout"] == "step 0\nstep 1\nstep 2\n"


def test_a_client_that_disconnects_stops_its_cell(start_proxy: StartProxy) -> None:
    container = Container(start_proxy(ping_seconds=0.1))
    code = "import time\nprint('began', flush=True)\ntime.sleep(30)"
    with container.http.stream(
        "POST", f"/containers/{container.id}/execute", json={"code": code, "stream": True}
    ) as answer:
        next(answer.iter_raw())
    assert container.execute("'free'")["result"] == "'free'"


def test_a_client_that_disconnects_before_its_turn_stops_only_its_own_cell(
    start_proxy: StartProxy,
) -> None:
    """It interrupted what ran in the container, and its own cell ran when nobody waited for it."""
    container = Container(start_proxy(ping_seconds=0.1))
    path = f"/containers/{container.id}/execute"
    slow = (
        "import os, time\nprint('began', flush=True)\nfor _ in range(20): time.sleep(0.1)\n'done'"
    )
    late = "open('late.txt', 'w')"
    with container.http.stream("POST", path, json={"code": slow, "stream": True}) as running:
        events = running.iter_lines()
        while "began" not in next(events):
            pass
        with container.http.stream("POST", path, json={"code": late, "stream": True}) as waiting:
            next(waiting.iter_raw())
        # To its end: a client that left as soon as it saw the result would stop the first cell itself.
        assert any("'done'" in line for line in list(events))
    assert container.execute("os.listdir()")["result"] == "[]"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("cntr_0/execute", {"code": "1"}, 404, "container_not_found"),
        ("{id}/execute", {}, 400, None),
        ("{id}/execute", {"code": 1}, 400, None),
        ("{id}/execute", {"code": "1", "what": 1}, 400, None),
        ("{id}/executions/exec_0/approve", {}, 404, "execution_not_found"),
        ("{id}/executions/exec_0/decline", {"reason": 1}, 400, None),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(
    container: Container, path: str, body: Any, status: int, code: str | None
) -> None:
    answer = container.http.post(f"/containers/{path.format(id=container.id)}", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_deleting_a_container_ends_its_kernel(container: Container) -> None:
    container.execute("1")
    container.http.delete(f"/containers/{container.id}")
    answer = container.http.post(f"/containers/{container.id}/execute", json={"code": "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "container_not_found")


# Approval


def pending_execution(container: Container) -> dict[str, Any]:
    """The one execution that waits, as soon as it does."""
    for _ in range(600):
        waiting = container.http.get(f"/containers/{container.id}/executions").json()["data"]
        if waiting:
            [one] = waiting
            return dict(one)
        time.sleep(0.02)
    raise AssertionError("nothing waits for approval")


@pytest.mark.parametrize(
    ("verdict", "body", "expected"),
    [
        ("approve", {}, ("Success", "1\n", "")),
        ("approve", {"code": "print(2)"}, ("Success", "2\n", "")),
        (
            "decline",
            {"reason": "not today"},
            ("Failure", "", "The user declined to run this code: not today\n"),
        ),
    ],
)
def test_a_pending_execution_runs_only_as_approved(
    proxy: str, verdict: str, body: dict[str, str], expected: tuple[str, str, str]
) -> None:
    container = Container(proxy, approval="required")
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(container.execute("print(1)")))
    asking.start()
    one = pending_execution(container)
    assert (one["code"], one["status"]) == ("print(1)", "held")
    decided = httpx2.post(
        f"{proxy}/v1/containers/{container.id}/executions/{one['id']}/{verdict}", json=body
    )
    assert decided.status_code == 200
    asking.join(30)
    [report] = answers
    assert (report["status"], report["stdout"], report["stderr"]) == expected


@pytest.mark.parametrize("approved", [False, True])
def test_a_disconnected_clients_pending_cell_blocks_nothing(
    start_proxy: StartProxy, approved: bool
) -> None:
    """It kept waiting or running without a client, and nothing else could run in its container."""
    url = start_proxy(ping_seconds=0.1)
    container = Container(url, approval="required")
    body = {"code": "print('began', flush=True)\nimport time\ntime.sleep(30)", "stream": True}
    path = f"{url}/v1/containers/{container.id}/executions"
    with container.http.stream("POST", f"/containers/{container.id}/execute", json=body) as answer:
        events = answer.iter_raw()
        while b"held" not in next(events):
            pass
        [one] = httpx2.get(path).json()["data"]
        if approved:
            httpx2.post(f"{path}/{one['id']}/approve")
            while b"began" not in next(events):
                pass
    next_one: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: next_one.append(container.execute("'free'")))
    asking.start()
    while one["code"] != "'free'":
        one = next(iter(httpx2.get(path).json()["data"]), one)
        time.sleep(0.02)
    httpx2.post(f"{path}/{one['id']}/approve")
    asking.join(30)
    assert next_one[0]["result"] == "'free'"


# In a chat


def chat(client: openai.OpenAI, content: str, **options: Any) -> Any:
    messages = options.pop("messages", None) or [{"role": "user", "content": content}]
    tools = options.pop("tools", [INTERPRETER])
    return client.chat.completions.create(model="qwq", messages=messages, tools=tools, **options)


def test_a_chat_runs_the_models_code_and_answers_with_its_output(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        "I compute it.\n```tool_code\nprint(6 * 7)\n```\nIt is 41.", "The answer is 42.", chunks=5
    )
    message = chat(client, "6 times 7?").choices[0].message
    assert message.content == "I compute it.\n\nThe answer is 42."
    assert message.reasoning_content.strip() == "```python\nprint(6 * 7)\n```\n\n```text\n42\n\n```"
    messages_sent = upstream.requests[1]["messages"]
    assert messages_sent[-2] == {
        "role": "assistant",
        "content": "I compute it.\n\n```tool_code\nprint(6 * 7)\n```",
    }
    assert "```text\n42\n```" in messages_sent[-1]["content"]


def test_a_failing_cell_is_returned_to_the_model_a_limited_number_of_times(
    proxy: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.interpreter.interpreter_session._MAX_FIXES", 1)
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="k")
    upstream.reply(
        "```tool_code\n1 / 0\n```", "```tool_code\nundefined\n```", "I cannot.\n```python\nx\n```"
    )
    message = chat(client, "?").choices[0].message
    first, second = (request["messages"][-1]["content"] for request in upstream.requests[1:])
    assert "ZeroDivisionError: division by zero" in first
    assert "NameError" in second and "No more code can be run" in second
    assert message.content == "I cannot.\n```python\nx\n```"


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (r"print(' 10%\r 50%\r100%')", "100%"),
        (r"print('\x1b[31mred\x1b[0m')", "red"),
        (
            "print('a' * 9_000 + 'b' * 9_000)",
            f"{'a' * 6_000}\n[... 6000 characters left out ...]\n{'b' * 6_000}",
        ),
        ("open('a.txt', 'w').write('x') and None", "[files written: /mnt/data/a.txt (1 bytes)]"),
    ],
    ids=["progress", "ansi", "long", "a file"],
)
def test_the_model_reads_output_as_a_person_would(
    client: openai.OpenAI, upstream: ScriptedUpstream, cell: str, told: str
) -> None:
    upstream.reply(f"```tool_code\n{cell}\n```", "Done.")
    chat(client, "?")
    assert f"```text\n{told}\n```" in upstream.requests[-1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": "none", "tools": [WEATHER]},
        {"n": 2, "tools": openai.omit},
        {"functions": [WEATHER["function"]], "tools": openai.omit},
    ],
)
def test_the_setting_does_not_affect_requests_with_other_tools_or_formats(
    start_proxy: StartProxy, upstream: ScriptedUpstream, options: dict[str, Any]
) -> None:
    client = openai.OpenAI(base_url=f"{start_proxy(interpreter='on')}/v1", api_key="k")
    upstream.reply("Hello.")
    chat(client, "Hi", **options)
    assert "Python interpreter" not in json.dumps(upstream.requests[0]["messages"])


@pytest.mark.parametrize(
    ("model", "cells"), [("qwq", ["print(1)", "print(1)"]), ("smollm2-135m", ["print(1)"])]
)
def test_a_model_that_repeats_a_cell_is_asked_to_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, model: str, cells: list[str]
) -> None:
    upstream.reply(*(f"```tool_code\n{cell}\n```" for cell in cells), "One.")
    messages: Any = [{"role": "user", "content": "?"}]
    tools: Any = [INTERPRETER]
    answer = client.chat.completions.create(model=model, messages=messages, tools=tools)
    assert answer.choices[0].message.content == "One."
    assert "No more code can be run" in upstream.requests[-1]["messages"][-1]["content"]


def test_the_setting_gives_every_chat_an_interpreter(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=f"{start_proxy(interpreter='on')}/v1", api_key="k")
    upstream.reply("```tool_code\nprint(1 + 1)\n```", "Two.")
    assert chat(client, "1 + 1?", tools=openai.omit).choices[0].message.content == "Two."


def test_links_to_files_and_plots_end_the_answer_and_keep_the_session(
    client: openai.OpenAI, upstream: ScriptedUpstream, proxy: str
) -> None:
    upstream.reply("```tool_code\nx = 7\nopen('a.csv', 'w').write('1,2')\n```", "Done.")
    content = chat(client, "Write a file").choices[0].message.content
    words, link = content.split("\n\n")
    assert words == "Done."
    url = link.removeprefix("[a.csv](").removesuffix(")")
    assert url.startswith(f"{proxy}/v1/containers/cntr_")
    assert httpx2.get(url).content == b"1,2"
    history = [
        {"role": "user", "content": "Write a file"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "What is x?"},
    ]
    upstream.reply("```tool_code\nprint(x)\n```", "It is 7.")
    chat(client, "", messages=history)
    assert "```text\n7\n```" in upstream.requests[-1]["messages"][-1]["content"]


def streamed(chunks: Iterator[Any]) -> tuple[str, list[Any]]:
    content, calls = "", []
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            calls += choice.delta.tool_calls or []
    return content, calls


@pytest.mark.parametrize("stream", [False, True])
def test_a_cell_waits_in_its_kernel_for_the_result_of_a_clients_function(
    client: openai.OpenAI, upstream: ScriptedUpstream, stream: bool
) -> None:
    tools = [INTERPRETER, WEATHER]
    upstream.reply(
        "```tool_code\ncount = globals().get('count', 0) + 1\nw = get_weather(city='Oslo')\n"
        "print(count, w['temperature'] * 2)\n```"
    )
    history: list[Any] = [{"role": "user", "content": "Twice the temperature?"}]
    answer = chat(client, "", messages=history, tools=tools, stream=stream)
    if stream:
        _, calls = streamed(answer)
        key, name = calls[0].id, calls[0].function.name
        arguments = "".join(call.function.arguments for call in calls)
    else:
        [call] = answer.choices[0].message.tool_calls
        key, name, arguments = call.id, call.function.name, call.function.arguments
    assert (name, json.loads(arguments)) == ("get_weather", {"city": "Oslo"})
    function = {"name": name, "arguments": arguments}
    history += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": key, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": key, "content": '{"temperature": 4}'},
    ]
    upstream.reply("It is 8.")
    answer = chat(client, "", messages=history, tools=tools, stream=stream)
    content = streamed(answer)[0] if stream else answer.choices[0].message.content
    assert content == "It is 8."
    told = upstream.requests[-1]["messages"]
    assert "```text\n1 8\n```" in told[-1]["content"]  # run once, not twice
    assert "get_weather(city='Oslo')" in told[-2]["content"]


def test_a_call_that_its_schema_refuses_raises_in_the_cell(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nget_weather(town='Oslo')\n```", "I could not.")
    chat(client, "?", tools=[INTERPRETER, WEATHER])
    told = upstream.requests[-1]["messages"][-1]["content"]
    assert "TypeError" in told and "town" in told


@pytest.mark.parametrize(
    ("reply", "ran"),
    [
        ("```py\nprint(1)\n```", True),
        ("```\nx = 1\nprint(x)\n```", True),
        ("```\nHello\n```", False),
        ("```text\nprint(1)\n```", False),
        ("```bash\nls\n```", False),
        ('{"name": "python", "arguments": {"code": "print(1)"}}', True),
        (
            '<tool_call>{"name": "code_interpreter", "arguments": {"code": "print(1)"}}</tool_call>',
            True,
        ),
        # Anthropic's name of the tool, which a model behind Messages may know.
        ('{"name": "code_execution", "arguments": {"code": "print(1)"}}', True),
        ("Just words.", False),
    ],
)
def test_each_reply_is_run_or_stays_prose_as_expected(
    client: openai.OpenAI, upstream: ScriptedUpstream, reply: str, ran: bool
) -> None:
    upstream.reply(reply)
    if ran:
        upstream.reply("Done.")
    content = chat(client, "?").choices[0].message.content
    assert content == ("Done." if ran else reply)
    if ran:
        assert "```text\n1\n```" in upstream.requests[-1]["messages"][-1]["content"]


def test_a_named_container_is_used_and_a_missing_container_is_a_404(
    client: openai.OpenAI, upstream: ScriptedUpstream, container: Container
) -> None:
    container.execute("x = 5")
    upstream.reply("```tool_code\nprint(x)\n```", "5")
    chat(client, "x?", tools=[{"type": "code_interpreter", "container": container.id}])
    assert "```text\n5\n```" in upstream.requests[-1]["messages"][-1]["content"]
    with pytest.raises(openai.NotFoundError):
        chat(client, "x?", tools=[{"type": "code_interpreter", "container": "cntr_0"}])


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"container": {"type": "what"}}, "tools[0].container"),
        ({"container": 1}, "tools[0].container"),
        ({"container": {"type": "auto", "memory_limit": "3g"}}, "tools[0].container.memory_limit"),
        ({"container": {"type": "auto", "memory_limit": "64g"}}, "memory_limit"),
        (
            {
                "container": {
                    "type": "auto",
                    "network_policy": {"type": "allowlist", "allowed_domains": ["a.b"]},
                }
            },
            "tools[0].container.network_policy.type",
        ),
    ],
)
def test_an_invalid_container_is_refused(
    client: openai.OpenAI, tool: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, "?", tools=[{"type": "code_interpreter", **tool}])
    assert error.value.param == param


def test_one_client_cannot_occupy_all_kernels(start_proxy: StartProxy) -> None:
    """Beyond its share, the client's own longest idle kernel is ended."""
    proxy = start_proxy(client_keys=("ann", "bob", "eve"), max_kernels=4)
    containers = []
    for key in ("ann", "ann", "ann", "bob", "bob", "eve"):
        headers = {"authorization": f"Bearer {key}"}
        made = send(f"{proxy}/v1/containers", {"name": "c"}, headers)[2]["id"]
        execute = f"{proxy}/v1/containers/{made}/execute"
        status, _, answer = send(execute, {"code": "x = 1"}, headers)
        assert status == 200, answer
        containers.append((key, execute, headers))
    # The last of each client first: the others start new kernels.
    kept = [
        (key, send(path, {"code": "'x' in globals()"}, headers)[2]["result"])
        for key, path, headers in reversed(containers)
    ]
    assert kept == [
        *(("eve", "True"), ("bob", "True"), ("bob", "False")),
        *(("ann", "True"), ("ann", "True"), ("ann", "False")),
    ]


def test_a_client_without_a_kernel_ends_the_longest_idle_one_of_any_client(
    start_proxy: StartProxy,
) -> None:
    """A client that has a kernel does not end the only kernel of another client, however long it is idle."""
    keys = ("ann", "bob", "eve")
    proxy = start_proxy(client_keys=keys, max_kernels=2, interpreter_seconds=53)
    ran: dict[str, list[Any]] = {key: [] for key in keys}
    paths = {}
    for key in keys:
        made = send(f"{proxy}/v1/containers", {"name": "c"}, {"x-api-key": key})[2]["id"]
        paths[key] = f"{proxy}/v1/containers/{made}/execute"
    other = send(f"{proxy}/v1/containers", {"name": "c"}, {"x-api-key": "eve"})[2]["id"]
    for key, path in [*paths.items(), ("eve", f"{proxy}/v1/containers/{other}/execute")]:
        assert send(path, {"code": "x = 1"}, {"x-api-key": key})[0] == 200
    for key in ("bob", "eve", "ann"):
        report = send(paths[key], {"code": "'x' in globals()"}, {"x-api-key": key})[2]
        ran[key] = [report["result"], bool(report["notes"])]
    assert ran == {"ann": ["False", True], "bob": ["True", False], "eve": ["False", True]}


def test_the_prompt_lists_the_available_libraries_and_files(
    client: openai.OpenAI, upstream: ScriptedUpstream, container: Container
) -> None:
    container.upload("data.csv", b"1")
    upstream.reply("Hello.")
    chat(client, "?", tools=[{"type": "code_interpreter", "container": container.id}])
    system = upstream.requests[0]["messages"][0]["content"]
    assert "/mnt/data/data.csv" in system
    installed = {name for name in LIBRARIES if find_spec(name)}
    for name in installed:
        assert f"{name} {version(name)}" in system
    assert ("Only the standard library" in system) == (not installed)


def test_an_idle_kernel_is_ended_for_another_and_its_container_is_informed(
    start_proxy: StartProxy,
) -> None:
    """For its first minute no idle kernel was ended: with 16 of them, the next conversation got a 503 after
    its model turn."""
    proxy = start_proxy(max_kernels=1, interpreter_seconds=58)
    one, other = Container(proxy), Container(proxy)
    one.execute("x = 1\nopen('a.txt', 'w').write('kept')")
    assert other.execute("'other'")["result"] == "'other'"
    report = one.execute("['x' in globals(), open('a.txt').read()]")
    assert report["result"] == "[False, 'kept']"
    assert any("was restarted" in note for note in report["notes"])


def test_the_longest_idle_kernel_of_that_memory_limit_is_ended(start_proxy: StartProxy) -> None:
    proxy = start_proxy(max_kernels=2, interpreter_seconds=51)
    small, large = Container(proxy), Container(proxy, memory_limit="4g")
    first, second = Container(proxy, memory_limit="4g"), Container(proxy, memory_limit="4g")
    for container in (small, first, large):
        container.execute("x = 1")
    first.execute("x")
    second.execute("x = 1")
    for container, kept in ((small, "True"), (first, "True"), (second, "True"), (large, "False")):
        assert container.execute("'x' in globals()")["result"] == kept


def test_a_conversation_is_informed_that_its_kernel_was_ended(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    options = ["--max-kernels=2", f"--database={tmp_path / 'store'}"]
    with (
        proxy_process(upstream.base_url, tmp_path / "log", *options) as (_, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
    ):

        def turn(code: str, previous: str | None = None) -> tuple[str, str]:
            upstream.reply(f"```tool_code\n{code}\n```", "Done.")
            answer = client.responses.create(
                model="m", input="Run it.", tools=[tool], previous_response_id=previous
            )  # type: ignore[call-overload]
            assert answer.output_text == "Done."
            return answer.id, json.dumps(upstream.requests[-1]["messages"][-1])

        first, second, third = [turn(f"x = {n}")[0] for n in range(3)]
        assert "was restarted" not in turn("print('x is', x)", second)[1]
        assert "x is 2" in turn("print('x is', x)", third)[1]
        _, told = turn("print('x' in globals())", first)
        assert "False" in told and "was restarted" in told


def test_a_kernel_that_runs_or_waits_is_not_ended(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    proxy = start_proxy(max_kernels=1, interpreter_seconds=57)
    other = Container(proxy)

    def is_refused() -> bool:
        answer = other.http.post(f"/containers/{other.id}/execute", json={"code": "1"})
        refused = (answer.status_code, answer.json().get("error", {}).get("code"))
        assert refused == (503, "overloaded"), answer.text
        return answer.headers["retry-after"] == "1"

    runs = Container(proxy)
    stream = {"code": "print('runs', flush=True)\nwhile True: pass", "stream": True}
    with connect(proxy, post_bytes(f"/v1/containers/{runs.id}/execute", stream)) as connection:
        read_until(connection, b"runs")
        assert is_refused()
    runs.http.delete(f"/containers/{runs.id}")
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="k", max_retries=0) as client:
        upstream.reply("```tool_code\nprint(get_weather(city='Oslo'))\n```", "Done.")
        tools: list[Any] = [INTERPRETER, WEATHER]
        question: Any = {"role": "user", "content": "?"}
        message = chat(client, "", messages=[question], tools=tools).choices[0].message
        assert is_refused()
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "4"}
        chat(client, "", messages=[question, message, result], tools=tools)
    assert other.execute("1 + 1")["result"] == "2"
    asks = Container(proxy, approval="required")
    stream = {"code": "1", "stream": True}
    with connect(proxy, post_bytes(f"/v1/containers/{asks.id}/execute", stream)) as connection:
        read_until(connection, b"held")
        [cell] = asks.http.get(f"/containers/{asks.id}/executions").json()["data"]
        asks.http.post(f"/containers/{asks.id}/executions/{cell['id']}/approve", json={})
        read_until(connection, b'"status":"Success"')
    stream = {"code": "2", "stream": True}
    with connect(proxy, post_bytes(f"/v1/containers/{asks.id}/execute", stream)) as connection:
        read_until(connection, b"held")
        assert is_refused()


def test_a_container_that_no_answer_used_is_not_kept(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.", "```tool_code\n1\n```", "Done.")
    chat(client, "Hi")
    assert list(client.containers.list()) == []
    chat(client, "Run")
    assert len(list(client.containers.list())) == 1


def test_a_result_sent_twice_at_the_same_time_resumes_the_cell_once(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    tools = [INTERPRETER, WEATHER]
    upstream.reply(
        "```tool_code\nimport time\nget_weather(city='Oslo')\ntime.sleep(1)\n"
        "times = globals().get('times', 0) + 1\nprint('time', times)\n```"
    )
    question = {"role": "user", "content": "?"}
    message = chat(client, "", messages=[question], tools=tools).choices[0].message
    [call] = message.tool_calls
    history: list[Any] = [
        question, message, {"role": "tool", "tool_call_id": call.id, "content": "4"}
    ]  # fmt: skip
    upstream.reply("One.", "One.")
    with ThreadPoolExecutor(2) as clients:
        answers = clients.map(lambda _: chat(client, "", messages=history, tools=tools), range(2))
        assert [answer.choices[0].message.content for answer in answers] == ["One.", "One."]
    told = [json.dumps(request["messages"]) for request in upstream.requests[1:]]
    # A client that comes after the cell has ended gets its output, too.
    assert any("```text\\ntime 1\\n```" in one for one in told)
    assert not any("time 2" in one for one in told)


def test_code_cannot_fill_more_than_its_container_may_hold(start_proxy: StartProxy) -> None:
    proxy = start_proxy(container_bytes=2**20, interpreter_seconds=56)
    container = Container(proxy)
    container.upload("given.bin", b"x" * 400_000)
    report = container.execute("open('one.bin', 'wb').write(b'x' * 400_000)")
    assert report["status"] == "Success"
    report = container.execute(
        "with open('two.bin', 'wb', buffering=0) as file:\n"
        "    while file.write(b'x' * 100_000) == 100_000: pass\n"
        "    file.write(b'x')"
    )
    assert report["status"] == "Failure"
    assert "No space left on device" in report["stderr"]
    stored_bytes = sum(file["bytes"] for file in container.files().values())
    assert 800_000 <= stored_bytes <= 2**20
    answer = container.http.post(
        f"/containers/{container.id}/files", files={"file": ("more.bin", b"x" * 300_000)}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "container_full")


def test_a_flood_of_files_does_not_remove_earlier_files(container: Container) -> None:
    container.upload("z.txt", b"kept")
    container.execute("for n in range(1500): open(f'a{n}', 'w').close()")
    assert container.execute("open('z.txt').read()")["result"] == "'kept'"
    listed = container.http.get(f"/containers/{container.id}/files", params={"order": "asc"})
    assert listed.json()["data"][0]["path"] == "/mnt/data/z.txt"


def test_a_file_that_does_not_fit_into_the_sandbox_is_reported(start_proxy: StartProxy) -> None:
    container = Container(start_proxy(container_bytes=2**20, interpreter_seconds=56))
    container.execute("open('.hidden', 'wb').write(b'x' * 900_000)")  # not kept by the host
    container.upload("late.bin", b"x" * 500_000)
    report = container.execute("import os\nos.path.exists('late.bin')")
    assert report["result"] == "False"
    [note] = report["notes"]
    assert "late.bin" in note and "No space left on device" in note
    assert container.files()["/mnt/data/late.bin"]["bytes"] == 500_000


SLOW_FILES = f"""import time
stub = {STUB}
stub.files = lambda most: [[f"f{{n}}", 1, n] for n in range(1000)]
stub.read = lambda *_: time.sleep(1) or "YQ=="
print("patched")"""


def test_a_cell_that_delays_the_copying_of_its_files_hits_one_deadline(
    start_proxy: StartProxy,
) -> None:
    """A thousand files, a second each: all share one deadline, and the output is reported."""
    container = Container(start_proxy(interpreter_seconds=2))
    report = container.execute(SLOW_FILES)
    assert report["stdout"] == "patched\n"
    notes = " ".join(report["notes"])
    assert "were not kept" in notes and "was restarted" in notes
    assert container.execute("1 + 1")["result"] == "2"
