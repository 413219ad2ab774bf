"""Make the calls of a cell that need not wait for each other together. Runs inside the kernel.

What `kernel_calls` puts into a cell is defined here. Several calls leave as one JSON array, the reply to
which is an array of the results of the first of them: how many is the host's to decide. A call that is
wrong, or whose arguments raise, does so when its turn comes.

Stops: nothing; the host reads what comes from here as it reads any call.
"""

# ruff: noqa: SLF001 - frames have no public way to their callers
import ast
import asyncio
import contextlib
import copy
import itertools
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

from sandbox.kernel_calls import BEGIN, EACH, LATER, TAKEN, Groups
from sandbox.values import AWAITED, plain

OFFERED: dict[str, Callable[..., Any]] = {}
"""The functions that pause."""
REPLY = "reply"
"""The attribute of such a function which gives the host's reply to calls."""

_LARGEST_CALL = 1000 * 1000
_MOST_AHEAD = 64


def look_ahead(shell: Any) -> None:
    """Let this kernel tell calls before their turn."""
    shell.user_ns.update({BEGIN: _begin, TAKEN: _taken, LATER: _Later, EACH: _each})
    shell.ast_transformers.append(_Transformer(shell.user_ns))


def written(
    name: str, args: Sequence[Any], kwargs: dict[str, Any], line: int | None, batch: int = 0
) -> str:
    """A call as the host reads it. Raises TypeError or ValueError where it would not."""
    try:
        call = {
            "name": name,
            "args": [plain(v, f"{name}() argument {i}") for i, v in enumerate(args, 1)],
            "kwargs": {k: plain(v, f"{name}() argument {k}") for k, v in kwargs.items()},
            "line": line,
            "batch": batch,
        }
    except TypeError as error:
        raise TypeError(str(error)) from None
    text = json.dumps(call, allow_nan=False)
    if len(text) > _LARGEST_CALL:  # the host would not take it, and zmq might die of it
        raise ValueError(f"{name}() was given more than {_LARGEST_CALL} characters")
    return text


class _Later:
    """A call that is not made yet: what `_later_` gives."""

    def __init__(
        self, batch: int, line: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> None:
        self._batch, self._line = batch, line
        self._function, self._args, self._kwargs = function, args, kwargs

    def made(self) -> Any:
        return self._function(*self._args, **self._kwargs)

    def reply(self, calls: str) -> Any:
        return vars(self._function)[REPLY](calls)

    def written(self) -> str | None:
        """For the host, None where the call is not one that pauses."""
        name = getattr(self._function, "__name__", "")
        if self._function is not OFFERED.get(name):
            return None
        return written(name, self._args, self._kwargs, self._line, self._batch)


class _Group:
    """Calls of a cell, of which the first are made together when the result of one is needed."""

    def __init__(self, calls: Sequence[Callable[[], _Later]]) -> None:
        self._calls = deque(calls)
        self._results: deque[Any] = deque()

    def __call__(self) -> Any:
        """The result of the next one."""
        if not self._results:
            self._results.extend(self._made())
        self._calls.popleft()
        return self._results.popleft()

    def _made(self) -> list[Any]:
        first = self._calls[0]()
        texts: list[str] = []
        # What is wrong with a call is told when its turn comes.
        with contextlib.suppress(Exception):
            for call in itertools.islice(self._calls, _MOST_AHEAD):
                text = (first if not texts else call()).written()
                if text is None or sum(map(len, texts)) + len(text) > _LARGEST_CALL:
                    break
                texts.append(text)
        if len(texts) < 2:
            return [first.made()]
        results: list[Any] = first.reply(f"[{','.join(texts)}]")
        return results


_groups: dict[tuple[int, int], _Group] = {}
"""By place in the code, and frame."""


def _begin(site: int, first: _Later, *others: Callable[[], _Later]) -> Any:
    group = _groups[_place(site)] = _Group([lambda: first, *others])
    return group()


def _taken(site: int) -> Any:
    return _groups[_place(site)]()


def _place(site: int) -> tuple[int, int]:
    frame = sys._getframe(2)
    # Each statement of a cell has a frame of its own.
    return site, 0 if frame.f_locals is frame.f_globals else id(frame)


def _each(items: Iterator[tuple[Any, tuple[_Later, ...]]]) -> Iterator[tuple[Any, _Group]]:
    """What a comprehension goes over, with the calls of each item. Only what is there is taken ahead."""
    frame: Any = getattr(items, "gi_frame", None)
    source = frame and frame.f_locals.get(".0")
    most = 1 if isinstance(source, GeneratorType) else _MOST_AHEAD
    failed: Exception | None = None
    while failed is None:
        chunk: list[tuple[Any, tuple[_Later, ...]]] = []
        try:
            for item in itertools.islice(items, most):
                chunk.append(item)  # noqa: PERF402 - those before an error count
        except Exception as error:  # noqa: BLE001 - it is raised in its turn
            failed = error
        if not chunk:
            break
        group = _Group([partial(_same, call) for _, calls in chunk for call in calls])
        for kept, _ in chunk:
            yield kept, group
    if failed is not None:
        raise failed


def _same(call: _Later) -> _Later:
    return call


class _Transformer(ast.NodeTransformer):
    """What IPython gives each piece of code to."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self._variables = variables
        self._rewriter = Groups(OFFERED.keys, AWAITED)

    def visit(self, node: ast.AST) -> ast.AST:
        _groups.clear()
        there = self._variables
        if not isinstance(node, ast.Module) or there.get("asyncio", asyncio) is not asyncio:
            return node
        own = (value for value in list(there.values()) if isinstance(value, type))
        plain = not any(kind.__module__ == "__main__" for kind in own)
        before = copy.deepcopy(node)
        try:
            return self._rewriter.rewrite(node, {*there}, plain=plain)
        except RecursionError:
            return before
