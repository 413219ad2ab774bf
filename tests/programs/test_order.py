"""Which calls are sent together: only those whose order cannot matter, however clients run them."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.programs import plain, rounds
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("write_file", strings("path", "content"), "Write a file."),
    function("read_file", strings("path"), "Read a file."),
    function("list_files", strings("path"), "List the files of a folder."),
    function("bash", strings("command"), "Run a command in a shell."),
    function("send_mail", strings("to", "body"), "Send a mail."),
    function("cd", strings("folder"), "Change the working directory."),
    function("mkdir", strings("path"), "Make a folder."),
    function("move", strings("source", "destination"), "Move a file."),
    function("peek_queue", strings("name"), "Take a message from a queue."),
]

PROGRAMS: list[tuple[str, str, list[list[str]]]] = [
    (
        "a command after a write waits for it",
        "write_file('a', 'x')\nbash('python a')",
        [["write_file(path='a', content='x')"], ["bash(command='python a')"]],
    ),
    (
        "assigned to names, too",
        "w = write_file('a', 'x')\nr = bash('python a')\nprint(r)",
        [["write_file(path='a', content='x')"], ["bash(command='python a')"]],
    ),
    (
        "printed, too",
        "print(write_file('a', 'x'))\nprint(bash('python a'))\nprint('end')",
        [["write_file(path='a', content='x')"], ["bash(command='python a')"]],
    ),
    (
        "tools that only read leave together",
        "a = read_file('a')\nb = list_files('.')\nprint(a, b)",
        [["read_file(path='a')", "list_files(path='.')"]],
    ),
    (
        "a read waits for the write before it, and a write for the read",
        "read_file('a')\nwrite_file('a', 'x')\nread_file('a')\nlist_files('.')",
        [
            ["read_file(path='a')"],
            ["write_file(path='a', content='x')"],
            ["read_file(path='a')", "list_files(path='.')"],
        ],
    ),
    (
        "one tool about different things",
        "send_mail('ann', 'hi')\nsend_mail('bob', 'hi')",
        [["send_mail(to='ann', body='hi')", "send_mail(to='bob', body='hi')"]],
    ),
    (
        "one tool about the same thing twice",
        "send_mail('ann', 'one')\nsend_mail('ann', 'two')",
        [["send_mail(to='ann', body='one')"], ["send_mail(to='ann', body='two')"]],
    ),
    (
        "the same call twice",
        "send_mail('ann', 'hi')\nsend_mail('ann', 'hi')",
        [["send_mail(to='ann', body='hi')"], ["send_mail(to='ann', body='hi')"]],
    ),
    (
        "what one call leaves, the next may take",
        "move('a', 'b')\nmove('b', 'c')",
        [["move(source='a', destination='b')"], ["move(source='b', destination='c')"]],
    ),
    (
        "a folder before what lies in it",
        "mkdir('a')\nmkdir('a/b/c')\nmkdir('d')",
        [["mkdir(path='a')"], ["mkdir(path='a/b/c')", "mkdir(path='d')"]],
    ),
    (
        "commands are run one by one",
        "bash('a')\nbash('b')",
        [["bash(command='a')"], ["bash(command='b')"]],
    ),
    (
        "what moves where the others start from is called one by one",
        "cd('a')\ncd('b')",
        [["cd(folder='a')"], ["cd(folder='b')"]],
    ),
    (
        "a name that reads, a description that takes",
        "peek_queue('a')\nread_file('a')",
        [["peek_queue(name='a')"], ["read_file(path='a')"]],
    ),
    (
        "in a list the program says that order does not matter",
        "x = [write_file('a', 'x'), bash('ls'), bash('pwd')]\nprint(x)",
        [["write_file(path='a', content='x')", "bash(command='ls')", "bash(command='pwd')"]],
    ),
    (
        "a list that is a statement of its own",
        "[bash('ls'), bash('pwd')]\nbash('id')",
        [["bash(command='ls')", "bash(command='pwd')"], ["bash(command='id')"]],
    ),
    (
        "a tuple and a dict are displays too",
        "a, b = bash('ls'), bash('pwd')\nd = {'x': bash('id'), 'y': write_file('a', 'x')}\nprint(a, b, d)",
        [
            ["bash(command='ls')", "bash(command='pwd')"],
            ["bash(command='id')", "write_file(path='a', content='x')"],
        ],
    ),
    (
        "a comprehension",
        "x = [bash(c) for c in ('ls', 'pwd')]\nprint(x)",
        [["bash(command='ls')", "bash(command='pwd')"]],
    ),
    (
        "gather",
        "import asyncio\nx = await asyncio.gather(bash('ls'), bash('pwd'))\nprint(x)",
        [["bash(command='ls')", "bash(command='pwd')"]],
    ),
    *(
        (
            f"a list inside an expression: {program}",
            program,
            [["bash(command='ls')", "bash(command='pwd')"]],
        )
        for program in (
            "print([bash('ls'), bash('pwd')])",
            "print(*[bash(c) for c in ('ls', 'pwd')], sep='')",
            "print('\\n'.join([bash('ls'), bash('pwd')]))",
            "import json\nprint(json.dumps([bash('ls'), bash('pwd')], indent=1))",
            "print(len([bash('ls'), bash('pwd')]) + 1)",
            "x = sorted([bash(c) for c in ('ls', 'pwd')])[0]\nprint(x)",
            "for x in [bash('ls'), bash('pwd')]:\n    print(x)",
            "for x in (bash('ls'), bash('pwd')):\n    print(x)",
            "for k, v in {'a': bash('ls'), 'b': bash('pwd')}.items():\n    print(k, v)",
            "if all([bash(c) for c in ('ls', 'pwd')]):\n    print(1)",
            "def f():\n    return [bash('ls'), bash('pwd')]\nprint(f())",
            'print(f\'{[bash(c) for c in ("ls", "pwd")]}\')',
            "import asyncio\nasync def main():\n    a, b = await asyncio.gather(bash('ls'), bash('pwd'))\n"
            "    print(a, b)\nasyncio.run(main())",
        )
    ),
    *(
        (
            f"coroutines that are gathered, whose calls only read: {gathered}",
            "import asyncio\nasync def one(p):\n    return p, await read_file(p)\n"
            f"print(await asyncio.gather({gathered}))",
            [["read_file(path='a')", "read_file(path='b')"]],
        )
        for gathered in (
            "*(one(p) for p in ('a', 'b'))",
            "*[one(p) for p in ('a', 'b')]",
            "one('a'), one('b')",
        )
    ),
    (
        "a list behind a call in the same expression keeps its place",
        "print(bash('id'), [bash('ls'), bash('pwd')])",
        [["bash(command='id')"], ["bash(command='ls')", "bash(command='pwd')"]],
    ),
    (
        "the test of a loop is evaluated each time",
        "n = 0\nwhile len([bash('ls'), bash('pwd')]) > n:\n    n += 2\nprint(n)",
        [["bash(command='ls')", "bash(command='pwd')"]] * 2,
    ),
    (
        "two evaluations of one display are in order",
        "x = []\nfor n in '12':\n    x.append((bash('a' + n), bash('b' + n)))\nprint(x)",
        [
            ["bash(command='a1')", "bash(command='b1')"],
            ["bash(command='a2')", "bash(command='b2')"],
        ],
    ),
    (
        "two evaluations of one comprehension are in order",
        "def both(n):\n    x = [bash(c + n) for c in 'ab']\n    return len(x)\nboth('1')\nboth('2')",
        [
            ["bash(command='a1')", "bash(command='b1')"],
            ["bash(command='a2')", "bash(command='b2')"],
        ],
    ),
    (
        "a loop of bare calls is in order where one call is",
        "for c in ('ls', 'pwd'):\n    bash(c)",
        [["bash(command='ls')"], ["bash(command='pwd')"]],
    ),
]


@pytest.mark.parametrize(
    ("program", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_calls_are_sent_together_only_if_their_order_cannot_matter(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    program: str,
    expected: list[list[str]],
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(f"```tool_code\n{program}\n```", "Done.")
    assert rounds(client, TOOLS) == expected
    assert len(upstream.requests) == 2


TWO = "```tool_code\nwrite_file('a', 'x')\nread_file('a')\nread_file('b')\n```"
WRITE, READ_A, READ_B = (
    "write_file(path='a', content='x')",
    "read_file(path='a')",
    "read_file(path='b')",
)
ORDERS = {
    "auto": [[WRITE], [READ_A, READ_B]],
    "dataflow": [[WRITE, READ_A, READ_B]],
    "strict": [[WRITE], [READ_A], [READ_B]],
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_setting_order_decides_which_calls_are_sent_together(
    start_proxy: StartProxy, upstream: ScriptedUpstream, order: Any
) -> None:
    client = openai.OpenAI(base_url=start_proxy(order=order), api_key="k", max_retries=0)
    upstream.reply(TWO, "Done.")
    assert rounds(client, TOOLS) == ORDERS[order]


@pytest.mark.parametrize("order", ORDERS)
def test_a_request_may_choose_its_order(
    client: openai.OpenAI, upstream: ScriptedUpstream, order: str
) -> None:
    upstream.reply(TWO, "Done.")
    sent_calls = rounds(client, TOOLS, extra_headers={"X-Emulator-Order": order.upper()})
    assert sent_calls == ORDERS[order]


def test_an_order_that_does_not_exist_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        plain(
            client,
            model="m",
            messages=[{"role": "user", "content": "Go."}],
            tools=TOOLS,
            extra_headers={"x-emulator-order": "fastest"},
        )
    assert caught.value.param == "x-emulator-order"
    assert "auto, dataflow, strict" in str(caught.value)


def test_without_a_store_no_call_is_deferred(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(programs="off"), api_key="k", max_retries=0)
    upstream.reply(TWO, "Done.")
    assert rounds(client, TOOLS) == ORDERS["dataflow"]


def test_a_tool_can_declare_that_it_only_reads(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    frobnicate, get = function("frobnicate", strings("x")), function("get_next", strings("x"))
    frobnicate["function"]["annotations"] = {"readOnlyHint": True}
    get["function"]["parameters"]["x-read-only"] = False
    upstream.reply("```tool_code\nfrobnicate('1')\nget_weather('1')\nget_next('1')\n```", "Done.")
    tools = [frobnicate, get, function("get_weather", strings("x"))]
    assert rounds(client, tools) == [
        ["frobnicate(x='1')", "get_weather(x='1')"],
        ["get_next(x='1')"],
    ]


def test_a_deferred_call_must_be_valid_before_any_call_is_sent(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(stream_calls="block"), api_key="k", max_retries=0)
    upstream.reply(
        "```tool_code\nwrite_file('a', 'x')\nbash(command={'no': 'text'})\n```",
        "```tool_code\nbash(command='ls')\n```",
        "Done.",
    )
    assert rounds(client, TOOLS) == [["bash(command='ls')"]]
