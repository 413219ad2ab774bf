"""What is measured, and on which servers. Bodies are made once; sizes are in characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.load import requests

ALL = ("bare", "reparsed", "proxy", "litellm")
OURS = ("proxy",)
PROXIES = ("reparsed", "proxy", "litellm")
Bodies = Callable[[int], list[bytes]]
"""So many requests."""


@dataclass(frozen=True)
class Case:
    name: str
    bodies: Bodies
    servers: Sequence[str] = ALL
    at_once: int = 4
    count: int = 60
    """Requests of a round, of each server."""
    warm: bool = True
    """The same request was made before."""


def same(body: bytes) -> Bodies:
    return lambda count: [body] * count


chat = requests.chat
ONE = [requests.WEATHER]
_seed = [0]


def others(model: str) -> Bodies:
    """Requests each of which is answered with a program that was never run before."""

    def bodies(count: int) -> list[bytes]:
        _seed[0] += count
        return [chat(f"{model}-{_seed[0] + n}", tools=ONE) for n in range(count)]

    return bodies


PASSED = (
    Case("plain, a reply of 1 chunk", same(chat("say-200-200"))),
    Case("plain, a reply of 50 chunks", same(chat("say-200-4-1")), at_once=8),
    Case("streamed, 50 chunks 1 ms apart", same(chat("say-200-4-1", stream=True)), at_once=8),
)
EMULATED = (
    Case("emulated call, plain", same(chat("call", tools=ONE)), PROXIES),
    Case("emulated call, streamed", same(chat("call", tools=ONE, stream=True)), PROXIES),
    Case("emulated call, different each time", others("fresh"), OURS),
)
"""The others are asked the same, tools and all, and pass the same reply on as text: they emulate nothing."""


@dataclass(frozen=True)
class Growth:
    """One dimension."""

    name: str
    sizes: Sequence[int]
    case: Callable[[int], Case]
    unit: str = ""


def _history(size: int, *, emulated: bool) -> Case:
    body = chat("call", history=size, tools=ONE) if emulated else chat("say-200-200", history=size)
    return Case("", same(body), OURS, count=12)


def _tools(size: int, *, cold: bool) -> Case:
    def bodies(count: int) -> list[bytes]:
        _seed[0] += count
        return [chat("call", tools=requests.tools(size, _seed[0] + n)) for n in range(count)]

    if cold:
        return Case("", bodies, OURS, at_once=1, count=2, warm=False)
    return Case("", same(chat("call", tools=requests.tools(size))), OURS, count=12)


def _reply(size: int) -> Case:
    return Case("", same(chat(f"say-{size}-100", stream=True)), OURS, count=4)


def _read_reply(size: int) -> Case:
    return Case("", same(chat(f"say-{size}-100", stream=True, tools=ONE)), OURS, count=3)


def _result(size: int) -> Case:
    body = chat("say-200-200", messages=requests.with_result(size), tools=ONE)
    return Case("", same(body), OURS, count=8)


def _program(size: int, *, cold: bool) -> Case:
    # One tool call is its last line: the model writes so many lines before.
    if cold:
        return Case("", others(f"pure-{size}"), OURS, at_once=1, count=3, warm=False)
    return Case("", same(chat(f"pure-{size}", tools=ONE)), OURS, count=6)


GROWTH = (
    Growth("history, passed through", (0, 50, 500, 1600), partial(_history, emulated=False), "messages"),
    Growth("history, emulated call", (0, 50, 500, 1600), partial(_history, emulated=True), "messages"),
    Growth("tools, seen before", (1, 10, 100, 500), partial(_tools, cold=False), "tools"),
    Growth("tools, new ones", (1, 10, 100, 500), partial(_tools, cold=True), "tools"),
    Growth("reply, passed through", (1_000, 10_000, 100_000, 1_000_000), _reply, "characters"),
    Growth("reply, read for calls", (1_000, 10_000, 100_000, 1_000_000), _read_reply, "characters"),
    Growth("tool result", (1_000, 10_000, 100_000, 1_000_000), _result, "characters"),
    Growth("program, run before", (5, 50, 200, 500), partial(_program, cold=False), "lines"),
    Growth("program, a new one", (5, 50, 200, 500), partial(_program, cold=True), "lines"),
)  # fmt: skip
