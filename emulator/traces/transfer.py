"""Write a `Trace` as JSON and read it again in another process. Knows nothing of sockets.

Raw bytes become text of as many characters (Latin-1): most are ASCII, and every byte survives.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from emulator import json_codec
from emulator.events import CodeFinished, CreatedFile, Image, Logs, ToolCall, Usage
from emulator.traces.trace import (
    RecordedBlock,
    RecordedCall,
    ResumedProgram,
    Trace,
    Turn,
    WireLog,
)

_OMITTED = ("body", "propagated", "records_wire")


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
        "wire": _dump_wire(trace.wire),
        "turns": [
            {
                **_copied_fields(turn),
                "reply": ["".join([*turn.reply])],
                "reasoning": ["".join([*turn.reasoning])],
                "wire": _dump_wire(turn.wire),
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
    resumed = values["resumed"]
    return Trace(
        **{
            **values,
            "body": body,
            "stubs": lambda: stubs,
            "tools": tuple(values["tools"]),
            "turns": [_load_turn(turn) for turn in values["turns"]],
            "resumed": None if resumed is None else _load_resumed(resumed),
            "calls": [ToolCall(**call) for call in values["calls"]],
            "cells": [_load_cell(cell) for cell in values["cells"]],
            "times": [(name, began, ended) for name, began, ended in values["times"]],
            "usage": Usage(**values["usage"]),
            "wire": _load_wire(values["wire"]),
            # The clock of a request that still runs elsewhere continues here.
            "_zero": time.perf_counter() - (time.time() - values["began"]),
        }
    )


def _copied_fields(value: Trace | Turn) -> dict[str, Any]:
    """Return its public fields. Lists and dicts are copied, since the request's thread may change them."""
    return {
        name: field.copy() if isinstance(field, list | dict) else field
        for name, field in vars(value).items()
        if not name.startswith("_")
    }


def _dump_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


def _dump_wire(wire: WireLog) -> dict[str, Any]:
    events = [[at, data.decode("latin-1")] for at, data in [*wire.events]]
    return {"events": events, "size": wire.size, "omitted_bytes": wire.omitted_bytes}


def _load_wire(values: Mapping[str, Any]) -> WireLog:
    events = [(at, data.encode("latin-1")) for at, data in values["events"]]
    return WireLog(events, values["size"], values["omitted_bytes"])


def _load_turn(values: Mapping[str, Any]) -> Turn:
    blocks = [
        RecordedBlock(
            **{**block, "statements": tuple((line, source) for line, source in block["statements"])}
        )
        for block in values["blocks"]
    ]
    return Turn(**{**values, "blocks": blocks, "wire": _load_wire(values["wire"])})


def _load_resumed(values: Mapping[str, Any]) -> ResumedProgram:
    calls = tuple(RecordedCall(**call) for call in values["calls"])
    return ResumedProgram(**{**values, "calls": calls, "lines": tuple(values["lines"])})


def _load_cell(values: Mapping[str, Any]) -> CodeFinished:
    outputs = tuple(
        Logs(output["text"])
        if "text" in output
        else Image(output["media_type"], output["data"].encode("latin-1"))
        for output in values["outputs"]
    )
    files = tuple(CreatedFile(**file) for file in values["files"])
    return CodeFinished(values["status"], outputs, files)
