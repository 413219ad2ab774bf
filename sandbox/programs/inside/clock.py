"""The clock and random numbers of a program, which is run again: they are the same in each run.

The clock starts at the program's seed (microseconds since 1970, UTC) and moves only when the program sleeps.

Stops: nothing. A program can reach the machine's clock; it may then make other calls in each run, which is
noticed.
"""

from __future__ import annotations

import builtins
import datetime as dt
import os
import random
import time
import types
import uuid
from collections.abc import Callable
from typing import Any

_clock = {"start": 0.0, "elapsed": 0.0}
_draw = random.Random(0)


def advance(seconds: float) -> None:
    _clock["elapsed"] += seconds


def elapsed() -> float:
    """Seconds since the program started."""
    return _clock["elapsed"]


def now() -> float:
    """Seconds since 1970."""
    return _clock["start"] + _clock["elapsed"]


def set_seed(seed: int) -> None:
    """Start the clock, and the random numbers, of a program."""
    _clock.update(start=seed / 1_000_000, elapsed=0.0)
    _draw.seed(seed)
    random.seed(seed)


def _sleep(seconds: float, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    advance(seconds)


def install() -> None:
    """Once, in the server."""
    module: Any = time
    module.sleep, module.time, module.time_ns = _sleep, now, lambda: int(now() * 1e6) * 1000
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(module, name, elapsed)
        setattr(module, f"{name}_ns", lambda: int(elapsed() * 1e9))
    for name in ("gmtime", "localtime", "ctime"):
        setattr(module, name, _at_now(getattr(time, name)))
    for name, place in (("strftime", 1), ("asctime", 0)):
        setattr(module, name, _with_local_time(getattr(time, name), place))
    _install_random()
    _install_dates()


def _at_now(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda seconds=None, /: function(now() if seconds is None else seconds)


def _with_local_time(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    def at_now(*args: Any) -> Any:
        return function(*args) if len(args) > place else function(*args, time.localtime())

    return at_now


def _install_random() -> None:
    seed: Any = random.Random.seed

    def seed_same(self: Any, a: Any = None, version: int = 2) -> None:
        seed(self, _draw.getrandbits(128) if a is None else a, version)

    package: Any = random
    package.Random.seed = seed_same
    package.seed = package._inst.seed  # noqa: SLF001 - bound when random was imported
    package._urandom = os.urandom = _draw.randbytes  # noqa: SLF001 - SystemRandom's and secrets'
    uuid.uuid4 = lambda: uuid.UUID(int=_draw.getrandbits(128), version=4)
    vars(uuid)["_generate_time_safe"] = None


def _install_dates() -> None:
    """Give the program a module `datetime` whose clock is ours. C code is compiled against the real classes,
    so they stay, and the classes of the module make instances of them."""
    real, real_date = dt.datetime, dt.date

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, cls.__mro__[1])

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, cls.__mro__[1])

    class Datetime(dt.datetime, metaclass=Kind):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            instant = real.fromtimestamp(now(), dt.UTC)
            return instant.astimezone(tz) if tz else instant.replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now()

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class Date(dt.date, metaclass=Kind):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real_date(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return Datetime.now().date()

    module = types.ModuleType("datetime", dt.__doc__)
    vars(module).update({k: v for k, v in vars(dt).items() if not k.startswith("__")})
    for kind, original in ((Datetime, real), (Date, real_date)):
        kind.__name__ = kind.__qualname__ = original.__name__
        kind.__module__ = "datetime"
        setattr(module, original.__name__, kind)
    original_import = builtins.__import__

    def import_dates(name: str, *rest: Any, **named: Any) -> Any:
        found = original_import(name, *rest, **named)
        importer = rest[0] if rest else named.get("globals")
        by_program = importer is not None and importer.get("__name__") == "__main__"
        return module if by_program and name == "datetime" else found

    builtins.__import__ = import_dates
