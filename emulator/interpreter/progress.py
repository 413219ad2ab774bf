"""What comes of a cell, as JSON and back: for an interpreter in another process. Knows nothing of sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from emulator.events import Image, Logs
from emulator.interpreter.cell import CellWaiting
from emulator.interpreter.execution import Execution
from emulator.interpreter.held import Held
from emulator.interpreter.interpreter import Progress, WaitingCell
from emulator.storage.container_rows import Container

_ONE: Any = tuple  # mypy wants to know of what
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_KINDS: Mapping[str, TypeAdapter[Any]] = {
    # In a tuple, since a dataclass would have to bring its configuration along.
    kind.__name__: TypeAdapter(_ONE[kind], config=_BYTES)
    for kind in (Logs, Image, CellWaiting, Execution, WaitingCell, Container)
}


def dumped(value: Progress | WaitingCell | Container) -> list[Any]:
    """``[kind, fields]``, which JSON can hold."""
    kind = type(value).__name__
    if isinstance(value, Held):
        fields = {name: getattr(value, name) for name in ("id", "container_id", "code", "since")}
        return [kind, fields]
    (fields,) = _KINDS[kind].dump_python((value,), mode="json")
    return [kind, fields]


def loaded(row: list[Any]) -> Any:
    """What `dumped` was given. A `Held` is for showing: its cell waits elsewhere."""
    kind, fields = row
    if kind == "Held":
        return Held(**fields)
    (value,) = _KINDS[kind].validate_python((fields,))
    return value
