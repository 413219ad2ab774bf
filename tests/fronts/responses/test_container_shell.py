"""The tool ``shell`` with a container as its environment: the proxy runs the commands, fenced as cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sandbox.fences import probes
from tests.support.responses_client import ask, ask_stream, check_events, fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import strings

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

Json = dict[str, Any]
SHELL: Json = {"type": "shell", "environment": {"type": "container_auto"}}
INTERPRETER: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
DONE = {"type": "exit", "exit_code": 0}


def body(*tools: Json, **options: Any) -> Json:
    return {"model": "qwq", "input": "?", "tools": [*(tools or [SHELL])], **options}


def call(*commands: str, **options: int) -> str:
    more = "".join(f", {name}={value}" for name, value in options.items())
    return f"```tool_code\nshell(commands={[*commands]!r}{more})\n```"


def items(response: Json, kind: str) -> list[Json]:
    return [item for item in response["output"] if item["type"] == kind]


def test_commands_run_in_a_container_that_the_files_api_shows(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    for _ in range(2):
        upstream.reply(call("pwd; echo 'a b' > f.txt", "cat f.txt | awk '{print $2}'"))
        upstream.reply("Done.")
    streamed = check_events(ask_stream(proxy, body()))
    whole = ask(proxy, body())
    for response in (streamed, whole):
        ran, output, words = response["output"]
        assert ran["type"] == "shell_call" and ran["id"].startswith("sh_")
        assert ran["status"] == "completed" and ran["call_id"] == output["call_id"]
        assert ran["action"]["commands"][0].startswith("pwd")
        assert output["output"] == [
            {"stdout": "/mnt/data\n", "stderr": "", "outcome": DONE},
            {"stdout": "b\n", "stderr": "", "outcome": DONE},
        ]
        assert words["content"][0]["text"] == "Done."
        assert ran["environment"]["type"] == "container_reference"
        container = ran["environment"]["container_id"]
        status, data = fetch(f"{proxy}/v1/containers/{container}/files")
        assert status == 200 and [f["path"] for f in json.loads(data)["data"]] == [
            "/mnt/data/f.txt"
        ]


CASES: dict[str, tuple[str, Json]] = {
    "a failure": ("echo oops >&2; exit 3", {"type": "exit", "exit_code": 3}),
    "a timeout": ("echo begun; sleep 60 & sleep 60", {"type": "timeout"}),
    "no network": ("echo > /dev/tcp/1.1.1.1/80", {"type": "exit", "exit_code": 1}),
    "no file of the host": ("cat /etc/shadow", {"type": "exit", "exit_code": 1}),
    "no root": ("su -c id || sudo id || mount -t tmpfs x /mnt", {"type": "exit", "exit_code": 1}),
}


@pytest.mark.parametrize(("command", "outcome"), CASES.values(), ids=CASES)
def test_a_failed_or_slow_command_reports_its_outcome(
    proxy: str, upstream: ScriptedUpstream, command: str, outcome: Json
) -> None:
    upstream.reply(call(command, timeout_ms=3000))
    upstream.reply("It failed.")
    [output] = items(check_events(ask_stream(proxy, body())), "shell_call_output")
    assert output["output"][0]["outcome"]["type"] == outcome["type"]
    assert output["output"][0]["outcome"].get("exit_code") != 0
    assert (
        f'"outcome":{{"type":"{outcome["type"]}"'
        in upstream.requests[-1]["messages"][-1]["content"]
    )


def test_a_repeated_request_runs_its_commands_once(proxy: str, upstream: ScriptedUpstream) -> None:
    """Three times at the same time, and later: in a program that goes on with the client's result."""
    status, data = fetch(f"{proxy}/v1/containers", {"name": "c"})
    container = json.loads(data)["id"]
    assert status == 200
    reference = {"type": "container_reference", "container_id": container}
    get = {"type": "function", "name": "get", "parameters": strings("x")}
    asked = body({"type": "shell", "environment": reference}, get)
    upstream.reply(
        "```tool_code\na = get(x='1')\n"
        "p = shell(commands=[f'echo {a} >> log; sleep 1; cat log'])\nget(x=p[0]['stdout'])\n```"
    )
    [first] = items(answer := ask(proxy, asked), "function_call")
    output = {"type": "function_call_output", "call_id": first["call_id"], "output": "paid"}
    request = {**asked, "previous_response_id": answer["id"], "input": [output]}
    with ThreadPoolExecutor(3) as pool:
        answers = [*pool.map(lambda _: ask(proxy, request), range(3)), ask(proxy, request)]
    for answer in answers:
        [called] = items(answer, "function_call")
        assert json.loads(called["arguments"]) == {"x": "paid\n"}


def test_the_conversation_keeps_its_container_and_the_start_of_its_prompt(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply(call("echo 1 > n", timeout_ms=20000))
    upstream.reply("Written.")
    upstream.reply(call("cat n"))
    upstream.reply("It is 1.")
    upstream.reply("```tool_code\nprint(open('n').read())\n```")
    upstream.reply("Still 1.")
    first = ask(proxy, body())
    history = [{"role": "user", "content": "?"}, *first["output"], {"role": "user", "content": "!"}]
    second = ask(proxy, {**body(), "input": history})
    assert items(second, "shell_call_output")[0]["output"][0]["stdout"] == "1\n"
    before, after = (one["messages"] for one in upstream.requests[1:3])
    assert after[: len(before)] == before
    third = ask(
        proxy,
        body(
            INTERPRETER,
            previous_response_id=second["id"],
            include=["code_interpreter_call.outputs"],
        ),
    )
    [cell] = items(third, "code_interpreter_call")
    assert cell["outputs"][0]["logs"] == "1\n\n"


def test_a_cell_runs_shell_commands_in_another_container(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nx = 4\nprint(shell(commands=['echo 5'])[0]['stdout'], x)\n```")
    upstream.reply("5 and 4.")
    response = ask(proxy, body(SHELL, INTERPRETER, include=["code_interpreter_call.outputs"]))
    [cell] = items(response, "code_interpreter_call")
    [ran] = items(response, "shell_call")
    assert cell["container_id"] != ran["environment"]["container_id"]
    assert cell["outputs"][0]["logs"] == "5\n 4\n"


@pytest.mark.parametrize("tools", [[SHELL], [SHELL, INTERPRETER]], ids=["program", "cell"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_program_that_the_model_repeats_runs_each_time(
    proxy: str, upstream: ScriptedUpstream, tools: list[Json], stream: bool
) -> None:
    """The fourth time was a 500: a run waited at a call that had no record."""
    code = "import re\nr = shell(commands=['true'])\nprint(re.sub('x', 'y', str(r)))"
    upstream.reply(*[f"```tool_code\n{code}\n```"] * 4, *["Done."] * 4)
    asked = body(*tools)
    response = check_events(ask_stream(proxy, asked)) if stream else ask(proxy, asked)
    assert response["status"] == "completed"
    assert response["output"][-1]["content"][0]["text"] == "Done."
    ran = items(response, "shell_call")
    assert [call["status"] for call in ran] == ["completed"] * len(ran) and len(ran) > 1


@pytest.mark.parametrize(
    ("environment", "status"),
    [
        ({"type": "container_reference", "container_id": "cntr_0"}, 404),
        ({"type": "container_reference"}, 400),
        ({"type": "elsewhere"}, 400),
        ({"type": "container_auto", "memory_limit": "3g"}, 400),
    ],
)
def test_a_wrong_environment_is_refused_with_its_place(
    proxy: str, upstream: ScriptedUpstream, environment: Json, status: int
) -> None:
    shell = {"type": "shell", "environment": environment}
    answered, data = fetch(f"{proxy}/v1/responses", body(shell))
    assert answered == status, data
    if status == 400:
        assert json.loads(data)["error"]["param"].startswith("tools[0].environment")


def test_only_its_creator_can_name_a_container(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    proxy, services = start_app()
    _, data = fetch(f"{proxy}/v1/containers", {"name": "mine"})
    own = {"type": "container_reference", "container_id": json.loads(data)["id"]}
    upstream.reply(call("echo hi"))
    upstream.reply("hi")
    [ran] = items(ask(proxy, body({"type": "shell", "environment": own})), "shell_call")
    assert ran["environment"] == own
    other = {**own, "container_id": services.interpreter.containers.create("another").id}
    shell = {"type": "shell", "environment": other}
    assert fetch(f"{proxy}/v1/responses", body(shell))[0] == 404
    both = [
        {"type": "shell", "environment": own},
        {**INTERPRETER, "container": own["container_id"]},
    ]
    status, data = fetch(f"{proxy}/v1/responses", body(*both))
    assert (status, json.loads(data)["error"]["param"]) == (400, "tools[0].environment")
