"""Write a `Trace` as JSON, with bytes as base64, and read it in another process. Knows nothing of sockets."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from emulator.core import json_codec
from emulator.traces.trace import Trace, Turn, WireLog

_OMITTED = ("body", "propagated", "records_wire")
_TRACES: TypeAdapter[list[Trace]] = TypeAdapter(
    list[Trace], config=ConfigDict(val_json_bytes="base64")
)


def dump_trace(trace: Trace) -> bytes:
    """Everything except the body, as JSON. Raises TypeError if a value is nested too deeply.

    The request may still run: growing lists are copied first.
    """
    values = _copied_fields(trace)
    for name in _OMITTED:
        del values[name]
    shows_stubs = trace.mode == "emulated" and trace.tools
    values |= {
        "stubs": trace.stubs() if shows_stubs else "",
        "wire": _copied_fields(trace.wire),
        "turns": [
            {
                **_copied_fields(turn),
                "reply": ["".join([*turn.reply])],
                "reasoning": ["".join([*turn.reasoning])],
                "wire": _copied_fields(turn.wire),
            }
            for turn in [*trace.turns]
        ],
    }
    try:
        return json_codec.dumps(values, default=_dump_value)
    except (ValueError, RecursionError) as error:
        raise TypeError(str(error)) from error


def load_trace(text: str | bytes, body: bytes) -> Trace:
    """The inverse of `dump_trace`."""
    values = json_codec.loads(text)
    stubs = values.pop("stubs")
    # The clock of a request that still runs elsewhere continues here.
    values["_zero"] = time.perf_counter() - (time.time() - values["began"])
    [trace] = _TRACES.validate_python([values])
    trace.body, trace.stubs = body, lambda: stubs
    return trace


def _copied_fields(value: Trace | Turn | WireLog) -> dict[str, Any]:
    """Return its public fields. Lists and dicts are copied, since the request's thread may change them."""
    return {
        name: field.copy() if isinstance(field, list | dict) else field
        for name, field in vars(value).items()
        if not name.startswith("_")
    }


def _dump_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
