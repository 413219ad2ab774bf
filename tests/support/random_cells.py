"""Random notebook cells that call tools, and CPython with the same tools as the reference.

Two tools only read, one acts, and one runs code; a result contains the argument of its call. The cells share
variables, alias and grow lists, loop, comprehend, gather, and pass tools to executors.
"""

from __future__ import annotations

import ast
import asyncio
import io
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any

NAMES = ("get_price", "get_stock", "send", "run_code")
_START = """import asyncio
from concurrent.futures import ThreadPoolExecutor
a, b, n = 'p', 'qq', 1
xs = [a, b]
ys = xs
d = {}
"""


class Record(dict[str, Any]):
    """A result that may also be awaited."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather removes duplicates

    def __await__(self) -> Generator[Any, Any, Record]:
        yield from ()
        return self


def result(about: str) -> dict[str, Any]:
    return {"value": len(about), "of": about}


def reference(cells: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """All calls in order, and what was printed."""
    sent_calls: list[tuple[str, str]] = []

    def tool(name: str) -> Callable[[str], Record]:
        def call(about: str) -> Record:
            sent_calls.append((name, about))
            return Record(result(about))

        return call

    there: dict[str, Any] = {name: tool(name) for name in NAMES}
    out = io.StringIO()
    with redirect_stdout(out):
        for cell in cells:
            code = compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, there)
            if running is not None:
                asyncio.run(running)
    return sent_calls, out.getvalue()


def stretches(sent_calls: Sequence[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """The calls in order; neighbouring calls that only read are sorted, because they may change places."""
    reading: list[str] = []
    for name, about in sent_calls:
        if name.startswith("get_"):
            reading.append(f"{name}({about})")
        else:
            yield (*sorted(reading), f"{name}({about})")
            reading = []
    yield tuple(sorted(reading))


class CellWriter:
    """Writes the cells of one conversation from a source of randomness."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.fresh = 0

    def cells(self) -> list[str]:
        first = _START + self.block("", self.random.randint(1, 5))
        second = self.block("", self.random.randint(1, 5)) + "print(a, b, n, xs, ys, d)"
        return [first, second]

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def name(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def text(self, depth: int = 0, own: str = "") -> str:
        """An expression of a short text; `own` is a variable that may be used."""
        if depth > 1:
            return own or self.pick("a", "b", "'r'")
        inner = depth + 1
        return self.pick(
            lambda: self.pick("a", "b", own or "xs[0]", own or "'s'"),
            lambda: f"({self.text(inner, own)} + 't')[-3:]",
            lambda: f"f'{{{self.pick('n', 'len(xs)')}}}u'",
            lambda: f"{self.read(inner, own)}['of']",
            lambda: "xs[-1]",
        )()

    def read(self, depth: int = 0, own: str = "") -> str:
        return f"{self.pick('get_price', 'get_stock')}({self.text(depth + 1, own)})"

    def call(self, depth: int = 0, own: str = "") -> str:
        tool = self.pick("get_price", "get_price", "get_stock", "get_stock", "send", "run_code")
        return f"{tool}({self.text(depth + 1, own)})"

    def some(self) -> str:
        return self.pick("['e', 'ff']", "xs[:3]", "('g', a)", "{'h': 1, 'i': 2}", "list(d)[:3]")

    def block(self, pad: str, count: int, depth: int = 0) -> str:
        kinds = [self.assign, self.assign, self.grow, self.show, self.comprehend]
        if depth < 2:
            kinds += [self.branch, self.loop, self.attempt]
        if not pad:
            kinds += [self.helper, self.gather, self.awaits, self.executor]
        lines = (self.pick(*kinds)(pad, depth) for _ in range(count))
        return "".join(f"{line}\n" for line in lines)

    def assign(self, pad: str, _: int) -> str:
        return pad + self.pick(
            f"a = {self.text()}",
            f"b = {self.call()}['of'][-3:]",
            f"n, a = {self.call()}['value'] % 5, {self.text()}",
            "ys = xs[:]",
            "xs = ys",
        )

    def grow(self, pad: str, _: int) -> str:
        return pad + self.pick(
            f"d[{self.text()}] = {self.read()}['value']",
            f"ys.append({self.call()}['of'][-3:])",
            f"xs[0] = {self.text()}",
        )

    def show(self, pad: str, _: int) -> str:
        return pad + self.pick(
            f"print({self.call()}['value'], {self.read()}['of'])",
            f"print(f\"{{{self.read()}['value']}}!\")",
            f"{self.call()}",
        )

    def comprehend(self, pad: str, _: int) -> str:
        item = self.name()
        inner = self.call(1, item)
        return pad + self.pick(
            f"print([{inner}['value'] for {item} in {self.some()}])",
            f"print({{{item}: {inner}['of'] for {item} in {self.some()}}})",
            f"print(any({inner}['value'] > 1 for {item} in {self.some()}))",
            f"xs = [{self.text()}, {self.call()}['of'][-3:]]",
        )

    def branch(self, pad: str, depth: int) -> str:
        inner = pad + "    "
        return (
            f"{pad}if {self.read()}['value'] > {self.pick('1', '2', 'n')}:\n"
            f"{self.block(inner, 1, depth + 1)}{pad}else:\n{self.block(inner, 1, depth + 1)}"
        )

    def loop(self, pad: str, depth: int) -> str:
        body = self.block(pad + "    ", self.random.randint(1, 2), depth + 1)
        stop = self.pick("", f"{pad}    if n > 2:\n{pad}        break\n")
        return f"{pad}for {self.pick('a', 'b', self.name())} in {self.some()}:\n{body}{stop}"

    def attempt(self, pad: str, depth: int) -> str:
        inner = pad + "    "
        return (
            f"{pad}try:\n{self.block(inner, 1, depth + 1)}{inner}1 // (n - 1)\n"
            f"{pad}except ZeroDivisionError:\n{self.block(inner, 1, depth + 1)}"
        )

    def helper(self, pad: str, depth: int) -> str:
        name = self.name()
        return (
            (
                f"def {name}(a):\n{self.block('    ', 1, depth + 1).replace('n += ', 'k = ')}"
                f"    return {self.call(1, 'a')}['value']\n"
                f"print({name}({self.text()}), [{name}(q) for q in {self.some()}])"
            )
            .replace("    n = ", "    k = ")
            .replace("n, a = ", "k, a = ")
        )

    def gather(self, pad: str, depth: int) -> str:
        name = self.name()
        steps = f"    x = await {self.read(1, 'q')}\n    y = await get_stock(x['of'])\n"
        return (
            f"async def {name}(q):\n{steps}    return x['value'], y['of']\n"
            f"print(await asyncio.gather(*({name}(q) for q in {self.some()})))"
        )

    def awaits(self, pad: str, depth: int) -> str:
        return self.pick(
            f"print((await {self.call()})['of'])",
            f"print([(await {self.call(1, 'q')})['of'] for q in {self.some()}])",
            f"print(await asyncio.gather({self.call()}, {self.call()}))",
        )

    def executor(self, pad: str, depth: int) -> str:
        name = self.name()
        function = self.pick("get_price", f"lambda q: {self.call(1, 'q')}")
        return (
            f"with ThreadPoolExecutor(1) as {name}:\n"
            f"    print([r['of'] for r in {name}.map({function}, {self.some()})])"
        )
