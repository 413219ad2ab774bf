"""A `Trace` as JSON and back, for another process. Knows nothing of sockets.

Raw bytes are told as text of as many characters (Latin-1): most are ASCII, and none are lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from emulator import json_codec
from emulator.events import CodeFinished, CreatedFile, Image, Logs, ToolCall, Usage
from emulator.traces.trace import Block, RecordedCall, Resumed, Trace, Turn, Wire

_LEFT_OUT = ("body", "propagated", "wired")


def dumped(trace: Trace) -> bytes:
    """All but the body, as JSON. Raises TypeError for what is nested too deep.

    The request may still be under way: what grows is copied first.
    """
    told = _shallow(trace)
    for name in _LEFT_OUT:
        del told[name]
    shows_stubs = trace.mode == "emulated" and trace.tools
    told |= {
        "stubs": trace.stubs() if shows_stubs else "",
        "wire": _wire(trace.wire),
        "turns": [
            {
                **_shallow(turn),
                "reply": ["".join([*turn.reply])],
                "reasoning": ["".join([*turn.reasoning])],
                "wire": _wire(turn.wire),
            }
            for turn in [*trace.turns]
        ],
    }
    try:
        return json_codec.dumps(told, default=_plain)
    except (ValueError, RecursionError) as error:
        raise TypeError(str(error)) from error


def loaded(text: str | bytes, body: bytes) -> Trace:
    """What `dumped` was given, and the body."""
    told = json_codec.loads(text)
    stubs = told.pop("stubs")
    resumed = told["resumed"]
    return Trace(
        **{
            **told,
            "body": body,
            "stubs": lambda: stubs,
            "tools": tuple(told["tools"]),
            "turns": [_turn(turn) for turn in told["turns"]],
            "resumed": None if resumed is None else _resumed(resumed),
            "calls": [ToolCall(**call) for call in told["calls"]],
            "cells": [_cell(cell) for cell in told["cells"]],
            "times": [(name, began, ended) for name, began, ended in told["times"]],
            "usage": Usage(**told["usage"]),
            "wire": _loaded_wire(told["wire"]),
            # That of a request which goes on elsewhere goes on here, too.
            "_zero": time.perf_counter() - (time.time() - told["began"]),
        }
    )


def _shallow(value: Trace | Turn) -> dict[str, Any]:
    """Its fields; lists and dicts copied, since the one who serves the request may go on with them."""
    return {
        name: held.copy() if isinstance(held, list | dict) else held
        for name, held in vars(value).items()
        if not name.startswith("_")
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


def _wire(wire: Wire) -> dict[str, Any]:
    events = [[at, data.decode("latin-1")] for at, data in [*wire.events]]
    return {"events": events, "size": wire.size, "left_out": wire.left_out}


def _loaded_wire(told: Mapping[str, Any]) -> Wire:
    events = [(at, data.encode("latin-1")) for at, data in told["events"]]
    return Wire(events, told["size"], told["left_out"])


def _turn(told: Mapping[str, Any]) -> Turn:
    blocks = [
        Block(
            **{**block, "statements": tuple((line, source) for line, source in block["statements"])}
        )
        for block in told["blocks"]
    ]
    return Turn(**{**told, "blocks": blocks, "wire": _loaded_wire(told["wire"])})


def _resumed(told: Mapping[str, Any]) -> Resumed:
    calls = tuple(RecordedCall(**call) for call in told["calls"])
    return Resumed(**{**told, "calls": calls, "lines": tuple(told["lines"])})


def _cell(told: Mapping[str, Any]) -> CodeFinished:
    outputs = tuple(
        Logs(one["text"])
        if "text" in one
        else Image(one["media_type"], one["data"].encode("latin-1"))
        for one in told["outputs"]
    )
    return CodeFinished(
        told["status"], outputs, tuple(CreatedFile(**file) for file in told["files"])
    )
