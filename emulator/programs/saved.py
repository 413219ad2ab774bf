"""What is kept of a program that waits, under the ids of its calls, and found by any of them.

What is kept is never changed: each turn of a program is a `Saved` of its own. It is JSON, read as data of
an expected shape; what a store has lost or damaged is no program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from emulator import json_codec, metrics
from emulator.events import ToolCall
from emulator.programs.origin import Origin
from emulator.programs.program import Call, Program, Recorded
from emulator.reading.readers import Statement
from emulator.storage.key_value import MAX_VALUE_BYTES, KeyValueStore, StoreFailed

log = structlog.get_logger()


@dataclass(frozen=True)
class Saved:
    """A program and all calls that it has made, with the results that are in."""

    program: Program
    recorded: tuple[Recorded, ...]
    ids: tuple[str, ...]
    """The recorded calls' ids on the wire, in the same order."""
    seed: int
    origin: Origin = field(default_factory=Origin)
    failure: str = ""
    """Why nothing behind these calls is to run, where the rest of the program could not be used."""
    written: str = ""
    """The program as the model wrote it, where that is known."""

    def pending(self) -> list[ToolCall]:
        """The calls whose results are not in."""
        return [
            ToolCall(key, one.call.name, one.call.arguments, one.call.kind)
            for key, one in zip(self.ids, self.recorded, strict=True)
            if not one.known
        ]

    def dump(self) -> bytes:
        return json_codec.dumps(
            {
                "program": [(one.source, one.line) for one in self.program.statements],
                "recorded": [
                    (one.call.name, one.call.arguments, one.call.kind, _text_of(one))
                    for one in self.recorded
                ],
                "ids": self.ids,
                "seed": self.seed,
                "origin": (self.origin.count, self.origin.digest),
                "failure": self.failure,
                "written": self.written,
            }
        )

    @classmethod
    def load(cls, value: bytes) -> Saved:
        """Raises ValueError, TypeError or KeyError on what `dump` did not write."""
        kept = json_codec.loads(value)
        return cls(
            Program(tuple(Statement(source, line) for source, line in kept["program"])),
            tuple(
                with_result(Recorded(Call(name, arguments, kind)), text)
                if isinstance(text, str)
                else Recorded(Call(name, arguments, kind))
                for name, arguments, kind, text in kept["recorded"]
            ),
            tuple(kept["ids"]),
            int(kept["seed"]),
            Origin(*kept["origin"]),
            str(kept.get("failure", "")),
            str(kept.get("written", "")),
        )


def save(store: KeyValueStore, saved: Saved, calls: Sequence[ToolCall]) -> None:
    """Keep a program under the ids of the ``calls`` that it has just made. A failing store is logged."""
    value = saved.dump()
    if len(value) > MAX_VALUE_BYTES:
        log.warning("program not kept: its results are too large", bytes=len(value))
        return
    key = hashlib.sha256(value).hexdigest()
    aliases = {f"call:{call.id}": key.encode() for call in calls}
    try:
        store.put({f"program:{key}": value, **aliases})
    except StoreFailed as error:
        log.warning("program not kept", reason=str(error))


def find(store: KeyValueStore, call: str) -> Saved | None:
    """What is kept under the id of a call."""
    try:
        key = store.get(f"call:{call}")
        value = store.get(f"program:{key.decode()}") if key else None
        if key and value and hashlib.sha256(value).hexdigest() != key.decode():
            raise ValueError("its bytes have changed")
        return Saved.load(value) if value else None
    except StoreFailed as error:
        dropped("store", error)
    except (ValueError, TypeError, KeyError) as error:
        dropped("unreadable", error)
    return None


def with_result(recorded: Recorded, text: str) -> Recorded:
    """The call with its result, which came as ``text``."""
    value = value_of(text)
    return replace(
        recorded,
        result=value,
        known=True,
        text=None if isinstance(value, str) and value == text else text,
    )


def _text_of(recorded: Recorded) -> str | None:
    """The result as it came; None for one that is not known."""
    if not recorded.known:
        return None
    return recorded.result if recorded.text is None else recorded.text


def object_of(text: str) -> Any:
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON:
        return None


def value_of(text: str) -> Any:
    """A tool's result as code gets it: what its text says as JSON, or the text."""
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON:
        return text


def dropped(reason: str, error: Exception) -> None:
    """Tell that a program is not gone on with, and why."""
    log.warning("program dropped: the model is asked instead", reason=reason, error=str(error))
    metrics.PROGRAMS_DROPPED.labels(reason).inc()
