"""What a program gets from a call: `Unknown` until the result arrives, a failure, or a value.

To look at an unknown result is an act of the interpreter: it calls a slot of the value's type. The run ends
there and then, without an exception that a handler of the program could swallow. Storing a value and passing
it on are no looks. C code that tests a type without asking raises instead (`run` watches for that), and
`asking` wraps what asks without a slot.

A failure is a text or an object that carries the positions of the calls that failed. Looking at it (a
comparison, ``in``, truth, a key, ``find`` and ``startswith``, a conversion) notes the positions in
`Watch.looked`; texts and slices made of it carry them on. So the host can compare: which failures has the
program not looked at?

Does not know who ends a run, or why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

_SLOTS = """
    bool len iter next contains getitem setitem delitem eq ne lt le gt ge hash str repr format bytes int float
    complex index round trunc floor ceil neg pos abs invert add sub mul truediv floordiv mod divmod pow lshift
    rshift and xor or matmul radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand rxor ror
    rmatmul iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul enter exit
    aenter aexit reversed length_hint fspath copy deepcopy reduce_ex reduce aiter anext dir sizeof
    instancecheck subclasscheck getattribute setattr delattr set_name get set delete mro_entries
    getstate""".split()


class Watch:
    """What the run has noted about its results."""

    def __init__(self) -> None:
        self.looked: set[int] = set()
        """Positions of the failed calls that the program has looked at."""
        self.look: Callable[[], NoReturn] = _no_run
        """Ends the run, or the expression whose output is lost anyway."""
        self.is_handled: Callable[[FrameType], bool] = lambda frame: False  # noqa: ARG005
        """Would a handler that is active in a frame, or in its callers, catch a `ToolError`?"""


def _no_run() -> NoReturn:
    raise RuntimeError("no run has started")


WATCH = Watch()
"""A process runs one program."""


# Results that have not arrived


def _trap(*_: Any, **__: Any) -> NoReturn:
    WATCH.look()


def _settle(result: Any) -> Generator[Any, Any, Any]:
    return settled(result).__await__()


# Without __call__: C code that only asks whether a value can be called must fail, and is noticed.
Unknown: Any = type(
    "Unknown",
    (),
    {f"__{name}__": _trap for name in _SLOTS}
    | {"__slots__": ("must_arrive",), "__await__": _settle},
)


def unknown(*, must_arrive: bool = False) -> Any:
    """A result that has not arrived. It `must_arrive` if a handler would catch the failure of its call."""
    value = Unknown()
    object.__setattr__(value, "must_arrive", must_arrive)
    return value


def is_unknown(value: Any) -> bool:
    return type(value) is Unknown


async def settled(result: Any) -> Any:
    """What ``await f()`` of a tool returns. Every other task gets exactly one turn, whether or not the result
    is known, so that a replay has the schedule of the run before."""
    await asyncio.sleep(0)
    if is_unknown(result):
        if object.__getattribute__(result, "must_arrive"):
            WATCH.look()
    elif is_failed(result) and result.raises:
        raise ToolError(result)
    return result


def must_have_succeeded(results: Iterable[Any]) -> None:
    """End the run if one of these results is unknown; raise the first failure."""
    results = [*results]
    if any(map(is_unknown, results)):
        WATCH.look()
    for result in results:
        if is_failed(result):
            raise ToolError(result)


# Failures


class ToolError(RuntimeError):
    """A call failed where the program has a handler for it. The message is the text of the failure."""

    failed: frozenset[int] = frozenset()
    raises = False

    def __init__(self, failure: Any = "") -> None:
        is_text = isinstance(failure, str)
        super().__init__(plain_text(failure) if is_text else dict.__repr__(failure))
        self.failed = getattr(failure, "failed", frozenset())


def is_failed(value: Any) -> bool:
    return type(value) is not Unknown and hasattr(type(value), "failed")


def failure(value: Any, failed: Iterable[int], *, raises: bool = False) -> Any:
    """`value`, or a value derived from it, as a failure of the calls at the positions `failed`."""
    if type(value) in (list, tuple):
        return type(value)(failure(item, failed) for item in value)
    if not isinstance(value, str | dict):
        return value
    marked = FailedText(value) if isinstance(value, str) else FailedDict(value)
    marked.failed, marked.raises = frozenset(failed), raises
    return marked


def plain_text(text: str) -> str:
    """`text` without the failures that it carries."""
    return str.__str__(text)


def seen(value: Any) -> Any:
    """`value`, which the program looks at."""
    if is_unknown(value):
        WATCH.look()
    if is_failed(value):
        WATCH.looked.update(value.failed)
    return value


def seen_deep(value: Any, depth: int = 4) -> Any:
    """`value`, with its parts, as ``match`` looks at it."""
    seen(value)
    if not depth:
        return value
    parts: Iterable[Any] = ()
    if type(value) in (list, tuple, set):
        parts = value
    elif type(value) is dict:
        parts = value.values()
    elif hasattr(type(value), "__match_args__") and hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in parts:
        seen_deep(part, depth - 1)
    return value


def failed_in(values: Iterable[Any]) -> frozenset[int]:
    """The positions of the failed calls in `values`."""
    return frozenset().union(*(value.failed for value in values if is_failed(value)))


_QUIET = frozenset(
    "new init getattribute setattr delattr init_subclass subclasshook class dir class_getitem sizeof len"
    " reduce reduce_ex getnewargs getstate doc dict encode".split()
)
"""Neither a look nor a text that carries the failure on."""
_CARRIED = frozenset(
    """strip lstrip rstrip lower upper title capitalize casefold swapcase replace removeprefix removesuffix
    expandtabs zfill ljust rjust center split rsplit splitlines partition rpartition translate format join
    copy __add__ __mul__ __rmul__ __mod__ __rmod__ __or__ __repr__ __format__""".split()
)


def _looking(method: Any) -> Any:
    return lambda self, *args, **kwargs: method(seen(self), *args, **kwargs)


def _carrying(method: Any) -> Any:
    return lambda self, *args, **kwargs: failure(method(self, *args, **kwargs), self.failed)


def _failed_type(base: type, **special: Any) -> Any:
    methods = {
        name: (_carrying if name in _CARRIED else _looking)(getattr(base, name))
        for name in dir(base)
        if name.strip("_") not in _QUIET and callable(getattr(base, name))
    }
    own = {"failed": frozenset(), "raises": False, "like": base, "__await__": _settle}
    truth = {"__bool__": lambda self: len(seen(self)) > 0}
    return type(base.__name__, (base,), methods | own | truth | special)


def _characters(self: Any) -> Iterator[Any]:
    return (failure(character, self.failed) for character in str.__iter__(self))


def _keys(self: Any) -> Iterator[Any]:
    return (failure(key, self.failed) for key in dict.__iter__(self))


FailedText: Any = _failed_type(
    str,
    __str__=lambda self: self,
    __getitem__=_carrying(str.__getitem__),
    __iter__=_characters,
    __radd__=lambda self, other: failure(other + plain_text(self), self.failed),
    __int__=lambda self: int(plain_text(seen(self))),
    __float__=lambda self: float(plain_text(seen(self))),
)
FailedDict: Any = _failed_type(
    dict,
    __str__=_carrying(dict.__repr__),
    __iter__=_keys,
    keys=lambda self: [*self],
    values=lambda self: failure(list(dict.values(self)), self.failed),
    items=lambda self: failure(list(dict.items(self)), self.failed),
)
