"""`cached_property` computes an attribute at its first use and takes no lock.

Before Python 3.12, `functools.cached_property` holds one lock for all instances of the class while it
computes (python/cpython#87634): what is slow for one request, such as a read of the store, delays the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 (as the decorator that it replaces)
    """Threads that use the attribute for the first time at the same time may each compute it. All of them get
    the value that was stored first."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
