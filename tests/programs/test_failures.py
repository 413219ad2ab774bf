"""A failed or refused call that a program has not checked ends it before its next call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.conftest import StartProxy
from tests.support.chat import plain, streamed
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
TOOLS = [
    function("run", strings("command"), "Run a command."),
    function("deploy", strings("target"), "Deploy a target."),
    function("read_file", strings("path"), "Read a file."),
    function("ask_price", strings("item"), "Get a price."),
]


@dataclass(frozen=True)
class ToolResult:
    """A result; ``is_error`` is the API's own signal, if it has one."""

    text: str
    is_error: bool = False


REJECTION = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected. STOP what you are "
    "doing and wait for the user to tell you how to proceed."
)
REFUSED = ToolResult(REJECTION, is_error=True)
FAILED = ToolResult("no such target", is_error=True)
Turn = tuple[list[Any], list[tuple[str, dict[str, Any]]]]
"""What the model's turn adds to the history, and its calls: id and arguments."""


def ask_chat(client: openai.OpenAI, history: list[Any], *, stream: bool) -> Turn:
    ask = streamed if stream else plain
    message: Any = ask(client, model="m", messages=history, tools=TOOLS).choices[0].message
    calls = message.tool_calls or ()
    return [message.to_dict()], [(c.id, json.loads(c.function.arguments)) for c in calls]


def ask_messages(client: openai.OpenAI, history: list[Any], *, stream: bool) -> Turn:
    tools = [
        {"name": function["name"], "input_schema": function["parameters"]}
        for function in (tool["function"] for tool in TOOLS)
    ]
    request: Any = {"model": "m", "max_tokens": 512, "messages": history, "tools": tools}
    url = str(client.base_url).removesuffix("/v1/")
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude:
        if stream:
            with claude.messages.stream(**request) as events:
                message: Any = events.get_final_message()
        else:
            message = claude.messages.create(**request)
    calls = [block for block in message.content if block.type == "tool_use"]
    turn = {"role": "assistant", "content": message.content}
    return [turn], [(call.id, call.input) for call in calls]


def ask_responses(client: openai.OpenAI, history: list[Any], *, stream: bool) -> Turn:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    request: Any = {"model": "m", "input": history, "tools": tools, "store": False}
    if stream:
        with client.responses.stream(**request) as events:
            response: Any = events.get_final_response()
    else:
        response = client.responses.create(**request)
    calls = [item for item in response.output if item.type == "function_call"]
    items = [item.to_dict() for item in response.output]
    return items, [(call.call_id, json.loads(call.arguments)) for call in calls]


def chat_results(results: dict[str, ToolResult]) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": key, "content": result.text}
        for key, result in results.items()
    ]


def messages_results(results: dict[str, ToolResult]) -> list[Any]:
    blocks: list[Any] = []
    for key, result in results.items():
        block = {"type": "tool_result", "tool_use_id": key, "content": result.text}
        blocks.append(block | ({"is_error": True} if result.is_error else {}))
    return [{"role": "user", "content": blocks}]


def responses_results(results: dict[str, ToolResult]) -> list[Any]:
    items = []
    for key, result in results.items():
        item = {"type": "function_call_output", "call_id": key, "output": result.text}
        items.append(item | ({"status": "failed"} if result.is_error else {}))
    return items


APIS: dict[str, tuple[Callable[..., Turn], Callable[[dict[str, ToolResult]], list[Any]]]] = {
    "chat": (ask_chat, chat_results),
    "messages": (ask_messages, messages_results),
    "responses": (ask_responses, responses_results),
}
EVERY_API = pytest.mark.parametrize("api", list(APIS))
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def block(source: str) -> str:
    return f"```tool_code\n{source}\n```"


def played(
    url: str, api: str, results: dict[str, ToolResult], *, stream: bool = False
) -> list[list[str]]:
    """The calls of each message, as their only argument; ``results`` by that argument, others are "ok"."""
    ask, as_history = APIS[api]
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    history: list[Any] = [{"role": "user", "content": "Go."}]
    rounds: list[list[str]] = []
    while True:
        turn, calls = ask(client, history, stream=stream)
        if not calls:
            return rounds
        rounds.append([str(*arguments.values()) for _, arguments in calls])
        found = {key: results.get(*one.values(), ToolResult("ok")) for key, one in calls}
        history += [*turn, *as_history(found)]


@STREAM
@EVERY_API
@pytest.mark.parametrize("result", [REFUSED, FAILED], ids=["refused", "failed"])
def test_a_failed_call_ends_the_program_before_its_next_call(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: str, stream: bool, result: ToolResult
) -> None:
    if api == "chat" and result is FAILED:
        result = ToolResult("Error: no such target")  # it has no signal
    upstream.reply(block('x = run("build")\nprint(x)\nrun("deploy a")'), "I stop here.")
    url = start_proxy()
    assert played(url, api, {"build": result}, stream=stream) == [["build"]]
    assert len(upstream.requests) == 2
    prompt = str(upstream.requests[1]["messages"][-1]["content"])
    assert result.text in prompt and "line 3" in prompt and 'run("deploy a")' in prompt
    assert ("rejected" in prompt) or ("had not checked its result" in prompt)
    assert upstream.requests[1]["messages"][-2]["content"] == block(
        'x = run("build")\nprint(x)\nrun("deploy a")'
    )


HANDLED: list[tuple[str, str, ToolResult]] = [
    ("a condition", 'x = run("a")\nif "no such" in x:\n    deploy("b")', FAILED),
    ("the call in the condition", 'if run("a").startswith("no such"):\n    deploy("b")', FAILED),
    ("a variable made from it", 'x = run("a").strip()\nbad = "such" in x\nif bad:\n    deploy("b")', FAILED),
    ("a conditional expression", 'x = run("a")\ny = "b" if "such" in x else "c"\ndeploy(y)', FAILED),
    ("a loop's condition", 'x = run("a")\nwhile "no such" in x:\n    x = deploy("b")', FAILED),
    ("try", 'try:\n    run("a")\n    run("c")\nexcept Exception as e:\n    deploy("b")', FAILED),
    ("try around a function", 'def f():\n    return run("a")\ntry:\n    f()\n    run("c")\n'
     'except RuntimeError:\n    deploy("b")', FAILED),
    ("a condition in a function", 'def f(r):\n    if "such" in r:\n        deploy("b")\nf(run("a"))',
     FAILED),
    ("a field", 'x = run("a")\nprint(x["error"])\ndeploy("b")', ToolResult('{"error": "down"}', True)),
    ("get", 'x = run("a")\nif x.get("error"):\n    deploy("b")', ToolResult('{"error": "down"}', True)),
    ("a list of results", 'xs = [run("a")]\nfor x in xs:\n    if "such" in x:\n        deploy("b")', FAILED),
    ("a tool in a variable", 'f = run\nx = f("a")\nif "such" in x:\n    deploy("b")', FAILED),
    ("a tool in a table", 'd = {"r": run}\nx = d["r"]("a")\nif "such" in x:\n    deploy("b")', FAILED),
    ("partial", 'from functools import partial\nif "such" in partial(run, "a")():\n'
     '    deploy("b")', FAILED),
    ("a helper that tries again", 'def retry(fn, *args, **kw):\n    for _ in range(1):\n'
     '        result = fn(*args, **kw)\n        if "such" not in str(result):\n            return result\n'
     'if retry(run, "a") is None:\n    deploy("b")', FAILED),
    ("a helper that catches", 'def retry(fn, *args, **kw):\n    try:\n        result = fn(*args, **kw)\n'
     '        return result\n    except Exception as e:\n        return None\nif not retry(run, "a"):\n'
     '    deploy("b")', FAILED),
    ("a check in a method", 'class C:\n    def ok(self, r):\n        return "such" not in r\n'
     'if not C().ok(run("a")):\n'
     '    deploy("b")', FAILED),
    ("a check that is returned", 'def f(x):\n    r = run(x)\n    return r, "no such" in str(r)\n'
     'r, bad = f("a")\nif bad:\n    deploy("b")', FAILED),
    ("a pattern", 'import re\nm = re.match("Error|no", run("a"))\nif m or True:\n    deploy("b")', FAILED),
    ("a compiled pattern", 'import re\nif re.compile("such").search(run("a")):\n    deploy("b")', FAILED),
    ("a sum of checks", 'n = sum("no such" in str(run(u)) for u in ["a"])\nif n:\n    deploy("b")', FAILED),
    ("a conversion that fails", 'x = run("a")\ntry:\n    v = float(x)\nexcept ValueError:\n    v = "b"\n'
     'deploy(v)', FAILED),
    ("text that is no JSON", 'import json\nx = run("a")\ntry:\n    v = json.loads(x)\nexcept ValueError:\n'
     '    v = "b"\ndeploy(v)', FAILED),
    ("the call in the try of its conversion", 'try:\n    x = run("a")\n    v = float(x)\nexcept ValueError:\n'
     '    v = "b"\ndeploy(v)', FAILED),
    ("suppress", 'from contextlib import suppress\nwith suppress(Exception):\n    run("a")\n    deploy("c")\n'
     'deploy("b")', FAILED),
    ("match", 'match run("a").split():\n    case ["no", *_]:\n        deploy("b")', FAILED),
    ("gather that returns exceptions", 'import asyncio\nasync def f(x):\n    return await run(x)\n'
     'async def main():\n    for r in await asyncio.gather(f("a"), return_exceptions=True):\n'
     '        if isinstance(r, Exception):\n            deploy("b")\nasyncio.run(main())', FAILED),
    ("a group of tasks", 'import asyncio\nasync def f(x):\n    return await run(x)\n'
     'async def main():\n    try:\n'
     '        async with asyncio.TaskGroup() as group:\n            group.create_task(f("a"))\n'
     '    except* Exception:\n        deploy("b")\nasyncio.run(main())', FAILED),
    ("a task under a handler", 'import asyncio\nasync def f(x):\n    return await run(x)\nasync def main():\n'
     '    t = asyncio.create_task(f("a"))\n    try:\n        await t\n    except Exception:\n'
     '        deploy("b")\n'
     'asyncio.run(main())', FAILED),
    ("a future under a handler", 'from concurrent.futures import ThreadPoolExecutor\n'
     'with ThreadPoolExecutor() as pool:\n    f = pool.submit(run, "a")\n    try:\n        f.result()\n'
     '    except Exception:\n        deploy("b")', FAILED),
    ("assert in try", 'x = run("a")\ntry:\n    assert x == "ok"\nexcept AssertionError:\n'
     '    deploy("b")', FAILED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "result"), [row[1:] for row in HANDLED], ids=[r[0] for r in HANDLED]
)
def test_a_program_that_handles_a_failure_continues(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    source: str,
    result: ToolResult,
) -> None:
    upstream.reply(block(source), "Done.")
    url = start_proxy()
    assert played(url, "messages", {"a": result}) == [["a"], ["b"]], upstream.requests[-1]


UNHANDLED: list[tuple[str, str, list[list[str]]]] = [
    ("nothing", 'run("a")\ndeploy("b")', [["a"]]),
    ("printed", 'print(run("a"))\ndeploy("b")', [["a"]]),
    ("formatted", 'x = run("a")\ny = f"{x}!"\ndeploy("b")', [["a"]]),
    ("passed on", 'x = run("a")\ndeploy(x)', [["a"]]),
    ("passed on as text", 'x = run("a").strip().upper()\ndeploy("b " + x)', [["a"]]),
    ("its lines", 'for line in run("a").splitlines():\n    deploy(line)', [["a"]]),
    ("stored", 'xs = []\nxs.append(run("a"))\nif len(xs) > 0 and xs:\n    deploy("b")', [["a"]]),
    ("checked too late", 'x = run("a")\ny = deploy("b")\nif "ok" in x:\n    print(y)', [["a"]]),
    ("a loop", 'for t in ["ok1", "a", "b"]:\n    x = run(t)\n    print(x)', [["ok1"], ["a"]]),
    ("another result of two", 'x, y = run("a"), run("c")\nif y == "ok":\n    deploy("b")', [["a", "c"]]),
    ("another result of a list", 'xs = [run(t) for t in ("a", "c")]\nif xs[1] == "ok":\n    deploy("b")',
     [["a", "c"]]),
    ("another result of a helper", 'def f(t):\n    return read_file(t)\nx = f("a")\ny = f("c")\n'
     'if y == "ok":\n    deploy("b")', [["a", "c"]]),
    ("another result of the line", 'x = read_file("a"); y = read_file("c")\nif y == "ok":\n    deploy("b")',
     [["a", "c"]]),
    ("another condition", 'x = run("a")\nif 1 < 2:\n    deploy("b")', [["a"]]),
    ("finally", 'try:\n    run("a")\nfinally:\n    deploy("b")', [["a"]]),
    ("another exception", 'try:\n    run("a")\nexcept KeyError:\n    deploy("b")', [["a"]]),
    ("a read between", 'run("a")\nread_file("b")\ndeploy("c")', [["a"], ["b"]]),
    ("a function", 'def f(t):\n    return run(t)\nf("a")\nf("b")', [["a"]]),
    ("gather", 'import asyncio\nasync def f():\n    return await asyncio.gather(run("a"), run("c"))\n'
     'asyncio.run(f())\ndeploy("b")', [["a", "c"]]),
    ("one of a batch", 'x = [run("c"), run("a")]\nprint(x)\ndeploy("b")', [["c", "a"]]),
    ("one of two reads", 'x = read_file("a")\ny = read_file("c")\ndeploy("b")', [["a", "c"]]),
    ("a class", 'from dataclasses import dataclass\n@dataclass\nclass T:\n    n: str\nx = run(T("a").n)\n'
     'deploy(T("b").n)', [["a"]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "calls"), [row[1:] for row in UNHANDLED], ids=[r[0] for r in UNHANDLED]
)
def test_a_program_that_does_not_handle_a_failure_ends(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    source: str,
    calls: list[list[str]],
) -> None:
    upstream.reply(block(source), "I stop here.")
    assert played(start_proxy(), "messages", {"a": FAILED}) == calls
    assert "no such target" in str(upstream.requests[-1]["messages"][-1]["content"])


@pytest.mark.parametrize(
    ("source", "result"), [row[1:] for row in HANDLED], ids=[r[0] for r in HANDLED]
)
def test_a_refusal_ends_every_program(
    start_proxy: StartProxy, upstream: ScriptedUpstream, source: str, result: ToolResult
) -> None:
    """Also one that catches all exceptions: only the model decides after the user's no."""
    upstream.reply(block(source), "I stop here.")
    assert played(start_proxy(), "messages", {"a": REFUSED}) == [["a"]]
    assert REJECTION in str(upstream.requests[-1]["messages"][-1]["content"])


def chat_turn(url: str, messages: list[Any]) -> list[Any]:
    """The calls of the next message, which is added to ``messages``."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    return message.tool_calls or []


def result_message(call: Any, text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": text, **fields}


def test_after_a_refusal_the_other_calls_of_its_message_are_not_sent_again(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(block('print([deploy("a"), deploy("c")])'), "I stop here.")
    url, messages = start_proxy(), [{"role": "user", "content": "Go."}]
    first, _ = chat_turn(url, messages)
    messages.append(result_message(first, REJECTION))
    assert chat_turn(url, messages) == []
    assert REJECTION in str(upstream.requests[1]["messages"][-1]["content"])


def test_reads_that_were_sent_before_a_failure_may_finish(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(block('x = read_file("a")\ny = read_file("c")\ndeploy("b")'), "I stop here.")
    url, messages = start_proxy(), [{"role": "user", "content": "Go."}]
    first, second = chat_turn(url, messages)
    messages.append(result_message(first, "no such file", is_error=True))
    assert [call.id for call in chat_turn(url, messages)] == [second.id]
    messages.append(result_message(second, "text"))
    assert chat_turn(url, messages) == []
    assert "had not checked its result" in str(upstream.requests[1]["messages"][-1]["content"])


def test_another_process_remembers_the_failure(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The signal is only in the stored program then: the history has lost it."""
    source = 'try:\n    read_file("a")\nexcept Exception:\n    deploy("b")\ndeploy("c")'
    upstream.reply(block(source), "Done.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    store = str(tmp_path / "store.sqlite")
    url = start_proxy(database=store, order="strict")
    [read] = chat_turn(url, messages)
    messages.append(result_message(read, "no such file", is_error=True))
    [fallback] = chat_turn(url, messages)
    del messages[-2]["is_error"]
    messages.append(result_message(fallback, "ok"))
    [last] = chat_turn(start_proxy(database=store, order="strict"), messages)
    assert (last.function.name, last.function.arguments) == ("deploy", '{"target":"c"}')


OUTPUTS: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    # Of a hosted tool: its calls, its output, and whether the program's next call leaves.
    ("exit code 0", {"type": "shell"}, {"outcome": {"type": "exit", "exit_code": 0}}, True),
    ("exit code 1", {"type": "shell"}, {"outcome": {"type": "exit", "exit_code": 1}}, False),
    ("timeout", {"type": "shell"}, {"outcome": {"type": "timeout"}}, False),
]


@pytest.mark.parametrize(
    ("tool", "output", "leaves"), [r[1:] for r in OUTPUTS], ids=[r[0] for r in OUTPUTS]
)
def test_a_failed_shell_command_ends_the_program(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tool: Any, output: Any, leaves: bool
) -> None:
    upstream.reply(
        block('shell(commands=["make"])\nshell(commands=["make install"])'), "I stop here."
    )
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    items: list[Any] = [{"role": "user", "content": "Go."}]
    response = client.responses.create(model="m", input=items, tools=[tool], store=False)
    items += [item.model_dump(exclude_none=True) for item in response.output]
    command = {"stdout": "", "stderr": "", **output}
    items.append(
        {
            "type": "shell_call_output",
            "call_id": getattr(response.output[-1], "call_id"),  # noqa: B009 - of any type
            "output": [command],
            "max_output_length": 1000,
        }
    )
    response = client.responses.create(model="m", input=items, tools=[tool], store=False)
    assert (response.output[-1].type == "shell_call") is leaves


def test_a_patch_that_did_not_apply_ends_the_program(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    patch = 'apply_patch(operation="delete_file", path="{}")'
    upstream.reply(block(f"{patch.format('a')}\n{patch.format('b')}"), "I stop here.")
    client = openai.OpenAI(base_url=start_proxy(order="strict"), api_key="k", max_retries=0)
    tools: list[Any] = [{"type": "apply_patch"}]
    items: list[Any] = [{"role": "user", "content": "Go."}]
    response = client.responses.create(model="m", input=items, tools=tools, store=False)
    call: Any = response.output[-1]
    items += [item.model_dump(exclude_none=True) for item in response.output]
    items.append({"type": "apply_patch_call_output", "call_id": call.call_id, "status": "failed"})
    response = client.responses.create(model="m", input=items, tools=tools, store=False)
    assert response.output_text == "I stop here."


def test_the_table_of_the_documentation_is_right(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    section = PAGE.read_text().split("## What ends a program")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (ends|continues)", section, re.MULTILINE)
    assert len(rows) > 4
    url = start_proxy()
    for cell, outcome in rows:
        source = cell.replace("; ", "\n").replace(":\n", ":\n    ")
        upstream.reply(block(source), "Done.")
        text = '{"error": "no such target"}' if '["error"]' in source else "Error: no such target"
        rounds = played(url, "chat", {"a": ToolResult(text)})
        assert rounds == ([["a"], ["b"]] if outcome == "continues" else [["a"]]), source
