"""Which exceptions C code raises because a value is an `Unknown`: it tests types without asking the value."""

from __future__ import annotations

import dis
from types import FrameType
from typing import Any

_HARMLESS = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    LookupError,
    ArithmeticError,
    ValueError,
    OSError,
    NameError,
    AttributeError,
    AssertionError,
    ImportError,
    RecursionError,
    MemoryError,
)
"""What C code never raises because a value has the wrong type."""
_RAISES = {dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]}
_NO_EXCEPTION = ("exceptions must", "exception causes must")
"""``raise`` of what is no exception."""


def is_caused_by_unknown(frame: FrameType, argument: Any) -> bool:
    """Return True if the exception of a trace event may have been raised by C code about an unknown result:
    it is of a suspicious class, and new in `frame`, and no ``raise`` of Python code."""
    kind, error, trace = argument
    if trace is not None and trace.tb_next is not None:
        return False  # it comes from an inner frame, where it was judged
    if not issubclass(kind, Exception) or issubclass(kind, _HARMLESS):
        return False
    is_raised = frame.f_code.co_code[frame.f_lasti] in _RAISES
    return not is_raised or str(error).startswith(_NO_EXCEPTION)
