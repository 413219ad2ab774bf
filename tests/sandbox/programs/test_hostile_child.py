"""The messages and resources of native code in a child, and how the host limits them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine import Limits
from sandbox.errors import SandboxBusy, SandboxDied, SandboxError, SandboxLimit, SandboxTimeout
from sandbox.programs.inside.channel import LENGTH
from sandbox.programs.messages import MOST_LEVELS, Reader, encode
from sandbox.programs.server import ChildProcess, ProgramServer
from sandbox.programs.server_process import ServerProcess
from sandbox.programs.slots import RunningSlots
from tests.support.children import run
from tests.support.native_code import LIMITS, PRELUDE, launch, server
from tests.support.processes import wait_until

QUICK = Limits(seconds=1.0, memory=LIMITS.memory)


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    with server(limits=QUICK) as (programs, _), programs.open() as opened:
        yield opened


def sent(data: str) -> str:
    """Code that sends the bytes ``data`` (an expression) as one message."""
    return f"data = {data}; os.write(3, len(data).to_bytes(4, 'big') + data)"


DEEP = MOST_LEVELS + 1
HOSTILE = {
    "a length of 4 GiB": ("os.write(3, b'\\xff' * 4)", SandboxLimit),
    "one byte more than allowed": ("os.write(3, (2**20 + 1).to_bytes(4, 'big'))", SandboxLimit),
    "no JSON": (sent("b'{'"), SandboxDied),
    "no text": (sent("b'\\xff'"), SandboxDied),
    "nothing": (sent("b''"), SandboxDied),
    "a list": (sent("b'[]'"), SandboxDied),
    "a number": (sent("b'1'"), SandboxDied),
    "NaN": (sent("b'{\"a\": NaN}'"), SandboxDied),
    "infinity": (sent("b'{\"a\": -Infinity}'"), SandboxDied),
    "a number beyond all": (sent("b'{\"a\": 1e999}'"), SandboxDied),
    "an integer of 5,000 digits": (sent("b'{\"a\": ' + b'1' * 5000 + b'}'"), SandboxDied),
    "half a character": (sent('b\'{"a": "\\\\ud800"}\''), SandboxDied),
    "half a character as a key": (sent("b'{\"\\\\udfff\": 1}'"), SandboxDied),
    "half a character as bytes": (sent('b\'{"a": "\\xed\\xa0\\x80"}\''), SandboxDied),
    "many levels": (sent(f"b'{{\"a\": ' + b'[' * {DEEP} + b']' * {DEEP} + b'}}'"), SandboxDied),
    "500,000 levels": (sent("b'[' * 500_000 + b']' * 500_000"), SandboxDied),
    "a part of a message": ("os.write(3, b'\\0\\0\\0\\x09{'); os._exit(0)", SandboxDied),
    "silence": ("time.sleep = None\nwhile True: pass", SandboxTimeout),
    "its end": ("os._exit(0)", SandboxDied),
    "a crash": ("ctypes.string_at(1)", SandboxDied),
    "a limit that does not exist": (sent('b\'{"limit": ["x"]}\''), SandboxLimit),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_message_ends_the_child(case: str, child: ChildProcess) -> None:
    code, error = HOSTILE[case]
    with pytest.raises(error):
        child.ask({"code": PRELUDE + code})
    with pytest.raises(SandboxError):  # and nothing more can be asked
        child.ask({"code": "value = 1"})


SOUND = {
    "levels": sent(f"b'{{\"a\": ' + b'[' * {MOST_LEVELS - 2} + b']' * {MOST_LEVELS - 2} + b'}}'"),
    "a character in two halves": sent('b\'{"a": "\\\\ud83d\\\\ude00"}\''),
    "1 MiB": sent("b'{\"a\": \"' + b'x' * (2**20 - 9) + b'\"}'"),
    "one byte at a time": "for each in b'\\0\\0\\0\\x08{\"a\": 1}': os.write(3, bytes([each]))",
}


@pytest.mark.parametrize("case", SOUND)
def test_a_valid_message_arrives(case: str, child: ChildProcess) -> None:
    assert list(child.ask({"code": PRELUDE + SOUND[case]})) == ["a"]


@pytest.mark.parametrize(
    ("body", "number", "what"), [("b'{}'", 4097, "messages"), ("b' ' * 2**20", 17, "output")]
)
def test_a_child_sends_a_bounded_number_of_messages_and_bytes(
    body: str, number: int, what: str
) -> None:
    with server() as (programs, _), programs.open() as child:
        code = f"{PRELUDE}body = b'{{}}' + ({body})[2:]\nfor _ in range({number}):\n    "
        code += "os.write(3, len(body).to_bytes(4, 'big'))\n    rest = body\n"
        code += "    while rest: rest = rest[os.write(3, rest):]"
        with pytest.raises(SandboxLimit) as raised:
            child.ask({"code": code})
            for _ in range(number):
                child.ask()
        assert raised.value.what == what


def test_a_reader_takes_messages_at_any_cut() -> None:
    data = b"".join(encode({"n": n, "text": "ä" * n}) for n in range(30))
    for size in (1, 2, 3, 5, 7, 1000, len(data)):
        reader, taken = Reader(), []
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            while (message := reader.take()) is not None:
                taken.append(message["n"])
        assert taken == list(range(30)), size


def test_a_reader_asks_for_what_a_message_lacks() -> None:
    reader = Reader()
    reader.feed(LENGTH.pack(10) + b"{")
    assert reader.wanted == 9


@pytest.mark.parametrize(
    "source",
    [
        "kept = bytearray(2**30)",
        "kept = []\nwhile True: kept.append(bytearray(2**20))",
        "kept = 'x'\nwhile True: kept += kept",
        "kept = []\nwhile True: kept += [[] for _ in range(10_000)]",
    ],
)
def test_a_program_out_of_memory_ends_with_a_memory_error(
    source: str, programs: ProgramServer
) -> None:
    """By the limit, or by Python's own error if there was memory left to raise it."""
    try:
        said = json.dumps(run(programs, source))
    except SandboxLimit as error:
        said = error.what
    assert "memory" in said.lower()
    assert run(programs, "x = 1")["ready"], "the next program runs"


def test_a_child_that_reads_nothing_does_not_block_the_host() -> None:
    with (
        server(limits=QUICK) as (programs, _),
        programs.open() as child,
        pytest.raises(SandboxTimeout),
    ):
        child.ask({"code": "while True: pass"}, {"text": "x" * 2**24})


def test_a_message_that_is_too_large_is_not_sent(programs: ProgramServer) -> None:
    with programs.open() as child, pytest.raises(SandboxLimit) as raised:
        child.ask({"text": "x" * (64 * 2**20)})
    assert raised.value.what == "input"


def test_running_and_waiting_children_are_bounded() -> None:
    process = launch(limits=QUICK)
    programs = ProgramServer(QUICK, most=1, waiting=1, launch=lambda: process)
    programs.check = lambda: None  # type: ignore[method-assign]
    with programs.open("one") as first:
        assert first.ask({"code": "value = 1"}) == {"value": 1}
        assert first.rest()
        assert first.rest(), "a second time changes nothing"
        with programs.open("two") as second:
            assert not second.rest(), "no waiting slot is free"
            failed: list[str] = []

            def busy() -> None:
                try:
                    programs.open("three")
                except SandboxBusy as error:
                    failed.append(str(error))

            thread = threading.Thread(target=busy)
            thread.start()
            thread.join()
            assert failed
        assert first.ask({"code": "value += 1"}) == {"value": 2}, "it kept its state"
    programs.close()


def test_clients_take_turns_for_a_slot() -> None:
    """One with many queued programs does not keep another waiting for all of them."""
    slots = RunningSlots(1, seconds=60.0)
    slots.acquire("first")
    order: list[str] = []

    def use(client: str) -> None:
        slots.acquire(client)
        order.append(client)
        slots.release(client)

    threads = []
    for number, client in enumerate(["many"] * 6 + ["few", "other"]):
        threads.append(threading.Thread(target=use, args=(client,)))
        threads[-1].start()
        while slots.queued < number + 1:
            time.sleep(0.001)
    slots.release("first")
    for thread in threads:
        thread.join()
    assert order[:4] == ["many", "few", "other", "many"]
    assert len(order) == 8
    slots.acquire("again")  # the slot is free


def test_a_program_that_gives_up_loses_no_slot() -> None:
    slots = RunningSlots(1, seconds=0.05)
    slots.acquire("one")
    for _ in range(3):
        with pytest.raises(SandboxBusy):
            slots.acquire("two")
    assert slots.queued == 0
    slots.release("one")
    slots.acquire("two")


@pytest.mark.parametrize(("most_of_one", "running"), [(3, 3), (None, 4)])
def test_one_client_leaves_a_part_of_the_slots_to_others(
    most_of_one: int | None, running: int
) -> None:
    slots = RunningSlots(4, seconds=0.05, most_of_one=most_of_one)
    for _ in range(running):
        slots.acquire("many")
    with pytest.raises(SandboxBusy):
        slots.acquire("many")
    if most_of_one is not None:
        slots.acquire("few")
        slots.release("many")
        slots.acquire("many")


def test_a_slot_that_its_queued_client_may_not_take_stays_free() -> None:
    slots = RunningSlots(2, seconds=60.0, most_of_one=1)
    slots.acquire("many")
    slots.acquire("few")
    queued = threading.Thread(target=slots.acquire, args=("many",))
    queued.start()
    while not slots.queued:
        time.sleep(0.001)
    slots.release("few")
    assert slots.queued == 1
    slots.acquire("other")
    slots.release("many")
    queued.join()


def test_a_kill_ends_the_wait_for_a_slot() -> None:
    process = launch(limits=QUICK)
    programs = ProgramServer(QUICK, most=1, waiting=1, launch=lambda: process)
    programs.check = lambda: None  # type: ignore[method-assign]
    with programs.open() as waiting:
        assert waiting.rest()
        with programs.open():
            threading.Timer(0.05, waiting.kill).start()
            with pytest.raises(SandboxError):
                waiting.ask({"code": "value = 1"})
    programs.close()


def test_a_program_that_waits_for_the_host_does_not_compute() -> None:
    with server() as (programs, process), programs.open() as child:
        assert child.ask({"code": "value = 1"}) == {"value": 1}
        pid = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
        assert child.rest()
        wait_until(
            lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        )
        assert child.ask({"code": "value = 2"}) == {"value": 2}
        assert child.rest()
        child.kill()


def test_a_program_that_has_ended_does_not_wait_for_a_slot() -> None:
    slots = RunningSlots(1, seconds=3600.0)  # without the rule this test would not end
    slots.acquire("one")
    with pytest.raises(SandboxBusy):
        slots.acquire("two", lambda: True)
    assert slots.queued == 0


def test_a_kill_from_another_thread_ends_the_running_program(child: ChildProcess) -> None:
    threading.Timer(0.1, child.kill).start()
    with pytest.raises(SandboxDied, match="was ended"):
        child.ask({"code": "while True: pass"})
    child.close()
    child.close()
    child.kill()


def test_a_server_that_dies_is_started_again() -> None:
    started: list[ServerProcess] = []

    def start() -> ServerProcess:
        started.append(launch())
        return started[-1]

    programs = ProgramServer(LIMITS, launch=start)
    for _ in range(2):
        with programs.open() as child:
            assert child.ask({"code": "value = 1"}) == {"value": 1}
            os.kill(started[-1].pid, signal.SIGKILL)
            with pytest.raises(SandboxDied):
                child.ask({"code": "while True: pass"})
    with programs.open() as child:
        assert child.ask({"code": "value = 2"}) == {"value": 2}
    assert len(started) == 3
    programs.close()
    programs.close()
    with pytest.raises(SandboxError, match="closed"):
        programs.open()
    assert not any(Path(f"/proc/{each.pid}").exists() for each in started)


def test_ended_children_leave_no_process() -> None:
    with server() as (programs, process):
        for _ in range(20):
            with programs.open() as child:
                child.ask({"code": "value = 1"})
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for _ in range(100):
            if not children.read_text():
                break
            time.sleep(0.02)
        assert children.read_text() == ""


def test_ended_children_leave_no_descriptor(programs: ProgramServer) -> None:
    run(programs, "x = 1")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        run(programs, "x = 1")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2  # other threads' files


def test_a_program_sees_nothing_of_the_one_before(programs: ProgramServer) -> None:
    run(programs, "import json, builtins\njson.kept = builtins.kept = __import__('sys').kept = 1")
    ended = run(
        programs,
        "import json, builtins, sys\nprint([hasattr(m, 'kept') for m in (json, builtins, sys)])",
    )
    assert "[False, False, False]" in json.dumps(ended), ended


def test_a_large_program_does_not_rest() -> None:
    """Its run is replayed later: programs that wait would use the memory of the machine."""
    with server() as (programs, _), programs.open() as child:
        for code, rests in (("value = 1", True), ('kept = b"x" * (40 * 2**20)', False)):
            child.ask({"code": code})
            assert child.rest() == rests
