"""Calls of a cell that are made together, before their turn. Runs inside the kernel.

Several calls leave as one JSON array, the reply to which is an array of the results of the first of them: how
many is the host's to decide. A call that is wrong, or whose arguments raise, does so when its turn comes.

Stops: nothing; the host reads what comes from here as it reads any call.
"""

# ruff: noqa: SLF001 - frames have no public way to their callers
import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sandbox.inside.values import plain

OFFERED: dict[str, Callable[..., Any]] = {}
"""The functions that pause."""
REPLY = "reply"
"""The attribute of such a function which gives the host's reply to calls."""

LARGEST_CALL = 1000 * 1000
MOST_AHEAD = 64


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
    if len(text) > LARGEST_CALL:  # the host would not take it, and zmq might die of it
        raise ValueError(f"{name}() was given more than {LARGEST_CALL} characters")
    return text


class Later:
    """A call that is not made yet: what `_later_` gives."""

    def __init__(
        self, batch: int, line: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> None:
        self.batch, self._line = batch, line
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
        return written(name, self._args, self._kwargs, self._line or None, self.batch)


class Group:
    """Calls of a cell, of which the first are made together when the result of one is needed."""

    def __init__(self, calls: Sequence[Callable[[], Later]]) -> None:
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
            for call in itertools.islice(self._calls, MOST_AHEAD):
                text = (first if not texts else call()).written()
                if text is None or sum(map(len, texts)) + len(text) > LARGEST_CALL:
                    break
                texts.append(text)
        if len(texts) < 2:
            return [first.made()]
        results: list[Any] = first.reply(f"[{','.join(texts)}]")
        return results


groups: dict[tuple[int, int], Group] = {}
"""By place in the code, and frame."""


def begin(site: int, first: Later, *others: Callable[[], Later], depth: int = 2) -> Any:
    group = groups[place(site, depth)] = Group([lambda: first, *others])
    return group()


def taken(site: int) -> Any:
    return groups[place(site)]()


def place(site: int, depth: int = 2) -> tuple[int, int]:
    """The site, and the frame of the cell that is there, so many calls away."""
    frame = sys._getframe(depth)
    # Each statement of a cell has a frame of its own.
    return site, 0 if frame.f_locals is frame.f_globals else id(frame)
