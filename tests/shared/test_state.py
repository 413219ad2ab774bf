"""The state that processes share, in each implementation: exact counts, leases, records."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator.shared import rpc
from emulator.shared.rpc import RpcClient, serve
from emulator.shared.state import LocalState, SharedState, acquire_slot, open_state
from tests.support.processes import RedisServer

States = Callable[[], SharedState]
"""Opens the state as one more worker sees it."""


def local(_: ExitStack, __: Path) -> States:
    state = open_state(":memory:")
    return lambda: state


def keeper(opened: ExitStack, folder: Path) -> States:
    listener = opened.enter_context(rpc.listen(folder / "keeper"))
    arguments = (listener, LocalState().handlers())
    serving = threading.Thread(target=serve, args=arguments, daemon=True)
    serving.start()
    opened.callback(serving.join)
    opened.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
    return lambda: open_state(":memory:", RpcClient(folder / "keeper"))


def redis(opened: ExitStack, folder: Path) -> States:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server")
    url = opened.enter_context(RedisServer(folder)).database()
    state = open_state(url)
    return lambda: state


@pytest.fixture(params=[local, keeper, redis])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[States]:
    with ExitStack() as opened:
        yield request.param(opened, tmp_path)


def test_requests_of_a_minute_are_counted_exactly_for_any_number_of_clients(
    states: States,
) -> None:
    """A sketch of fixed size counted some clients' requests for others."""
    one, other = states(), states()
    for number in range(200):
        assert one.hit(f"client/{number}", 2).remaining == 1
    for number in range(200):
        assert other.hit(f"client/{number}", 2).allowed
    refused = one.hit("client/7", 2)
    assert (refused.allowed, refused.remaining) == (False, 0)
    assert 0 < refused.seconds <= 60


def test_no_request_too_many_is_counted_when_all_come_at_the_same_time(states: States) -> None:
    allowed: list[bool] = []
    begin = threading.Barrier(8)

    def hit(state: SharedState) -> None:
        begin.wait()
        allowed.extend([state.hit("client/a", 10).allowed for _ in range(5)])

    threads = [threading.Thread(target=hit, args=(states(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (allowed.count(True), len(allowed)) == (10, 40)


def test_tokens_add_up_in_the_window_that_the_first_ones_open(states: States) -> None:
    one, other = states(), states()
    assert one.spent("a")[0] == 0
    one.spend("a", 40, 60)
    _, end = other.spent("a")
    other.spend("a", 2, 60)
    tokens, until = one.spent("a")
    assert (tokens, abs(until - end) <= 1) == (42, True)


def test_a_slot_is_released_once_and_belongs_to_its_key(states: States) -> None:
    one, other = states(), states()
    releases = [acquire_slot(state, "a", 2, 0) for state in (one, other)]
    assert acquire_slot(one, "a", 2, 0) is None
    assert acquire_slot(one, "b", 2, 0) is not None
    for release in releases:
        assert release is not None
    assert releases[0] is not None
    releases[0]()
    releases[0]()
    assert acquire_slot(other, "a", 2, 0) is not None
    assert acquire_slot(one, "a", 2, 0) is None


def test_the_slots_of_a_killed_process_are_free_immediately(states: States) -> None:
    state = states()
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert state.acquire("a", 1, worker.pid)
    assert not state.acquire("a", 1, worker.pid)
    worker.kill()
    worker.communicate()
    assert acquire_slot(state, "a", 1, 0) is not None
    assert acquire_slot(state, "a", 1, 0) is None


def test_a_record_is_there_for_every_process_until_it_expires(states: States) -> None:
    one, other = states(), states()
    one.put("a", "first", 60)
    one.put("b", "expired", 0)
    assert (other.get("a"), other.get("b"), other.get("c")) == ("first", None, None)
    other.delete("a")
    assert one.get("a") is None


def test_while_the_keeper_is_unavailable_a_worker_counts_alone(tmp_path: Path) -> None:
    worker = open_state(":memory:", RpcClient(tmp_path / "nobody"))
    release = acquire_slot(worker, "a", 1, 0)
    assert release is not None
    assert acquire_slot(worker, "a", 1, 0) is None
    release()
    assert acquire_slot(worker, "a", 1, 0) is not None
    assert [worker.hit("a", 1).allowed for _ in range(2)] == [True, False]


def test_while_redis_is_unavailable_the_machine_counts_alone() -> None:
    state = open_state("redis://127.0.0.1:1/0")
    assert [state.hit("a", 1).allowed for _ in range(2)] == [True, False]
