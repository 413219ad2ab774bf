"""Write a `Trace` as JSON, and read it in another process. Knows nothing of sockets.

The first line is the trace, with bytes as base64; each other line is what a turn sent to its upstream. Those
bytes are copied, not written again: in a long conversation they are most of the trace.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from emulator.core import json_codec
from emulator.traces.trace import Trace, Turn, WireLog

_OMITTED = ("body", "propagated", "records_wire")
_SENT = ("sent", "messages", "fields")
_TRACES: TypeAdapter[list[Trace]] = TypeAdapter(
    list[Trace], config=ConfigDict(val_json_bytes="base64")
)


def dump_trace(trace: Trace) -> bytes:
    """Everything except the body. Raises TypeError if a value is nested too deeply.

    The request may still run: growing lists are copied first.
    """
    turns = [*trace.turns]
    shows_stubs = trace.mode == "emulated" and trace.tools
    values = _copied_fields(trace, _OMITTED) | {
        "stubs": trace.stubs() if shows_stubs else "",
        "wire": _copied_fields(trace.wire),
        "turns": [
            {
                **_copied_fields(turn, _SENT),
                "reply": ["".join([*turn.reply])],
                "reasoning": ["".join([*turn.reasoning])],
                "wire": _copied_fields(turn.wire),
            }
            for turn in turns
        ],
    }
    try:
        first = json_codec.dumps(values, default=_dump_value)
        return b"\n".join([first, *(turn.request for turn in turns)])
    except (ValueError, RecursionError) as error:
        raise TypeError(str(error)) from error


def load_trace(text: bytes, body: bytes) -> Trace:
    """The inverse of `dump_trace`."""
    first, *sent = text.split(b"\n")
    values = json_codec.loads(first)
    stubs = values.pop("stubs")
    for turn, request in zip(values["turns"], sent, strict=True):
        turn["fields"] = json_codec.loads(request)
        turn["messages"] = turn["fields"].pop("messages")
    # The clock of a request that still runs elsewhere continues here.
    values["_zero"] = time.perf_counter() - (time.time() - values["began"])
    [trace] = _TRACES.validate_python([values])
    trace.body, trace.stubs = body, lambda: stubs
    for one, request in zip(trace.turns, sent, strict=True):
        one.sent = request
    return trace


def _copied_fields(value: Trace | Turn | WireLog, omitted: Collection[str] = ()) -> dict[str, Any]:
    """Return its public fields. Lists and dicts are copied, since the request's thread may change them."""
    return {
        name: field.copy() if isinstance(field, list | dict) else field
        for name, field in vars(value).items()
        if not name.startswith("_") and name not in omitted
    }


def _dump_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
