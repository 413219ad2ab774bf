"""What a program gets from a call: `Unknown` until the result arrives, a failure, or a value.

To look at an unknown result is an act of the interpreter: it calls a slot of the value's type. The run ends
there and then, without an exception that a handler of the program could swallow. Storing a value and passing
it on are no looks. C code that tests a type without asking raises instead (`run` watches for that), and
`asking` wraps what asks without a slot.

A failure is a text or an object that carries the positions of the calls that failed; what is cut from it or
made of it carries them on. The program has looked at a failure when the failure answered it, in one of three
ways; `Watch.looked` notes the positions:

* The program asked for something of its own, and the failure has it (`_QUESTIONS`, and the patterns of
  `asking`): a text is found, a comparison is equal, a key is there, whatever its value. A negative answer is
  no look, since every failure gives it: ``"ERROR" in log`` is false, ``t != "clean"`` is true.
* A conversion raises.
* A handler of the program catches it (`run.Run.caught`).

Truth, order, length, hash and type are no questions: a failure answers them as any result does.

What may never happen: a failure answers the program as a result, and a call is made from the answer.

Does not know who ends a run, or why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

from sandbox.inside import values
from sandbox.inside.values import ARRAYS, fields_of

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


class ToolError(values.ToolError):
    """A call failed where the program has a handler for it. Its message carries the failure on."""

    failed: frozenset[int] = frozenset()
    raises = False

    def __init__(self, failed: Any = "") -> None:
        self.failed = getattr(failed, "failed", frozenset())
        text = getattr(failed, "text", "") or str(failed)
        super().__init__(failure(text, self.failed) if self.failed else text)


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
    marked.text = getattr(value, "text", "")
    # Keys that the program adds are no answers.
    marked.sent = frozenset(value) if isinstance(value, dict) else ()
    return marked


def plain_text(text: str) -> str:
    """`text` without the failures that it carries."""
    return str.__str__(text)


def _plain_dict(value: Any) -> dict[Any, Any]:
    return dict(dict.items(value))  # not by its own keys(), which carry the failure


def seen(value: Any) -> Any:
    """`value`, which the program looks at."""
    arrived(value)
    if is_failed(value):
        WATCH.looked.update(value.failed)
    return value


def arrived(value: Any) -> Any:
    """`value`. The run ends if it is an unknown result."""
    if is_unknown(value):
        WATCH.look()
    return value


def arrived_deep(value: Any, depth: int = 4) -> Any:
    """`value`. The run ends if a part of it that ``match`` may look at is an unknown result."""
    arrived(value)
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
        arrived_deep(part, depth - 1)
    return value


def failed_in(values: Iterable[Any]) -> frozenset[int]:
    """The positions of the failed calls in `values`."""
    return frozenset().union(*(value.failed for value in values if is_failed(value)))


def passed_failures(value: Any) -> Iterator[int]:
    """The positions of the failed calls in an argument that JSON can hold, also in its parts."""
    if is_failed(value):
        yield from value.failed
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from passed_failures(pair)
    elif isinstance(value, ARRAYS):
        for item in value:
            yield from passed_failures(item)
    elif (fields := fields_of(value)) is not None:
        yield from passed_failures(fields)


_CARRIED = frozenset(
    """strip lstrip rstrip lower upper title capitalize casefold swapcase replace removeprefix removesuffix
    expandtabs zfill ljust rjust center split rsplit splitlines partition rpartition translate format
    format_map join popitem __add__ __mul__ __rmul__ __mod__ __rmod__ __repr__
    __format__""".split()
)
"""Methods whose result is a failure, too."""


def _is_found(place: Any) -> bool:
    return place is not None and place >= 0


def _is_true(answer: Any) -> bool:
    return answer is True


_QUESTIONS: dict[type, dict[str, tuple[Any, Callable[[Any], bool]]]] = {
    str: {
        "__eq__": (str.__eq__, _is_true),
        "__ne__": (str.__eq__, _is_true),
        "__contains__": (str.__contains__, bool),
        "startswith": (str.startswith, bool),
        "endswith": (str.endswith, bool),
        "count": (str.count, bool),
        "find": (str.find, _is_found),
        "index": (str.find, _is_found),
        "rfind": (str.find, _is_found),
        "rindex": (str.find, _is_found),
    },
    dict: {
        "__eq__": (dict.__eq__, _is_true),
        "__ne__": (dict.__eq__, _is_true),
    }
    | dict.fromkeys(
        ("__contains__", "__getitem__", "get", "pop", "setdefault"),
        (lambda failed, key, *_: dict.__contains__(failed, key) and key in failed.sent, bool),
    ),
}
"""The methods that ask a failure for something: the question, and which of its answers are positive."""


def answers(question: Callable[[Any], Any], failed: Any, is_positive: Any = bool) -> bool:
    """Return True if a failure answers, and not merely as an empty value would: ``"" in t`` asks nothing."""
    return bool(is_positive(question(failed)) and not is_positive(question(failed.like())))


def _asking(method: Any, question: Any, is_positive: Callable[[Any], bool]) -> Any:
    def ask(self: Any, *args: Any) -> Any:
        # Two failures that are equal say nothing, nor does a key that the program has from the failure.
        if failed_in(args):
            bare = (plain_text(one) if isinstance(one, FailedText) else one for one in args)
            return failure(method(self, *bare), self.failed)
        is_answered = answers(lambda value: question(value, *args), self, is_positive)
        answer = method(self, *args)
        if is_answered:
            seen(self)
        return answer

    return ask


def _copied(value: Any, failed: Iterable[int], sent: Any) -> Any:
    copy = failure(value, failed)
    copy.sent = sent
    return copy


def _carrying(method: Any) -> Any:
    return lambda self, *args, **kwargs: failure(method(self, *args, **kwargs), self.failed)


def converted(conversion: Callable[[Any], Any], text: Any) -> Any:
    """A failed text as a number or the like. It is a look if that raises."""
    try:
        return conversion(plain_text(text))
    except ValueError:
        seen(text)
        raise


def _failed_type(base: type, **special: Any) -> Any:
    asking = {name: _asking(getattr(base, name), *row) for name, row in _QUESTIONS[base].items()}
    bare: Any = plain_text if base is str else _plain_dict
    carrying = {name: _carrying(getattr(base, name)) for name in _CARRIED if hasattr(base, name)}
    own = {
        "failed": frozenset(),
        "raises": False,
        "text": "",
        "sent": (),
        "like": base,
        "__hash__": base.__hash__,
        "__await__": _settle,
        "__reduce_ex__": lambda self, _: (_copied, (bare(self), self.failed, self.sent)),
    }
    return type(base.__name__, (base,), asking | carrying | own | special)


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
    __int__=lambda self: converted(int, self),
    __float__=lambda self: converted(float, self),
)
FailedDict: Any = _failed_type(
    dict,
    __str__=_carrying(dict.__repr__),
    __iter__=_keys,
    copy=lambda self: _copied(_plain_dict(self), self.failed, self.sent),
    keys=lambda self: [*self],
    values=lambda self: failure(list(dict.values(self)), self.failed),
    items=lambda self: failure(list(dict.items(self)), self.failed),
    __or__=lambda self, other: dict(self.items()) | other,
    __ror__=lambda self, other: other | dict(self.items()),
)
