"""One session in one kernel: cells go in; outputs, calls and results come out.

The states of a session, and what the host may send in each:

| state | sends | until |
|---|---|---|
| idle | `execute_request`: a cell (`run`), our own code (`offer`, `evaluate`) | it is sent: running |
| running | only an interrupt | an `input_request` of the stub: paused; `execute_reply` and idle: idle |
| paused | one `input_reply`: results (`resume_with`) or a refusal (`refuse`) | it is sent: running |
| ended | nothing | forever |

A running cell that has passed its deadline is interrupted; if the kernel answers within a second the
session is idle, otherwise it ends. A session also ends when its kernel ends, sends what the stub never
sends, or exceeds a limit that cannot be enforced without losing something. A paused or idle session can
move to another process (`park`, `detach`; there `take_over`).

Never: two requests at the same time; a reply that no request waits for, since the stub would take it as the
answer to its next call.

The marker, a random text, distinguishes the stub's calls from the cell's own ``input()``. The cell can read
it.

Stops: running time (interrupt, then kill), printed and displayed bytes, calls per cell,
`input()`, messages of a shape that no kernel sends (the session ends).

Does not stop: a cell that forges a call, since it can read the stub that makes calls. The host
reads every message as data of an expected shape, unpickles nothing and evaluates nothing.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sandbox.engine import Finished, Limits, Paused, Step
from sandbox.errors import (
    ProgramFailed,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
)
from sandbox.inside.values import JSON, REFUSED, VALUE_MIME
from sandbox.kernel import stub
from sandbox.kernel.connection import KernelConnection, Message, ParkedSession
from sandbox.kernel.outputs import PieceOutputs
from sandbox.outputs import Output

_INTERRUPT_SECONDS = 1.0
"""Seconds that an interrupted kernel has to stop what it runs, before it is killed."""
_OWN_SECONDS = 10.0
"""Seconds, in addition to those of a piece, for all our own expressions until the next piece."""
_END_OF_INPUT = "\x04"  # Jupyter's reply that makes input() raise EOFError


class KernelSession:
    """Variables persist between its cells. Used by one thread at a time. For files see
    `sandbox.kernel.notebook.Notebook`.
    """

    def __init__(self, kernel: KernelConnection, limits: Limits) -> None:
        self._kernel = kernel
        self._names: frozenset[str] = frozenset()
        self._limits = limits
        self._marker = secrets.token_hex(16)
        self._request: str | None = None
        """The id of the execute_request of the current piece, while it is running or paused."""
        self._seconds = 0.0
        """Remaining running time of the piece. Time spent paused does not count."""
        self._own_seconds = limits.seconds + _OWN_SECONDS
        """Remaining time of our own expressions."""
        self._pauses = 0
        self._outputs = PieceOutputs(limits.output)
        self.paused = False
        self._takes_list = False
        """The stub sent its calls as a list and expects a list of results."""
        self._ended = False

    def open(self) -> None:
        """Prepare the kernel for this session. Raises SandboxError."""
        try:
            self._run_own(f"{stub.STUB}.open_session()", self._offer(""))
        except SandboxTimeout as error:  # no cell has run yet
            raise SandboxDied("the kernel sent no answer before the first cell") from error

    def offer(self, names: frozenset[str], preamble: str = "") -> None:
        """Let calls of `names`, and of no others, pause from now on. Raises SandboxError."""
        self._names = names
        self._run_own(self._offer(preamble))

    def park(self) -> ParkedSession | None:
        """What another process needs to continue this session, or None if it has ended."""
        address = self._kernel.address()
        if address is None or self.ended:
            return None
        return ParkedSession(
            address,
            self._marker,
            tuple(sorted(self._names)),
            self._request if self.paused else None,
            self._takes_list,
            self._pauses,
            self._seconds,
            self._outputs.sizes,
        )

    def take_over(self, parked: ParkedSession, *, busy: bool) -> None:
        """Continue a parked session. With `busy` a cell may still be running in it, which is stopped.

        Raises SandboxDied if the cell does not stop, or the kernel was restarted meanwhile.
        """
        self._marker = parked.marker
        self._names = frozenset(parked.names)
        if parked.paused:
            self.paused = True
            self._request, self._takes_list = parked.running, parked.ahead
            self._pauses, self._seconds = parked.pauses, parked.left
            self._outputs.add_sizes(parked.sizes or {})
            return
        if busy:
            self._kernel.interrupt()
        self._own_seconds = _OWN_SECONDS
        self.evaluate(
            "1"
        )  # only our stub writes values that can be read: a restarted kernel has none

    def detach(self) -> None:
        """End this session but not its kernel, which another process continues with what `park` returned."""
        self._ended = True
        self._kernel.detach()

    def run(self, source: str) -> Iterator[Output | Step]:
        """Start a cell: its outputs as they come, a `Step` last. Raises SandboxError."""
        if self.paused:
            raise RuntimeError("the cell is paused: resume it before starting another")
        yield from self._begin(source)

    def resume_with(self, values: Sequence[JSON]) -> Iterator[Output | Step]:
        """Return results to the paused call and, in order, to those `pending` with it; then as `run`."""
        self._pauses += len(values) - 1
        results = values if self._takes_list else values[0]
        yield from self._reply(json.dumps(results, allow_nan=False))

    def refuse(self, message: str) -> Iterator[Output | Step]:
        """Let the paused call raise TypeError(`message`) in the program; then as `run`."""
        yield from self._reply(REFUSED + message)

    def evaluate(self, expression: str) -> JSON:
        """Return the value of an expression of our own, between pieces. Raises SandboxError.

        All expressions between two pieces share one deadline: a program may have replaced the functions in
        them.
        """
        if self.ended or self.paused:
            raise SandboxDied("this session has ended" if self.ended else "this session is paused")
        began = time.monotonic()
        request = self._kernel.execute("", silent=True, expressions={"it": expression})
        try:
            for channel, message in self._kernel.messages(self._own_seconds):
                if channel == "shell" and message["parent_header"].get("msg_id") == request:
                    result = message["content"]["user_expressions"]["it"]
                    value: JSON = json.loads(result["data"][VALUE_MIME])
                    self._own_seconds -= time.monotonic() - began
                    return value
        except (TimeoutError, LookupError, TypeError, ValueError, RecursionError) as error:
            self._end()
            raise SandboxDied("the kernel no longer answers as it should") from error
        raise AssertionError("messages() ends by raising")

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running code. Callable from any thread."""
        self._kernel.interrupt()

    def kill(self) -> None:
        """End the kernel. Callable from any thread."""
        self._kernel.kill()

    @property
    def ended(self) -> bool:
        """The session or its kernel has ended: no piece can run again."""
        return self._ended or not self._kernel.alive()

    def _offer(self, preamble: str) -> str:
        names = sorted(self._names)
        return stub.call("offer", names=names, preamble=preamble, marker=self._marker)

    def _run_own(self, *calls: str) -> None:
        _last_step(self._begin("\n".join(calls)))

    def _begin(self, source: str) -> Iterator[Output | Step]:
        if self.ended:
            raise SandboxDied("this session has ended")
        self._seconds = self._limits.seconds
        self._own_seconds = self._limits.seconds + _OWN_SECONDS
        self._outputs = PieceOutputs(self._limits.output)
        self._pauses = 0

        def send() -> None:
            self._request = self._kernel.execute(source)

        yield from self._until_step(send)

    def _reply(self, text: str) -> Iterator[Output | Step]:
        if not self.paused:
            raise RuntimeError("the program is not paused")
        self.paused = False
        yield from self._until_step(partial(self._kernel.reply, text))

    def _until_step(self, send: Callable[[], None]) -> Iterator[Output | Step]:
        """Send, and read messages until the piece pauses or ends, within its remaining time."""
        try:
            send()
            yield from self._read_messages()
        except GeneratorExit:
            if self._request is not None and not self.paused:
                self._stop()  # the consumer does not want the rest
            raise
        except TimeoutError:
            self._stop()
            raise SandboxTimeout(self._limits.seconds) from None
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            self._end()
            raise SandboxDied("the kernel sent what no kernel sends") from error
        except ProgramFailed:
            raise
        except SandboxLimit:
            self._end()
            raise
        except SandboxError:
            self._ended = True
            raise

    def _read_messages(self) -> Iterator[Output | Step]:
        began = time.monotonic()
        reply: dict[str, Any] | None = None
        idle = False
        for channel, message in self._kernel.messages(self._seconds):
            if message["parent_header"].get("msg_id") != self._request:
                continue
            kind, content = message["msg_type"], message["content"]
            if channel == "stdin" and kind == "input_request":
                paused = self._read_calls(content)
                if paused is not None:
                    self._seconds -= time.monotonic() - began
                    yield from self._outputs_before_pause()
                    self.paused = True
                    yield paused
                    return
            elif channel == "iopub":
                idle = idle or (kind == "status" and content["execution_state"] == "idle")
                yield from self._outputs.read(kind, content)
            elif channel == "shell" and kind == "execute_reply":
                reply = content
            if idle and reply is not None:  # they come on different channels, in any order
                yield self._finish(reply)
                return
        raise AssertionError("messages() ends by raising")

    def _outputs_before_pause(self) -> Iterator[Output]:
        """The outputs of the piece before its call, if the kernel's connection may deliver them after it."""
        if (barrier := self._kernel.barrier()) is None:
            return
        with contextlib.suppress(TimeoutError):  # then they come when the piece continues
            for channel, message in self._kernel.messages(_INTERRUPT_SECONDS):
                parent = message["parent_header"].get("msg_id")
                kind, content = message["msg_type"], message["content"]
                if channel == "iopub" and parent == self._request:
                    yield from self._outputs.read(kind, content)
                elif parent == barrier and content.get("execution_state") == "idle":
                    return

    def _read_calls(self, content: Message) -> Paused | None:
        """The calls of an input request, or None if the program itself called ``input()``."""
        prompt = content["prompt"]
        if not (isinstance(prompt, str) and prompt.startswith(self._marker)):
            self._kernel.reply(_END_OF_INPUT)  # there is no user to ask
            return None
        text = prompt.removeprefix(self._marker)
        calls, self._takes_list = stub.read_calls(text, self._names)
        first, *others = calls
        self._pauses += 1
        if self._pauses > self._limits.pauses:
            raise SandboxLimit("calls")
        return replace(first, pending=tuple(others[: self._limits.pauses - self._pauses]))

    def _finish(self, reply: Message) -> Finished:
        self._request = None
        stdout = self._outputs.printed
        if reply["status"] != "ok":
            raise stub.read_failure(reply, stdout)
        return replace(self._outputs.result, stdout=stdout)

    def _stop(self) -> None:
        """Interrupt the running code. A kernel that stops keeps its state; one that does not is killed."""
        self._kernel.interrupt()
        with contextlib.suppress(TimeoutError, SandboxError):
            for channel, message in self._kernel.messages(_INTERRUPT_SECONDS):
                if channel == "shell" and message["parent_header"].get("msg_id") == self._request:
                    return
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._kernel.kill()


def _last_step(events: Iterator[Output | Step]) -> Step:
    """The step at the end of a run."""
    for event in events:
        if isinstance(event, Paused | Finished):
            return event
    raise AssertionError("a step comes last")
