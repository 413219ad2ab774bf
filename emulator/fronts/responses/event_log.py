"""Convert answer events to JSON and back, so that a stream can be replayed exactly."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, Literal, get_args

from pydantic import ConfigDict, TypeAdapter

from emulator.core.events import AnswerEvent, CodeOutput, RelayedChunk, UpstreamAccepted

_UNRECORDED = (UpstreamAccepted, RelayedChunk, CodeOutput)
"""A stored response needs none of these."""
_RECORDED = tuple(kind for kind in get_args(AnswerEvent) if kind not in _UNRECORDED)
_PAIR: Any = tuple  # type checkers cannot follow a union that is computed from a table
_ROW: Any = reduce(operator.or_, (_PAIR[Literal[kind.__name__], kind] for kind in _RECORDED))
_ROWS: TypeAdapter[list[tuple[str, AnswerEvent]]] = TypeAdapter(
    list[_ROW], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)


class EventLog:
    """Records the events of a response as they pass through `record`."""

    def __init__(self) -> None:
        self._events: list[tuple[str, AnswerEvent]] = []

    def record(self, events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
        for event in events:
            if isinstance(event, _RECORDED):
                self._events.append((type(event).__name__, event))
            yield event

    def dump(self) -> Any:
        """Return the events as JSON values."""
        return _ROWS.dump_python(self._events, mode="json")


def load(rows: Any) -> list[AnswerEvent]:
    """Read the rows of `EventLog.dump`. Raises ValueError for anything else."""
    return [event for _, event in _ROWS.validate_python(rows)]
