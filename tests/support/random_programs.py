"""Random programs that call tools, and a reference that knows every result at once.

The programs are typed (ints, lists, records), so that most of them run; they alias, mutate, loop, branch,
fail and define helpers, which is where a made-up value could slip into a call.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from contextlib import redirect_stdout, suppress
from typing import Any

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
        return f"Error: there is no {digest[0]}"
    if name == "lst":
        return [byte % 5 for byte in digest[1 : 1 + digest[0] % 4]]
    return {"n": digest[0] % 7, "xs": [byte % 5 for byte in digest[1:4]]}


_TEXTS = ("", "a b", "42", "[1, 2]", '{"a": 1}', "null", "true\n", "word " * 200_000)
"""What looks like JSON is text here: the programs treat it so."""


def on_the_wire(value: Any) -> str:
    """A result as a client sends it."""
    return value if isinstance(value, str) else json.dumps(value)


def reference(source: str) -> tuple[list[tuple[str, Any]], str, bool]:
    """All calls in order, what was printed, and whether the program failed."""
    sent_calls: list[tuple[str, Any]] = []

    def tool(name: str) -> Any:
        def call(x: Any) -> Any:
            sent_calls.append((name, json.loads(json.dumps(x))))
            return json.loads(json.dumps(result(name, x)))

        return call

    out = io.StringIO()
    failed = True
    with redirect_stdout(out), suppress(Exception):
        exec(source, {name: tool(name) for name in NAMES})
        failed = False
    return sent_calls, out.getvalue(), failed


class Writer:
    """Writes one program from a source of randomness."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.helpers: list[str] = []
        self.lines: list[str] = []

    def program(self) -> str:
        self.lines = [
            "i0, i1, i2 = 1, 2, 3",
            "l0, l1 = [1, 2], []",
            "l2 = l1" if self.random.random() < 0.5 else "l2 = [l0, l1]",
            "r0 = {'n': 4, 'xs': l0}",
            "d0 = {}",
        ]
        for _ in range(self.random.randint(1, 8)):
            self.statement("", 0)
        self.lines.append("print(i0, i1, i2, l0, l1, l2, r0, d0)")
        return "\n".join(self.lines)

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def int_(self, depth: int = 0) -> str:
        if depth > 2:
            return self.pick("i0", "i1", "i2", "0", "1")
        inner = depth + 1
        return self.pick(
            lambda: self.pick("i0", "i1", "i2", "3"),
            lambda: f"({self.int_(inner)} + {self.int_(inner)})",
            lambda: f"len({self.list_(inner)})",
            lambda: f"sum({self.list_(inner)})",
            lambda: f"{self.list_(inner)}[{self.pick('0', '-1', self.int_(inner))}]",
            lambda: "r0['n']",
            lambda: f"num({self.int_(inner)})",
            lambda: f"num({self.list_(inner)})",
            lambda: f"rec({self.int_(inner)})['n']",
            lambda: f"len(txt({self.int_(inner)}).split())",
            lambda: f"(nul({self.int_(inner)}) or 2)",
            lambda: f"len(err({self.int_(inner)}))",
            lambda: f"max([{self.int_(inner)}, {self.int_(inner)}], key=lambda q: -q)",
            lambda: f"({self.int_(inner)} if {self.test(inner)} else {self.int_(inner)})",
            lambda: f"{self.pick(*self.helpers)}({self.int_(inner)})" if self.helpers else "5",
        )()

    def list_(self, depth: int = 0) -> str:
        if depth > 2:
            return self.pick("l0", "l1", "[1]")
        inner = depth + 1
        return self.pick(
            lambda: self.pick("l0", "l1", "r0['xs']"),
            lambda: f"lst({self.int_(inner)})",
            lambda: f"[{self.int_(inner)}, {self.int_(inner)}]",
            lambda: f"[num(q) for q in {self.list_(inner)}]",
            lambda: f"[q + 1 for q in {self.list_(inner)} if q < {self.int_(inner)}]",
            lambda: f"sorted({self.list_(inner)}, reverse=True)",
            lambda: f"rec({self.int_(inner)})['xs']",
        )()

    def test(self, depth: int = 0) -> str:
        return self.pick(
            lambda: f"{self.int_(depth + 1)} < {self.int_(depth + 1)}",
            lambda: self.list_(depth + 1),
            lambda: f"num({self.int_(depth + 1)}) % 2",
        )()

    def statement(self, pad: str, depth: int) -> None:
        kinds = [self.assign, self.assign, self.grow, self.call, self.show]
        if depth < 2:
            kinds += [self.branch, self.loop, self.repeat, self.attempt, self.helper]
        self.pick(*kinds)(pad, depth)

    def block(self, pad: str, depth: int) -> None:
        for _ in range(self.random.randint(1, 2)):
            self.statement(pad + "    ", depth + 1)

    def assign(self, pad: str, depth: int) -> None:
        line = self.pick(
            lambda: f"{self.pick('i0', 'i1', 'i2')} = {self.int_()}",
            lambda: f"{self.pick('i0', 'i1')} = num({self.int_(2)})",
            lambda: f"{self.pick('l0', 'l1')} = {self.list_()}",
            lambda: f"{self.pick('l0', 'l1')} = {self.pick('l0', 'l1')}",
            lambda: f"i0, i1 = num({self.int_(2)}), num({self.int_(2)})",
            lambda: f"{self.pick('i0', 'i1')} += {self.int_()}",
            lambda: f"r0 = {self.pick('rec(i0)', 'rec(l0)')}",
            lambda: "r0 = {'n': num(i1), 'xs': l1}",
            lambda: f"l0 = l1 = [num({self.int_(2)})]",
            lambda: f"l2 = [l0, {self.list_()}]",
            lambda: "l1 = l2[0] if isinstance(l2[0], list) else l2",
            lambda: f"d0 = {{q: num(q) for q in {self.list_(1)}}}",
            lambda: "l0 = list(d0.values())",
        )()
        self.lines.append(pad + line)

    def grow(self, pad: str, depth: int) -> None:
        self.lines.append(
            pad
            + self.pick(
                f"{self.pick('l0', 'l1')}.append(num({self.int_(2)}))",
                f"{self.pick('l0', 'l1')}.append({self.int_()})",
                f"l2.append({self.pick('lst(i0)', 'l0', 'num(i1)')})",
                f"d0[{self.int_(2)}] = num({self.int_(2)})",
                f"d0[{self.int_(2)}] = {{'k': num({self.int_(2)}), 'l': l0}}",
                f"r0['xs'].append(num({self.int_(2)}))",
                f"{self.pick('l0', 'l1')}.extend({self.list_()})",
                "l1.pop()",
            )
        )

    def call(self, pad: str, depth: int) -> None:
        self.lines.append(
            f"{pad}{self.pick('num', 'lst', 'rec')}({self.pick(self.int_, self.list_)()})"
        )

    def show(self, pad: str, depth: int) -> None:
        line = self.pick(
            f"print({self.int_()})",
            f"print(num({self.int_(2)}))",
            "print(l0, l1)",
            "print(f'{i0} and {r0}')",
            f'print(f"{{num({self.int_(2)})}}!")',
            "print(r0['n'])",
        )
        self.lines.append(pad + line)

    def branch(self, pad: str, depth: int) -> None:
        self.lines.append(f"{pad}if {self.test()}:")
        self.block(pad, depth)
        if self.random.random() < 0.5:
            self.lines.append(f"{pad}{self.pick('else', f'elif {self.test()}')}:")
            self.block(pad, depth)

    def loop(self, pad: str, depth: int) -> None:
        # A copy: a loop over a list that it grows itself would have no end.
        over = self.pick(f"list({self.list_(1)})", "range(3)", "[1, 2]")
        self.lines.append(f"{pad}for {self.pick('i0', 'i2', 'j')} in {over}:")
        self.block(pad, depth)
        if self.random.random() < 0.3:
            self.lines.append(f"{pad}    if {self.test()}:")
            self.lines.append(f"{pad}        {self.pick('break', 'continue')}")

    def repeat(self, pad: str, depth: int) -> None:
        counter = f"n{len(self.lines)}"
        self.lines.append(f"{pad}{counter} = 0")
        self.lines.append(f"{pad}while {counter} < 3 and {self.test()}:")
        self.lines.append(f"{pad}    {counter} += 1")
        self.block(pad, depth)

    def attempt(self, pad: str, depth: int) -> None:
        self.lines.append(f"{pad}try:")
        self.block(pad, depth)
        self.lines.append(f"{pad}    i1 = {self.pick('l0[i0]', '1 // i2', self.int_())}")
        self.lines.append(f"{pad}except {self.pick('IndexError', 'Exception')}:")
        self.block(pad, depth)

    def helper(self, pad: str, depth: int) -> None:
        name = f"f{len(self.lines)}"
        self.lines.append(f"{pad}def {name}(a):")
        self.lines.append(f"{pad}    b = num(a)")
        if self.random.random() < 0.5:
            self.lines.append(f"{pad}    l1.append({self.pick('b', 'num(a)', 'a')})")
        self.lines.append(f"{pad}    return {self.pick('b', 'b + a', 'num(b)', 'len(l0) + a')}")
        if not pad:
            self.helpers.append(name)


class _Stop(BaseException):
    """The program looked at a result that is not known."""


class _Unknown:
    """A result that is not known: whoever looks at it stops the program. Printing does not look."""

    __slots__ = ()

    def _look(self, *_: Any) -> Any:
        raise _Stop

    __class__ = property(_look)  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _look
    __floordiv__ = __rfloordiv__ = __neg__ = __abs__ = __index__ = __int__ = __float__ = _look
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _look  # type: ignore[assignment]
    __hash__ = _look  # type: ignore[assignment]
    __bool__ = __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = __call__ = _look
    __reversed__ = _look

    def __getattr__(self, name: str) -> Any:
        raise _Stop

    def __repr__(self) -> str:
        return "?"

    def __format__(self, spec: str) -> str:
        if spec:
            raise _Stop
        return "?"


def least_rounds(source: str) -> int:
    """How many times a client must answer at least: each time all calls leave before the program looks."""
    known: list[Any] = []
    rounds = 0
    while fresh := _one_round(source, known):
        known += fresh
        rounds += 1
    return rounds


def _one_round(source: str, known: list[Any]) -> list[Any]:
    """The results of the calls that leave before the program looks at one that is not ``known``."""
    call_count = 0
    fresh: list[Any] = []

    def tool(name: str) -> Any:
        def call(x: Any) -> Any:
            nonlocal call_count
            if _holds_unknown(x):
                raise _Stop
            call_count += 1
            if call_count <= len(known):
                return json.loads(json.dumps(known[call_count - 1]))
            fresh.append(result(name, json.loads(json.dumps(x))))
            return _Unknown()

        return call

    with redirect_stdout(io.StringIO()), suppress(Exception, _Stop):
        exec(source, {name: tool(name) for name in NAMES})
    return fresh


def _holds_unknown(value: Any) -> bool:
    if type(value) is _Unknown:
        return True
    if isinstance(value, dict):
        return any(map(_holds_unknown, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_holds_unknown, value))
