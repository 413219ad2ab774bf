"""Stop the clock and chance of a kernel, so that a program can be run again. Runs inside the kernel.

The program, and nobody else, gets a `datetime` module whose `now` and `today` stand still: libraries in C
are compiled against the real classes and cannot be imported where these have been replaced.

Stops: nothing. A program can get at the real clock (`time.monotonic`, a library's own); it then does
something else in each run, which the host notices at its calls.
"""

import builtins
import datetime as dt
import os
import random
import sys
import time
import types
import uuid
from collections.abc import Callable
from typing import Any


def freeze(seed: int, rest: Callable[[], None]) -> None:
    """Stop the wall clock at `seed` microseconds since 1970 UTC and derive randomness from it.

    `rest` is called where the program sleeps.
    """
    seconds = seed / 1_000_000
    random.seed(seed)
    draw = random.Random(seed)
    uuid.uuid4 = lambda: uuid.UUID(int=draw.getrandbits(128), version=4)
    vars(uuid)["_generate_time_safe"] = None
    os.urandom = random.Random(seed + 1).randbytes
    vars(random)["_urandom"] = os.urandom  # of SystemRandom, and so of `secrets`

    def sleep(seconds: float, /) -> None:  # noqa: ARG001 - the clock stands still, and so does not wait
        rest()

    vars(time)["sleep"] = sleep
    time.time_ns = lambda: seed * 1000
    time.time = lambda: seconds
    for name in ("gmtime", "localtime"):
        setattr(time, name, _at_instant(getattr(time, name), seconds))
    instant = dt.datetime.fromtimestamp(seconds, dt.UTC)
    frozen = _frozen_datetime(instant)
    settled: set[str] = set()
    original = builtins.__import__

    def importing(name: str, *rest: Any, **named: Any) -> Any:
        found = original(name, *rest, **named)
        for library, settle in _LIBRARIES.items():
            if library not in settled and _is_imported(library):
                settled.add(library)
                settle(seed, instant)
        importer = rest[0] if rest else named.get("globals")
        by_program = importer is not None and importer.get("__name__") == "__main__"
        return frozen if by_program and name == "datetime" else found

    builtins.__import__ = importing


def _is_imported(library: str) -> bool:
    """Whether it is there, and not just on its way."""
    spec: Any = getattr(sys.modules.get(library), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _frozen_datetime(instant: dt.datetime) -> types.ModuleType:
    """The module `datetime` with classes that tell one instant and make no instances of themselves."""
    real, real_date = dt.datetime, dt.date

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, cls.__mro__[1])

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, cls.__mro__[1])

    class FrozenDatetime(dt.datetime, metaclass=Kind):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return instant.astimezone(tz) if tz else instant.replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return instant.replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class FrozenDate(dt.date, metaclass=Kind):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real_date(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return instant.date()

    module = types.ModuleType("datetime", dt.__doc__)
    vars(module).update({k: v for k, v in vars(dt).items() if not k.startswith("__")})
    for kind, original in ((FrozenDatetime, real), (FrozenDate, real_date)):
        kind.__name__ = kind.__qualname__ = original.__name__
        kind.__module__ = "datetime"
        setattr(module, original.__name__, kind)
    return module


def _settle_numpy(seed: int, instant: dt.datetime) -> None:  # noqa: ARG001
    chance: Any = sys.modules["numpy.random"]
    chance.seed(seed % 2**32)
    # What default_rng() takes its entropy from.
    chance.bit_generator.randbits = random.Random(seed).getrandbits


def _settle_pandas(seed: int, instant: dt.datetime) -> None:  # noqa: ARG001
    pandas: Any = sys.modules["pandas"]
    stamp = pandas.Timestamp
    now = stamp(instant.replace(tzinfo=None))
    stamp.now = stamp.today = staticmethod(
        lambda tz=None: stamp(instant).tz_convert(tz) if tz else now
    )
    stamp.utcnow = staticmethod(lambda: stamp(instant))


_LIBRARIES: dict[str, Callable[[int, dt.datetime], None]] = {
    "numpy.random": _settle_numpy,
    "pandas": _settle_pandas,
}


def _at_instant(function: Callable[..., Any], instant: float) -> Callable[..., Any]:
    return lambda seconds=None, /: function(instant if seconds is None else seconds)
