"""What requests need of an interpreter, wherever its kernels are: in this process, or in the keeper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from emulator.interpreter.held import Decision, Held
from emulator.interpreter.interpreter import Progress, WaitingCell
from emulator.settings import Order
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset


class Cells(Protocol):
    """`Interpreter` and `RemoteInterpreter`. Each method is told there."""

    @property
    def containers(self) -> Containers: ...

    def run(
        self,
        container: Container,
        code: str,
        toolset: Toolset | None = None,
        key: str = "",
        order: Order = "auto",
    ) -> Iterator[Progress]: ...

    def waiting(self, call_id: str) -> WaitingCell | None: ...

    def go_on(self, container: Container, results: Mapping[str, Any]) -> Iterator[Progress]: ...

    def libraries(self, container: Container) -> dict[str, str]: ...

    def used(self, container: Container) -> bool: ...

    def delete(self, client: str, container_id: str) -> None: ...

    def held(self, container_id: str) -> Sequence[Held]: ...

    def decide(self, container_id: str, execution_id: str, decision: Decision) -> Held: ...
