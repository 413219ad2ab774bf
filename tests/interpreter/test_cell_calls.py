"""Which calls of a cell are sent together, and how it gets their results: over HTTP, in real kernels."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from emulator.programs.failures import OUTCOME_UNKNOWN
from sandbox.fences import probes
from tests.support.scripted import ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")


def _function(name: str) -> dict[str, Any]:
    properties = {"about": {"type": "string"}}
    parameters = {"type": "object", "required": ["about"], "properties": properties}
    return {"name": name, "parameters": parameters}


FUNCTIONS = [_function(name) for name in ("get_price", "get_stock", "send", "run_code")]
TOOLS = [{"type": "function", "function": each} for each in FUNCTIONS]

Call = tuple[str, str, str]
"""Id, name and what it is about."""


class Shop:
    """A client of one conversation over Chat. Prices are the lengths of names."""

    def __init__(self, url: str, container: str = "", **options: Any) -> None:
        self.http = httpx2.Client(base_url=f"{url}/v1", timeout=120)
        interpreter = {"type": "code_interpreter", "container": container or {"type": "auto"}}
        self.options = {"tools": [interpreter, *TOOLS], **options}
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
        self.text = ""

    def ask(self) -> list[Call]:
        body = {"model": "qwq", "messages": self.messages, **self.options}
        answer = self.http.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        self.messages.append(message)
        self.text = message["content"] or ""
        return [
            (
                call["id"],
                call["function"]["name"],
                json.loads(call["function"]["arguments"]).get("about", ""),
            )
            for call in message.get("tool_calls") or ()
        ]

    def answer_call(self, call: Call) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call[0], "content": _result(call)})

    def rounds(self) -> list[list[str]]:
        """Calls by message, until the model has answered; results come in the reverse order."""
        rounds: list[list[str]] = []
        while calls := self.ask():
            rounds.append([f"{name}({about})" for _, name, about in calls])
            for call in reversed(calls):
                self.answer_call(call)
        return rounds


def _result(call: Call) -> str:
    return json.dumps({"value": len(call[2]), "of": call[2]})


PQ = ["get_price(a)", "get_price(bb)"]
P_Q = [["get_price(a)"], ["get_price(bb)"]]

CELLS: list[tuple[str, list[list[str]], str]] = [
    # Displays and comprehensions of calls.
    ("x = [get_price('a'), get_price('bb')]\nprint(x[1]['value'])", [PQ], "2"),
    ("x = {'a': get_price('a'), 'n': 1, 'b': get_price('bb')}\nprint(x['n'], x['b']['of'])", [PQ], "1 bb"),
    ("a, b = send('a'), run_code('bb')\nprint(a['of'], b['of'])", [["send(a)", "run_code(bb)"]],
     "a bb"),
    ("names = ['a', 'bb', '']\nx = {n: get_price(n) for n in names if n}\n"
     "print({n: each['value'] for n, each in x.items()})", [PQ], "{'a': 1, 'bb': 2}"),
    ("def all_of(names):\n    return [get_price(n) for n in names]\n"
     "print([x['of'] for x in all_of(('a', 'bb'))])", [PQ], "['a', 'bb']"),
    ("n = 'a'\ndef change():\n    global n\n    n = 'bb'\n"
     "x = [get_price(n), change(), get_price(n)]\nprint(x[2]['of'])", [PQ], "bb"),
    ("def change():\n    send('x')\nx = [get_price('a'), change(), get_price('bb')]\nprint(x[2]['of'])",
     [["get_price(a)"], ["send(x)"], ["get_price(bb)"]], "bb"),
    ("def names():\n    yield 'a'\n    yield run_code('x')['of']\n"
     "print([x['of'] for x in [get_price(n) for n in names()]])",
     [["get_price(a)"], ["run_code(x)"], ["get_price(x)"]], "['a', 'x']"),
    # What tasks await at the same time: calls that only read, calls of the same tool about different things.
    ("import asyncio\nx, y = await asyncio.gather(get_price('a'), run_code('bb'))\n"
     "print(x['of'], y['of'])", [["get_price(a)", "run_code(bb)"]], "a bb"),
    ("import asyncio\nasync def main():\n"
     "    return await asyncio.gather(*(get_price(n) for n in ['a', 'bb']))\n"
     "print([x['of'] for x in asyncio.run(main())])", [PQ], "['a', 'bb']"),
    ("import asyncio\nx = [get_price(n) for n in ['a', 'bb']]\n"
     "print([y['of'] for y in await asyncio.gather(*x)])", [PQ], "['a', 'bb']"),
    ("import asyncio\nasync def one(n):\n    x = await get_price(n)\n    return x['value']\n"
     "async def main():\n    return await asyncio.gather(*(one(n) for n in ('a', 'bb')))\n"
     "print(asyncio.run(main()))", [PQ], "[1, 2]"),
    ("import asyncio\nasync def one(n):\n    x = await get_price(n)\n    y = await get_stock(x['of'])\n"
     "    return y['value']\nprint(await asyncio.gather(one('a'), one('bb')))",
     [PQ, ["get_stock(a)", "get_stock(bb)"]], "[1, 2]"),
    ("import asyncio\nasync def one(n):\n    await send(n)\n    return await get_price(n)\n"
     "t = [asyncio.create_task(one(n)) for n in ('a', 'bb')]\nprint([(await x)['of'] for x in t])",
     [["send(a)", "send(bb)"], PQ], "['a', 'bb']"),
    ("import asyncio\nasync def one(n):\n    await run_code(n)\n"
     "await asyncio.gather(one('a'), one('bb'))\nprint('ran')",
     [["run_code(a)"], ["run_code(bb)"]], "ran"),
    ("import asyncio\nasync def main():\n    async with asyncio.TaskGroup() as group:\n"
     "        t = [group.create_task(get_price(n)) for n in ('a', 'bb')]\n"
     "    return [x.result()['of'] for x in t]\nprint(asyncio.run(main()))", [PQ], "['a', 'bb']"),
    ("import asyncio\na = asyncio.create_task(get_price('a'))\nb = asyncio.create_task(get_stock('bb'))\n"
     "print((await a)['of'], (await b)['of'])", [["get_price(a)", "get_stock(bb)"]], "a bb"),
    ("import asyncio\nasync def one(n):\n    return await asyncio.wait_for(get_price(n), 5)\n"
     "print([x['of'] for x in await asyncio.gather(one('a'), one('bb'))])", [PQ], "['a', 'bb']"),
    ("import asyncio\nseen = []\nasync def one(n):\n    seen.append((await get_price(n))['of'])\n"
     "    if len(seen) == 1:\n        await get_stock('x')\n"
     "async def bad():\n    await get_price(whom=1)\n"
     "print(len(await asyncio.gather(one('a'), bad(), one('bb'), return_exceptions=True)), seen)",
     [["get_price(a)"], ["get_price(bb)", "get_stock(x)"]], "3 ['a', 'bb']"),
    ("import asyncio\nt = asyncio.create_task(send('a'))\nprint('begun')", [["send(a)"]], "begun"),
    ("class Board:\n    def create_task(self, x):\n        return x['of']\n"
     "board = Board()\nprint(board.create_task(send('a')), board.create_task(send('bb')))",
     [["send(a)"], ["send(bb)"]], "a bb"),
    # In order.
    ("import asyncio\nasync def main():\n    a = await get_price('a')\n    b = await get_price('bb')\n"
     "    print(a['of'], b['of'])\nasyncio.run(main())", P_Q, "a bb"),
    ("import asyncio\nasync def main():\n    return await asyncio.gather(*(asyncio.to_thread(get_price, n) "
     "for n in ('a', 'bb')))\nprint([x['of'] for x in asyncio.run(main())])", P_Q, "['a', 'bb']"),
    ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n"
     "    found = list(pool.map(get_price, ['a', 'bb']))\nprint([x['of'] for x in found])",
     P_Q, "['a', 'bb']"),
    ("from concurrent.futures import ThreadPoolExecutor, as_completed\nwith ThreadPoolExecutor() as pool:\n"
     "    fs = {pool.submit(get_price, n): n for n in ('a', 'bb')}\n"
     "    print(sorted((fs[f], f.result()['value']) for f in as_completed(fs)))",
     P_Q, "[('a', 1), ('bb', 2)]"),
    ("from concurrent.futures import ThreadPoolExecutor\ndef both(n):\n"
     "    return get_price(n)['value'] + get_stock(n)['value']\n"
     "with ThreadPoolExecutor() as pool:\n    print(list(pool.map(both, ['a', 'bb'])))",
     [["get_price(a)"], ["get_stock(a)"], ["get_price(bb)"], ["get_stock(bb)"]], "[2, 4]"),
    ("import queue, threading\nwork, done = queue.Queue(), queue.Queue()\ndef worker():\n"
     "    while (n := work.get()) is not None:\n        done.put(get_price(n)['of'])\n"
     "t = threading.Thread(target=worker)\nt.start()\nfor n in ('a', 'bb', None):\n    work.put(n)\n"
     "print(done.get(), done.get())\nt.join()", P_Q, "a bb"),
    ("import threading, time\nstop = threading.Event()\n"
     "t = threading.Thread(target=lambda: stop.wait() and print('stopped'))\n"
     "t.start()\nprint(get_price('a')['of'])\nstop.set()\nt.join()", [["get_price(a)"]], "stopped"),
    ("a = get_price('a')\nb = get_price('bb')\nprint(a['value'], b['value'])", P_Q, "1 2"),
    ("print({n: get_price(n)['value'] for n in ['a', 'bb']})", P_Q, "{'a': 1, 'bb': 2}"),
    ("found = []\nfor n in ['a', 'bb']:\n    found.append(get_price(n))\nprint(len(found), n)", P_Q, "2 bb"),
    ("d = {'a': 1, 'bb': 2}\ne = d\nfor k, v in zip(d, [1, 2]):\n    e[k + 'c'] = get_price(k)['value']",
     [["get_price(a)"]], "dictionary changed size during iteration"),
    ("for n in ['a', 'bb']:\n    if get_price(n)['value'] == 1:\n        break\nprint(n)",
     [["get_price(a)"]], "a"),
    ("print([get_stock(x['of'])['of'] for x in map(send, ['a', 'bb'])])",
     [["send(a)"], ["get_stock(a)"], ["send(bb)"], ["get_stock(bb)"]], "['a', 'bb']"),
    ("send('a')\nget_price('a')\nsend('bb')", [["send(a)"], ["get_price(a)"], ["send(bb)"]], ""),
    ("a = send('a')['missing']\nsend('bb')", [["send(a)"]], "KeyError: 'missing'"),
    ("x = get_price('a') or get_price('bb')\nprint(x['of'])", [["get_price(a)"]], "a"),
    ("print(any(get_price(n) for n in ('a', 'bb')))", [["get_price(a)"]], "True"),
    ("class Names:\n    def __getitem__(self, key):\n        return send(key)['of']\n"
     "it = Names()\nx = [get_price('a'), get_price(it['bb'])]\nprint(x[1]['of'])",
     [["get_price(a)"], ["send(bb)"], ["get_price(bb)"]], "bb"),
    # A call that fails does so in its turn, and the calls after it are not made.
    ("x = [get_price('a'), get_price({}['b'])]", [["get_price(a)"]], "KeyError: 'b'"),
    ("try:\n    x = [get_price('a'), get_price(whom=3), get_price('bb')]\n"
     "except TypeError:\n    print('refused')", [["get_price(a)"]], "refused"),
    ("print([x['of'] for x in [get_price(n[0]) for n in ('a', '', 'c')]])", [["get_price(a)"]], "IndexError"),
    ("f = get_price\nget_stock = len\n"
     "print([f('a')['of'], get_stock('bb')], [get_stock(n) for n in ('a', 'bb')])",
     [["get_price(a)"]], "['a', 2] [1, 2]"),
]  # fmt: skip


def _container(url: str) -> str:
    response = httpx2.post(f"{url}/v1/containers", json={"name": "test"}, timeout=60)
    key: str = response.json()["id"]
    return key


@pytest.mark.parametrize("part", range(4))
def test_independent_calls_are_sent_together_and_all_others_in_order(
    proxy: str, upstream: ScriptedUpstream, part: int
) -> None:
    container = _container(proxy)
    different = []
    for code, expected, printed in CELLS[part::4]:
        if "class " in code:
            container = _container(proxy)
        upstream.reply(f"```tool_code\n{code}\n```", "Done.")
        rounds = Shop(proxy, container).rounds()
        shown = upstream.requests[-1]["messages"][-1]["content"]
        if rounds != expected or printed not in shown:
            different.append((code, rounds, shown))
    assert different == []


def test_a_client_may_send_results_one_by_one_and_only_missing_calls_are_sent_again(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    code = (
        "n = globals().get('n', 0) + 1\nx = [get_price(a) for a in ('a', 'bb', 'ccc')]\nprint(n, x)"
    )
    upstream.reply(f"```tool_code\n{code}\n```", "Done.")
    shop = Shop(proxy)
    calls = shop.ask()
    assert [about for _, _, about in calls] == ["a", "bb", "ccc"]
    shop.answer_call(calls[1])
    assert shop.ask() == [calls[0], calls[2]]
    shop.answer_call(calls[2])
    assert shop.ask() == [calls[0]]
    shop.answer_call(calls[0])
    assert shop.ask() == []
    shown = upstream.requests[-1]["messages"][-1]["content"]
    assert f"1 {[json.loads(_result(call)) for call in calls]}" in shown


def test_an_earlier_cell_of_the_same_answer_stays_as_it_was_written_with_what_it_printed(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """Once the next cell had called, the calls of the one before were all that the model was shown."""
    cells = [
        "first = get_price('a')\nprint('it costs', first['value'])",
        "print('stock', get_stock(first['of'] + 'b')['of'])",
    ]
    upstream.reply(*(f"```tool_code\n{cell}\n```" for cell in cells), "Done.")
    assert Shop(proxy).rounds() == [["get_price(a)"], ["get_stock(ab)"]]
    shown = [str(m["content"]) for m in upstream.requests[-1]["messages"][-4:]]
    assert [cell in text for cell, text in zip(cells, shown[::2], strict=True)] == [True, True]
    assert ["it costs 1" in shown[1], "stock ab" in shown[3]] == [True, True]
    # What the model was shown before is how this begins.
    before, after = (
        "".join(str(m["content"]) for m in r["messages"]) for r in upstream.requests[-2:]
    )
    assert after.startswith(before)


def test_each_cell_has_its_own_limit_of_calls(proxy: str, upstream: ScriptedUpstream) -> None:
    """The calls of all cells were counted as one program's, whose limit ended the session."""
    cell = (
        "kept = globals().get('kept', 0) + len([get_price(str(i)) for i in range(70)])\nprint(kept)"
    )
    upstream.reply(*2 * [f"```tool_code\n{cell}\n```"], "Done.")
    assert sum(map(len, Shop(proxy).rounds())) == 140
    assert "140" in upstream.requests[-1]["messages"][-1]["content"]


def test_a_client_that_takes_one_call_at_a_time_gets_one(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nx = [get_price('a'), get_price('bb')]\n```", "Done.")
    rounds = Shop(proxy, parallel_tool_calls=False).rounds()
    assert rounds == [["get_price(a)"], ["get_price(bb)"]]


def test_calls_are_sent_together_over_responses_and_messages_too(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    http = httpx2.Client(base_url=f"{proxy}/v1", timeout=120)
    code = "x = [get_price(a) for a in ('a', 'bb')]\nprint([one['of'] for one in x])"
    upstream.reply(*2 * [f"```tool_code\n{code}\n```", "Done."])

    tools: list[Any] = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    tools += [{"type": "function", "strict": False, **each} for each in FUNCTIONS]
    request: dict[str, Any] = {"model": "qwq", "input": "?", "tools": tools}
    first = http.post("/responses", json=request).json()
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    assert [json.loads(call["arguments"]) for call in calls] == [{"about": "a"}, {"about": "bb"}]
    for call in reversed(calls):
        result = _result(("", "", json.loads(call["arguments"])["about"]))
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
        request = {**request, "input": [output], "previous_response_id": first["id"]}
        first = http.post("/responses", json=request).json()
    assert first["output"][-1]["content"][0]["text"] == "Done."
    assert "['a', 'bb']" in upstream.requests[-1]["messages"][-1]["content"]

    tools = [{"type": "code_execution_20250522", "name": "code_execution"}]
    tools += [{"name": one["name"], "input_schema": one["parameters"]} for one in FUNCTIONS]
    messages: list[Any] = [{"role": "user", "content": "?"}]
    request = {"model": "qwq", "max_tokens": 1000, "tools": tools, "messages": messages}
    answer = http.post("/messages", json=request).json()
    uses = [block for block in answer["content"] if block["type"] == "tool_use"]
    assert [use["input"] for use in uses] == [{"about": "a"}, {"about": "bb"}]
    results = [
        {"type": "tool_result", "tool_use_id": use["id"], "content": _result(("", "", about))}
        for use, about in zip(uses, ("a", "bb"), strict=True)
    ]
    messages += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": results[::-1]},
    ]
    answer = http.post("/messages", json=request).json()
    assert answer["content"][-1]["text"] == "Done."
    assert "['a', 'bb']" in upstream.requests[-1]["messages"][-1]["content"]


REJECTED = "exec command rejected by user"
FAILED_CALLS: list[tuple[str, str, list[list[str]], str]] = [
    # The cell, the result of its calls about "a", the calls of each message, and what the model reads.
    ("send('a')\nsend('bb')", "Error: no such box", [["send(a)"]], "ToolError: Error: no such box"),
    ("try:\n    send('a')\nexcept Exception as e:\n    print('caught', e)\nsend('bb')",
     "Error: no such box", [["send(a)"], ["send(bb)"]], "caught Error: no such box"),
    ("try:\n    send('a')\nexcept ToolError as e:\n    print('caught', e)\nsend('bb')",
     "Error: no such box", [["send(a)"], ["send(bb)"]], "caught Error: no such box"),
    ("import asyncio\nx = await asyncio.gather(send('a'), send('bb'), return_exceptions=True)\n"
     "print(type(x[0]).__name__, x[1]['of'])", "Error: no such box", [["send(a)", "send(bb)"]],
     "ToolError bb"),
    ("x = [get_price(n) for n in ('bb', 'a')]\nprint(x)", "Error: no such box",
     [["get_price(bb)", "get_price(a)"]], "ToolError: Error: no such box"),
    ("send('a')\nsend('bb')", REJECTED, [["send(a)"]], f"ToolError: {REJECTED}"),
    ("try:\n    send('a')\nexcept:\n    pass\ntry:\n    send('bb')\nexcept TypeError as e:\n    print(e)",
     REJECTED, [["send(a)"]], "send() was not called: the user rejected send()"),
    ("for i in range(3):\n    try:\n        send('a')\n    except Exception:\n        pass\nsend('bb')",
     f"{OUTCOME_UNKNOWN}: lost", [["send(a)"]], "send() was not called: send() may have been made"),
]  # fmt: skip


def test_a_failed_call_raises_in_the_cell_and_no_call_follows_a_refusal(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    container = _container(proxy)
    for code, result, expected, printed in FAILED_CALLS:
        upstream.reply(f"```tool_code\n{code}\n```", "Done.")
        shop = Shop(proxy, container)
        rounds = []
        while calls := shop.ask():
            rounds.append([f"{name}({about})" for _, name, about in calls])
            for call in calls:
                content = result if call[2] == "a" else _result(call)
                shop.messages.append({"role": "tool", "tool_call_id": call[0], "content": content})
        assert rounds == expected, code
        assert printed in upstream.requests[-1]["messages"][-1]["content"]
