"""The interpreter of a worker whose kernels are in the keeper: each method calls the keeper's.

`handlers` answers these calls in the keeper. Files do not cross the socket: all processes have the same
folder. Knows nothing of kernels.

A value crosses as ``[kind, fields]``: the kind is one of `_KINDS`, or "" for plain JSON. Fields are
validated on arrival; what a kernel wrote is data on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeAlias

from pydantic import ConfigDict, TypeAdapter

from emulator.client_disconnect import has_disconnected
from emulator.errors import ClientDisconnected, ExecutionDelayed, ExecutionFailed
from emulator.events import Image, Logs
from emulator.interpreter.cell import CellWaiting
from emulator.interpreter.execution import Execution
from emulator.interpreter.interpreter import Interpreter, Progress, WaitingCell
from emulator.interpreter.pending_approval import ApprovalDecision, PendingApproval
from emulator.settings import Order
from emulator.shared.rpc import Handler, KeeperUnavailable, RpcClient
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset

_ONE: Any = tuple  # mypy wants the type of its items
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_KINDS: Mapping[str, TypeAdapter[Any]] = {
    # In a tuple, since only then can a dataclass be given a configuration.
    kind.__name__: TypeAdapter(_ONE[kind], config=_BYTES)
    for kind in (Logs, Image, CellWaiting, Execution, WaitingCell, Container, ApprovalDecision)
}
_PENDING_FIELDS = ("id", "owner", "code", "since")


class RemoteInterpreter:
    """The methods of `Interpreter` that requests need. Safe to share between threads.

    While the keeper is unavailable, cells fail with `ExecutionFailed`, and no cell is found waiting.
    """

    def __init__(self, keeper: RpcClient, containers: Containers) -> None:
        self.containers = containers
        self._keeper = keeper
        self._libraries: dict[str, str] | None = None

    def run(
        self,
        container: Container,
        code: str,
        toolset: Toolset | None = None,
        key: str = "",
        order: Order = "auto",
    ) -> Iterator[Progress]:
        toolset = toolset or Toolset.parse([])
        return self._stream("run", container, code, toolset, key, order)

    def waiting_cell(self, call_id: str) -> WaitingCell | None:
        try:
            cell: WaitingCell | None = self._call("waiting_cell", call_id) if call_id else None
        except ExecutionFailed:
            return None  # the caller asks the model instead
        return cell

    def resume(
        self,
        container: Container,
        results: Mapping[str, Any],
        toolset: Toolset,
        refused: Collection[str] = (),
    ) -> Iterator[Progress]:
        return self._stream("resume", container, dict(results), toolset, list(refused))

    def libraries(self, container: Container) -> dict[str, str]:
        if self._libraries is None:
            self._libraries = self._call("libraries", container)
        return self._libraries or {}

    def has_been_used(self, container: Container) -> bool:
        try:
            return bool(self._call("has_been_used", container))
        except ExecutionFailed:
            return True  # an unused container that stays does less harm than a used one that goes

    def delete(self, client: str, container_id: str) -> None:
        self._call("delete", client, container_id)

    def pending_cells(self, container_id: str) -> Sequence[PendingApproval]:
        return [_load(cell) for cell in self._call("pending_cells", container_id)]

    def decide(
        self, container_id: str, execution_id: str, decision: ApprovalDecision
    ) -> PendingApproval:
        cell: PendingApproval = self._call("decide", container_id, execution_id, decision)
        return cell

    def _call(self, name: str, *arguments: Any) -> Any:
        with _keeper_errors():
            return _load(self._keeper.call(f"interpreter.{name}", *map(_dump, arguments)))

    def _stream(self, name: str, *arguments: Any) -> Iterator[Any]:
        with _keeper_errors():
            yield from map(
                _load, self._keeper.stream(f"interpreter.{name}", *map(_dump, arguments))
            )


AnyInterpreter: TypeAlias = Interpreter | RemoteInterpreter
"""The interpreter as requests see it: in this process, or in the keeper."""


def handlers(interpreter: Interpreter) -> dict[str, Handler]:
    """The functions that `RemoteInterpreter` calls."""

    def called(method: Callable[..., Any]) -> Handler:
        return lambda *arguments: _dump(method(*map(_load, arguments)))

    def streamed(method: Callable[..., Any]) -> Handler:
        def stream(*arguments: Any) -> Iterator[Any]:
            with closing(method(*map(_load, arguments))) as steps:
                yield from map(_dump, steps)

        return stream

    return {
        "interpreter.run": streamed(interpreter.run),
        "interpreter.resume": streamed(interpreter.resume),
        "interpreter.pending_cells": called(
            lambda container_id: [*map(_dump, interpreter.pending_cells(container_id))]
        ),
        **{
            f"interpreter.{name}": called(getattr(interpreter, name))
            for name in ("waiting_cell", "libraries", "has_been_used", "delete", "decide")
        },
    }


def _dump(value: Any) -> list[Any]:
    kind = type(value).__name__
    match value:
        case Toolset():
            return [kind, [dict(tool) for tool in value.definitions]]
        case PendingApproval():
            return [kind, {name: getattr(value, name) for name in _PENDING_FIELDS}]
        case _ if kind in _KINDS:
            (fields,) = _KINDS[kind].dump_python((value,), mode="json")
            return [kind, fields]
        case _:
            return ["", value]


def _load(message: Sequence[Any]) -> Any:
    kind, fields = message
    match kind:
        case "":
            return fields
        case "Toolset":
            return Toolset.parse(fields)
        case "PendingApproval":  # only to be shown: the cell itself is in the keeper
            return PendingApproval(**fields)
        case _:
            (value,) = _KINDS[kind].validate_python((fields,))
            return value


@contextmanager
def _keeper_errors() -> Iterator[None]:
    """Raises `ExecutionFailed` if the keeper is unavailable, `ClientDisconnected` if the client is gone."""
    try:
        yield
    except KeeperUnavailable as error:
        if has_disconnected():
            raise ClientDisconnected("The client has disconnected.") from error
        message = f"The process that runs code is unavailable: {error}."
        raise ExecutionDelayed(message) from error
