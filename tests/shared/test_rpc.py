"""Calls from one process to another: values, errors, and what happens when either side leaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from emulator import client_disconnect
from emulator.client_disconnect import ClientDisconnect
from emulator.errors import EmulatorError, RateLimited
from emulator.shared import rpc
from emulator.shared.rpc import KeeperUnavailable, RpcClient


class Keeper:
    """Handlers, and what has happened in them."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.stopped = threading.Event()
        self.goes_on = threading.Event()

    def add(self, one: int, other: int) -> int:
        return one + other

    def refuse(self) -> None:
        raise RateLimited("Too many.", code="rate_limit_exceeded", headers={"retry-after": "7"})

    def fail(self) -> None:
        raise ZeroDivisionError("a secret")

    def count(self) -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            self.stopped.set()

    def wait(self) -> None:
        self.waits.set()
        assert self.goes_on.wait(60)

    def run(self) -> Iterator[int]:
        with client_disconnect.stop_on_disconnect(self.stopped.set):
            yield 1
            assert self.stopped.wait(60)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
def client(keeper: Keeper, tmp_path: Path) -> Iterator[RpcClient]:
    names = ("add", "refuse", "fail", "count", "wait", "run")
    handlers = {name: getattr(keeper, name) for name in names}
    with rpc.listen(tmp_path / "keeper") as listener:
        serving = threading.Thread(target=rpc.serve, args=(listener, handlers), daemon=True)
        serving.start()
        yield RpcClient(tmp_path / "keeper")
        keeper.goes_on.set()
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_a_call_returns_a_value_and_a_stream_yields_them(client: RpcClient) -> None:
    assert client.call("add", 40, 2) == 42
    assert [*client.stream("count")] == [*range(1000)]


def test_an_error_is_raised_with_its_facts_and_a_fault_without_any(client: RpcClient) -> None:
    with pytest.raises(RateLimited, match=r"Too many\.") as refused:
        client.call("refuse")
    assert (refused.value.code, refused.value.headers) == (
        "rate_limit_exceeded",
        {"retry-after": "7"},
    )
    with pytest.raises(EmulatorError, match=r"see its log\.$"):
        client.call("fail")


@pytest.mark.parametrize("name", ["count", "run"])
def test_a_stream_that_is_closed_early_stops_its_generator(
    client: RpcClient, keeper: Keeper, name: str
) -> None:
    values = client.stream(name)
    next(values)
    values.close()  # type: ignore[attr-defined]  # it is a generator
    assert keeper.stopped.wait(60)


def test_a_client_that_disconnects_does_not_wait_for_a_call(
    client: RpcClient, keeper: Keeper
) -> None:
    """A page that follows changes waits for minutes; its thread is free when the browser leaves."""
    disconnect = ClientDisconnect()
    ended: list[str] = []

    def serve() -> None:
        client_disconnect.current.set(disconnect)
        with suppress(KeeperUnavailable):
            client.call("wait")
        ended.append("call")

    serving = threading.Thread(target=serve)
    serving.start()
    assert keeper.waits.wait(60)
    disconnect.report()
    serving.join(60)
    assert ended == ["call"]


def test_without_a_server_a_call_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeeperUnavailable):
        RpcClient(tmp_path / "nobody").call("add", 1, 2)


def test_a_frame_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with rpc.listen(tmp_path / "keeper") as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"\xff\xff\xff\xff")

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(KeeperUnavailable, match="a frame of 4294967295 bytes"):
            RpcClient(tmp_path / "keeper").call("add", 1, 2)
        answering.join()
