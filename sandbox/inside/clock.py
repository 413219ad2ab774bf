"""Freeze the clock and random numbers of a kernel, so that a program can be run again. Runs inside the
kernel.

Only the program gets a `datetime` module whose `now` and `today` are frozen: libraries in C are compiled
against the real classes, and their import fails if these are replaced.

Stops: nothing. A program can reach the real clock (`time.monotonic`, a library's own). It may then make other
calls in each run, which the host notices.
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


def freeze(seed: int, on_sleep: Callable[[], None]) -> None:
    """Freeze the wall clock at `seed` microseconds since 1970 UTC and derive random numbers from it.

    `on_sleep` is called when the program sleeps.
    """
    seconds = seed / 1_000_000
    random.seed(seed)
    draw = random.Random(seed)
    uuid.uuid4 = lambda: uuid.UUID(int=draw.getrandbits(128), version=4)
    vars(uuid)["_generate_time_safe"] = None
    os.urandom = random.Random(seed + 1).randbytes
    vars(random)["_urandom"] = os.urandom  # of SystemRandom, and so of `secrets`

    def sleep(seconds: float, /) -> None:  # noqa: ARG001 - no time passes
        on_sleep()

    vars(time)["sleep"] = sleep
    time.time_ns = lambda: seed * 1000
    time.time = lambda: seconds
    for name in ("gmtime", "localtime"):
        setattr(time, name, _at_instant(getattr(time, name), seconds))
    instant = dt.datetime.fromtimestamp(seconds, dt.UTC)
    frozen = _frozen_datetime(instant)
    frozen_libraries: set[str] = set()
    original = builtins.__import__

    def import_frozen(name: str, *rest: Any, **named: Any) -> Any:
        module = original(name, *rest, **named)
        for library, freeze_library in _LIBRARIES.items():
            if library not in frozen_libraries and _is_imported(library):
                frozen_libraries.add(library)
                freeze_library(seed, instant)
        importer = rest[0] if rest else named.get("globals")
        by_program = importer is not None and importer.get("__name__") == "__main__"
        return frozen if by_program and name == "datetime" else module

    builtins.__import__ = import_frozen


def _is_imported(library: str) -> bool:
    """Return True if a module is imported completely."""
    spec: Any = getattr(sys.modules.get(library), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _frozen_datetime(instant: dt.datetime) -> types.ModuleType:
    """The module `datetime` with classes whose clock is at `instant`, and which make instances of the real
    ones."""
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


def _freeze_numpy(seed: int, instant: dt.datetime) -> None:  # noqa: ARG001
    random_module: Any = sys.modules["numpy.random"]
    random_module.seed(seed % 2**32)
    # The source of entropy of default_rng().
    random_module.bit_generator.randbits = random.Random(seed).getrandbits


def _freeze_pandas(seed: int, instant: dt.datetime) -> None:  # noqa: ARG001
    pandas: Any = sys.modules["pandas"]
    stamp = pandas.Timestamp
    now = stamp(instant.replace(tzinfo=None))
    stamp.now = stamp.today = staticmethod(
        lambda tz=None: stamp(instant).tz_convert(tz) if tz else now
    )
    stamp.utcnow = staticmethod(lambda: stamp(instant))


_LIBRARIES: dict[str, Callable[[int, dt.datetime], None]] = {
    "numpy.random": _freeze_numpy,
    "pandas": _freeze_pandas,
}


def _at_instant(function: Callable[..., Any], instant: float) -> Callable[..., Any]:
    return lambda seconds=None, /: function(instant if seconds is None else seconds)
