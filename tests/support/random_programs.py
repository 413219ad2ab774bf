"""Random programs that call tools, and a reference that knows every result at once.

The programs are typed (ints, lists, records), so that most of them run; they alias, mutate, loop, branch,
fail and define helpers, which is where a made-up value could slip into a call.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
from contextlib import redirect_stdout, suppress
from typing import Any

from sandbox.programs.inside import notation
from tests.support.random_source import SourceWriter
from tests.support.tools import function

ANY = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
NAMES = ("num", "lst", "rec", "txt", "nul", "err")
TOOLS = [function(name, ANY) for name in NAMES]


def result(name: str, x: Any) -> Any:
    """What a tool returns: the same for the same call, and different for others."""
    digest = hashlib.sha256(json.dumps([name, x]).encode()).digest()
    if name == "num":
        return digest[0] % 7
    if name == "txt":
        return _TEXTS[digest[0] % len(_TEXTS)]
    if name == "nul":
        return None if digest[0] % 2 else 3
    if name == "err":
        return f"There is no {digest[0]}"
    if name == "lst":
        return [byte % 5 for byte in digest[1 : 1 + digest[0] % 4]]
    return {"n": digest[0] % 7, "xs": [byte % 5 for byte in digest[1:4]]}


_TEXTS = ("", "a b", "42", "[1, 2]", '{"a": 1}', "word " * 200_000)
"""What looks like JSON is text here: the programs treat it so. ``null`` and ``true`` are Python's words."""


def on_the_wire(value: Any) -> str:
    """A result as a client sends it."""
    return value if isinstance(value, str) else json.dumps(value)


MOST_CALLS = 1000


class _Endless(BaseException):
    """A program that calls on and on: a helper that grows the list over which it is called."""


def reference(source: str) -> tuple[list[tuple[str, Any]], str, bool]:
    """All calls in order, what was printed, and whether the program failed. Ends after `MOST_CALLS`."""
    sent_calls: list[tuple[str, Any]] = []

    def tool(name: str) -> Any:
        def call(x: Any) -> Any:
            sent_calls.append((name, json.loads(json.dumps(x))))
            if len(sent_calls) == MOST_CALLS:
                raise _Endless
            return notation.result(on_the_wire(result(name, x)), as_text=name == "txt")

        return call

    out = io.StringIO()
    failed = True
    with redirect_stdout(out), suppress(Exception, _Endless):
        exec(source, {name: tool(name) for name in NAMES})
        failed = False
    return sent_calls, out.getvalue(), failed


_START = """i0, i1, i2 = 1, 2, 3
l0, l1 = [1, 2], []
l2 = {}
r0 = {{'n': 4, 'xs': l0}}
d0 = {{}}
"""
_RULES = {
    "int": """
        i0 | i1 | i2 | 3 | r0['n'] | (<int> + <int>) | len(<list>) | sum(<list>) | <list>[-1]
        | <list>[<int>] | num(<int>) | num(<int>) | num(<int>) | num(<list>) | rec(<int>)['n']
        | rec(<list>)['n'] | len(txt(<int>).split())
        | (nul(<int>) or 2) | len(err(<int>)) | max([<int>, <int>], key=lambda q: -q)
        | (<int> if <test> else <int>) | <helped>""",
    "list": """
        l0 | l1 | r0['xs'] | [1] | lst(<int>) | [<int>, <int>] | [num(q) for q in <list>]
        | [q + 1 for q in <list> if q < <int>] | sorted(<list>, reverse=True) | rec(<int>)['xs']""",
    "test": "<int> < <int> | <list> | num(<int>) % 2",
    "name": "i0 | i1",
    "names": "l0 | l1",
    "helped": "5",
    "block": "<statement> | <statement>\n<statement>",
    "statement": """
        <assign> | <assign> | <grow> | <call> | <call> | <show>
        | if <test>:\n    <block>
        | if <test>:\n    <block>\nelse:\n    <block>
        | if <test>:\n    <block>\nelif <test>:\n    <block>
        | for <loop>:\n    <block>
        | for <loop>:\n    <block>\n    if <test>:\n        <leave>
        | n@ = 0\nwhile n@ < 3 and <test>:\n    n@ += 1\n    <block>
        | try:\n    <block>\n    i1 = <failing>\nexcept <error>:\n    <block>
        | def f@(a):\n    b = num(a)\n    l1.append(<local>)\n    return <local>
        | def f@(a):\n    b = num(a)\n    return <local>""",
    # A copy: a loop over a list that it grows itself would have no end.
    "loop": """
        i0 in list(<list 1>) | i2 in list(<list 1>) | j in list(<list 1>) | i0 in range(3) | i2 in [1, 2]""",
    "leave": "break | continue",
    "failing": "l0[i0] | 1 // i2 | <int>",
    "error": "IndexError | Exception",
    "local": "b | num(a) | a | b + a | num(b) | len(l0) + a",
    "call": "num(<int>) | lst(<list>) | rec(<int>) | num(<list>)",
    "show": """
        print(<int>) | print(num(<int 2>)) | print(l0, l1) | print(f'{i0} and {r0}')
        | print(f"{num(<int 2>)}!") | print(r0['n'])""",
    "assign": """
        i0 = <int> | i2 = <int> | <name> = num(<int 2>) | <names> = <list> | <names> = <names>
        | i0, i1 = num(<int 2>), num(<int 2>) | <name> += <int> | r0 = rec(i0) | r0 = rec(l0)
        | r0 = {'n': num(i1), 'xs': l1} | l0 = l1 = [num(<int 2>)] | l2 = [l0, <list>]
        | l1 = l2[0] if isinstance(l2[0], list) else l2 | d0 = {q: num(q) for q in <list 1>}
        | l0 = list(d0.values())""",
    "grow": """
        <names>.append(num(<int 2>)) | <names>.append(<int>) | l2.append(lst(i0)) | l2.append(l0)
        | l2.append(num(i1)) | d0[<int 2>] = num(<int 2>) | d0[<int 2>] = {'k': num(<int 2>), 'l': l0}
        | r0['xs'].append(num(<int 2>)) | <names>.extend(<list>) | l1.pop()""",
}


def random_program(source: random.Random) -> str:
    writer = SourceWriter(source, _RULES, depth=3)
    program = _START.format(source.choice(["l1", "[l0, l1]"]))
    for _ in range(source.randint(1, 8)):
        program += f"{writer.write('statement')}\n"
        helpers = re.findall(r"^def (\w+)", program, re.MULTILINE)
        writer.rules["helped"] = [f"{name}(<int>)" for name in helpers] or ["5"]
    return f"{program}print(i0, i1, i2, l0, l1, l2, r0, d0)"
