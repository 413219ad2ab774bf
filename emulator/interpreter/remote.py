"""The interpreter as a worker has it whose kernels are in another process: every question goes there.

`handlers` answers them, in the process that has the `Interpreter`. Files do not pass here: all processes have
the same folder. Knows nothing of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from emulator import departure
from emulator.errors import ClientDisconnected, ExecutionFailed
from emulator.interpreter.held import Decision, Held
from emulator.interpreter.interpreter import Interpreter, Progress, WaitingCell
from emulator.interpreter.progress import dumped, loaded
from emulator.settings import Order
from emulator.shared.wire import Handler, Unreachable, Wire
from emulator.storage.container_rows import Container
from emulator.storage.containers import Containers
from emulator.tools.toolset import Toolset


class RemoteInterpreter:
    """As `Interpreter`; safe to share between threads.

    Where the other process cannot be reached, cells fail with `ExecutionFailed`, and none waits.
    """

    def __init__(self, wire: Wire, containers: Containers) -> None:
        self.containers = containers
        self._wire = wire
        self._libraries: dict[str, str] | None = None

    def run(
        self,
        container: Container,
        code: str,
        toolset: Toolset | None = None,
        key: str = "",
        order: Order = "auto",
    ) -> Iterator[Progress]:
        tools = toolset.definitions if toolset else ()
        asked = {
            "container": dumped(container),
            "code": code,
            "tools": tools,
            "key": key,
            "order": order,
        }
        return self._progress("run", asked)

    def waiting(self, call_id: str) -> WaitingCell | None:
        if not call_id:
            return None
        try:
            found = self._wire.ask_one("waiting", call_id)
        except Unreachable:
            return None  # an ordinary turn
        return loaded(found) if found else None

    def go_on(self, container: Container, results: Mapping[str, Any]) -> Iterator[Progress]:
        asked = {"container": dumped(container), "results": dict(results)}
        return self._progress("go_on", asked)

    def libraries(self, container: Container) -> dict[str, str]:
        if self._libraries is None:
            with _reached():
                self._libraries = self._wire.ask_one("libraries", dumped(container))
        return self._libraries or {}

    def used(self, container: Container) -> bool:
        try:
            return bool(self._wire.ask_one("used", dumped(container)))
        except Unreachable:
            return True  # rather kept than lost

    def delete(self, client: str, container_id: str) -> None:
        with _reached():
            self._wire.ask_one("delete", [client, container_id])

    def held(self, container_id: str) -> Sequence[Held]:
        with _reached():
            return [loaded(row) for row in self._wire.ask("held", container_id)]

    def decide(self, container_id: str, execution_id: str, decision: Decision) -> Held:
        asked = {"container_id": container_id, "execution_id": execution_id}
        with _reached():
            held = loaded(self._wire.ask_one("decide", {**asked, "decision": asdict(decision)}))
        assert isinstance(held, Held)
        return held

    def _progress(self, name: str, asked: Mapping[str, Any]) -> Iterator[Progress]:
        with _reached():
            for row in self._wire.ask(name, asked):
                yield loaded(row)


def handlers(interpreter: Interpreter) -> dict[str, Handler]:
    """What answers the questions of `RemoteInterpreter`, by their names."""

    def run(asked: Any) -> Iterator[Any]:
        toolset = Toolset.parse(asked["tools"])
        container, code = loaded(asked["container"]), asked["code"]
        progress = interpreter.run(container, code, toolset, asked["key"], asked["order"])
        return _rows(progress)

    def go_on(asked: Any) -> Iterator[Any]:
        return _rows(interpreter.go_on(loaded(asked["container"]), asked["results"]))

    def waiting(call_id: Any) -> Iterator[Any]:
        if cell := interpreter.waiting(call_id):
            yield dumped(cell)

    def libraries(container: Any) -> Iterator[Any]:
        yield interpreter.libraries(loaded(container))

    def used(container: Any) -> Iterator[Any]:
        yield interpreter.used(loaded(container))

    def delete(asked: Any) -> Iterator[Any]:
        interpreter.delete(*asked)
        yield True

    def held(container_id: Any) -> Iterator[Any]:
        yield from map(dumped, interpreter.held(container_id))

    def decide(asked: Any) -> Iterator[Any]:
        decision = Decision(**asked["decision"])
        yield dumped(interpreter.decide(asked["container_id"], asked["execution_id"], decision))

    return {
        "run": run,
        "go_on": go_on,
        "waiting": waiting,
        "libraries": libraries,
        "used": used,
        "delete": delete,
        "held": held,
        "decide": decide,
    }


def _rows(progress: Iterator[Progress]) -> Iterator[Any]:
    try:
        for step in progress:
            yield dumped(step)
    finally:
        progress.close()  # type: ignore[attr-defined]  # it is a generator


@contextmanager
def _reached() -> Iterator[None]:
    """Raises `ExecutionFailed` where the other process is not there, `ClientDisconnected` if nobody waits."""
    try:
        yield
    except Unreachable as error:
        client = departure.current.get()
        if client is not None and client.left:
            raise ClientDisconnected("The client has left.") from error
        raise ExecutionFailed(
            f"The process that runs code cannot be reached: {error}.",
            code="overloaded",
            headers={"retry-after": "1"},
        ) from error
