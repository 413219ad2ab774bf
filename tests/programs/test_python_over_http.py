"""Python as models write it is run as Python, over HTTP: it is never text for the user."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.chat import calls, plain
from tests.support.programs import result
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("get_weather", strings("city")),
    *(function(name, strings("of")) for name in ("sum", "print", "list")),
]

OSLO, ROME = ("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})

PROGRAMS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("a tool given to map", "print(list(map(get_weather, ['Oslo', 'Rome'])))", [OSLO, ROME]),
    ("a tool in a table", "tools = {'w': get_weather}\nprint(tools['w']('Oslo'))", [OSLO]),
    ("a tool under another name", "f = get_weather\nf('Oslo')", [OSLO]),
    (
        "a tool given to an executor",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as ex:\n"
        "    fs = [ex.submit(get_weather, c) for c in ('Oslo', 'Rome')]\nprint([f.result() for f in fs])",
        [OSLO, ROME],
    ),
    (
        "a tool given to a thread",
        "import asyncio\nprint(await asyncio.to_thread(get_weather, 'Oslo'))",
        [OSLO],
    ),
    (
        "a group of tasks",
        "import asyncio\nasync def main():\n    async with asyncio.TaskGroup() as group:\n"
        "        tasks = [group.create_task(get_weather(c)) for c in ('Oslo', 'Rome')]\n"
        "    print([t.result() for t in tasks])\nasyncio.run(main())",
        [OSLO, ROME],
    ),
    (
        "tasks as they complete",
        "import asyncio\nasync def one(c):\n    return await get_weather(c)\nasync def main():\n"
        "    for done in asyncio.as_completed([one('Oslo'), one('Rome')]):\n        print(await done)\n"
        "asyncio.run(main())",
        [OSLO, ROME],
    ),
    ("a tool called like a builtin", "x = sum(of='1 2')\nprint(x)", [("sum", {"of": "1 2"})]),
    (
        "a builtin called like a tool",
        "x = sum(of='1 2')\nn = sum([len(c) for c in ('Oslo', 'Rome')])\nget_weather(f'{n}')",
        [("sum", {"of": "1 2"}), ("get_weather", {"city": "8"})],
    ),
    (
        "a docstring that contains a call",
        'def f():\n    """Call get_weather(\'Rome\') to see."""\n    return get_weather(\'Oslo\')\nf()',
        [OSLO],
    ),
    ("code behind a return", "get_weather('Oslo')\nreturn\nget_weather('Rome')", [OSLO]),
    (
        "a return amid a loop",
        "for c in ('Oslo', 'Rome'):\n    try:\n        w = get_weather(c)\n        if w:\n"
        "            return w\n    except Exception:\n        get_weather('Rome')\nget_weather('Rome')",
        [OSLO],
    ),
    ("an end before the end", "get_weather('Oslo')\nexit()\nget_weather('Rome')", [OSLO]),
    (
        "a first that is enough",
        "print(any(len(get_weather(c)) > 0 for c in ('Oslo', 'Rome')))",
        [OSLO],
    ),
    (
        "a loop that is left over a generator",
        "for w in (get_weather(c) for c in ('Oslo', 'Rome')):\n    break",
        [OSLO],
    ),
    (
        "a class with an order of its own",
        "class C:\n    def __init__(self, n): self.n = n\n    def __lt__(self, o): return self.n > o.n\n"
        "get_weather(sorted([C('Oslo'), C('Rome')])[0].n)",
        [ROME],
    ),
    ("rounding", "get_weather('Oslo' if round(2.675, 2) == 2.67 else 'Rome')", [OSLO]),
    (
        "an array",
        "import array\na = array.array('u')\na.append(get_weather('Oslo')[0])\nget_weather('Rome')",
        [OSLO, ROME],
    ),
    (
        "a program's own modules, classes and generators",
        "import csv, functools, heapq, io, re, uuid\nclass A:\n    def name(self): return 'Os'\n"
        "class B(A):\n    def name(self): return super().name() + 'lo'\ndef names():\n    yield B().name()\n"
        "@functools.cache\ndef f(x): return get_weather(x)\nheap = []\n"
        "for name in names():\n    heapq.heappush(heap, (len(str(uuid.uuid4())), f(name)))\n"
        "rows = list(csv.reader(io.StringIO('Rome,1')))\nget_weather(re.sub('x', '', rows[0][0]))",
        [OSLO, ROME],
    ),
    (
        "an end by sys.exit",
        "import sys\nif get_weather('Oslo'):\n    sys.exit(0)\nget_weather('Rome')",
        [OSLO],
    ),
    (
        "printed into a file of its own while a result is unknown",
        "import io\nb = io.StringIO()\nx = get_weather('Oslo')\nprint(x, file=b)\nsum(of=b.getvalue())",
        [OSLO, ("sum", {"of": "sunny\n"})],
    ),
    (
        "output that the program reads",
        "import io\nfrom contextlib import redirect_stdout\nb = io.StringIO()\nwith redirect_stdout(b):\n"
        "    print(get_weather('Oslo'))\nsum(of=b.getvalue())",
        [OSLO, ("sum", {"of": "sunny\n"})],
    ),
]


@pytest.mark.parametrize(
    ("program", "expected"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_valid_python_program_is_run(
    start_proxy: StartProxy, upstream: ScriptedUpstream, program: str, expected: Any
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(f"```tool_code\n{program}\n```", "Done.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    made = []
    for _ in range(6):
        answer = plain(client, model="m", messages=messages, tools=TOOLS)
        message = answer.choices[0].message
        if not message.tool_calls:
            break
        made += calls(answer)
        messages.append(message.model_dump(exclude_none=True))
        messages += [result(call, "sunny") for call in message.tool_calls]
    assert (made, message.content) == (expected, "Done.")
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            "def main():\n    print('it is', get_weather('Oslo'))\n    return 7\n"
            "if __name__ == '__main__':\n    main()",
            "it is sunny",
        ),
        ("w = get_weather('Oslo')\nreturn len(w)\nget_weather('Rome')", "5"),
        ("w = get_weather('Oslo')\nif w:\n    return w.upper()\nprint('no weather')", "SUNNY"),
        ("w = get_weather('Oslo')\nprint('it is', w)\nreturn\nprint('no')", "it is sunny"),
    ],
)
def test_a_return_outside_of_a_function_ends_the_program_and_shows_its_value(
    client: openai.OpenAI, upstream: ScriptedUpstream, program: str, told: str
) -> None:
    upstream.reply(f"```tool_code\n{program}\n```", "Done.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    first = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
    messages += [first.model_dump(exclude_none=True), result(first.tool_calls[0], "sunny")]
    assert (
        plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message.content
        == "Done."
    )
    told_lines = str(upstream.requests[-1]["messages"]).replace("\\n", "\n").splitlines()
    assert told in told_lines
    assert "no" not in told_lines
