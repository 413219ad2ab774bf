"""Rounds of the worker's own loop, driven by hand with real sockets: which connection is closed, and when."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger

from emulator.web.server.worker import Worker
from tests.support.processes import wait_until


class ListenerFirst(selectors.DefaultSelector):
    """Tells of who comes before it tells of what others have sent."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__()
        self._listener = listener

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(timeout)
        return sorted(events, key=lambda event: event[0].fileobj is not self._listener)


def answer(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("content-length", "2")])
    return [b"ok"]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def worker(listener: socket.socket) -> Iterator[Worker]:
    config = Config()
    for name, value in {"threads": 1, "worker_connections": 9, "keepalive": 75}.items():
        config.set(name, value)
    worker = Worker(1, os.getppid(), [listener], None, 60, config, Logger(config))
    worker.wsgi = answer
    worker.descriptors = 1  # the next connection replaces another one
    worker.tpool = worker.get_thread_pool()
    worker.method_queue.init()
    with closing(ListenerFirst(listener)) as worker.poller, closing(worker.method_queue):
        queue = worker.method_queue
        worker.poller.register(queue.fileno(), selectors.EVENT_READ, queue.run_callbacks)
        worker.set_accept_enabled(True)
        yield worker
        worker.murder_keepalived(force=True)
        worker.tpool.shutdown()
    worker.tmp.close()


def rounds(worker: Worker, until: Callable[[], bool]) -> None:
    while not until():
        worker.wait_for_and_dispatch_events(0.01)
        worker.murder_keepalived()
        worker.murder_pending()


HELD = {
    "a head that is not whole": (
        b"GET / HTTP/1.1\r\n",
        lambda worker: any(map(worker._is_late, worker._awaiting_head)),
    ),
    "kept for the next request": (
        b"GET / HTTP/1.1\r\nhost: h\r\n\r\n",
        lambda worker: worker.keepalived_conns,
    ),
    "had its last answer": (
        b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        lambda worker: worker._closing,
    ),
}


@pytest.mark.parametrize("held", HELD)
def test_a_connection_closed_for_another_in_the_round_of_its_own_event_ends_no_worker(
    worker: Worker, listener: socket.socket, held: str
) -> None:
    """Its socket was closed when its news were looked at, and the error ended the worker's loop."""
    begun, is_held = HELD[held]
    with socket.create_connection(listener.getsockname()) as first:
        first.sendall(begun)
        rounds(worker, lambda: bool(worker.nr_conns and is_held(worker)))
        first.sendall(b"GET")
        with socket.create_connection(listener.getsockname()) as second:
            wait_until(lambda: len(worker.poller.select(0)) == 2)
            worker.wait_for_and_dispatch_events(0)  # the round
            assert worker.nr_conns == 1
            second.sendall(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            rounds(worker, lambda: bool(worker.keepalived_conns))
            assert second.recv(65536).startswith(b"HTTP/1.1 200 OK")
