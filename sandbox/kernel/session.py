"""One session's use of a kernel: pieces of a program in, outputs, pauses and results out.

Stops: running time (interrupt, then kill), printed and displayed bytes, calls per session,
`input()`, messages of a shape that no kernel sends (the session ends).

Does not stop: a program that forges a call, since it can read the stub that makes calls. The host
reads every message as data of an expected shape, unpickles nothing and evaluates nothing.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sandbox.awaits import settle_awaits
from sandbox.engine import Finished, Limits, Paused, Step
from sandbox.errors import (
    Frame,
    ProgramFailed,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
    render_traceback,
)
from sandbox.inside.values import AWAITED, JSON, REFUSED, VALUE_MIME
from sandbox.kernel import stub, stub_messages
from sandbox.kernel.connection import Connected, Message
from sandbox.kernel.outputs import Outputs
from sandbox.kernel.parked import Parked
from sandbox.outputs import Output
from sandbox.parsing import misplaced, parse

_GRACE = 1.0
"""Seconds that an interrupted kernel has to give in before it is killed."""
_OWN_SECONDS = 10.0
"""Seconds beside a piece's own that all expressions of ours may take until the next piece begins."""
_END_OF_INPUT = "\x04"  # Jupyter's reply that makes input() raise EOFError


class KernelSession:
    """A `Session` that can also tell its outputs as they come (`run`, `run_on`).

    A `lenient` session, one for people's notebooks, drops what is printed beyond its limit and says
    so; the other ends. Used by one thread at a time.
    """

    def __init__(
        self, kernel: Connected, names: frozenset[str], limits: Limits, *, lenient: bool = False
    ) -> None:
        self._kernel = kernel
        self._names = names
        self._limits = limits
        self._lenient = lenient
        self._marker = secrets.token_hex(16)
        self._running: str | None = None
        """The execute_request being served, if any."""
        self._left = 0.0  # seconds of the piece's deadline
        self._own_left = limits.seconds + _OWN_SECONDS
        self._pauses = 0
        self._outputs = Outputs(limits.output, lenient=lenient)
        self.paused = False
        self._ahead = False
        """The paused call takes a list of results."""
        self._over = False

    def open(self, preamble: str, seed: int) -> None:
        self._own(
            stub.call("open_session", seed=seed, ordered=not self._lenient), self._offer(preamble)
        )

    def offer(self, names: frozenset[str], preamble: str = "") -> None:
        """Let calls of `names`, and of no others, pause from here on."""
        self._names = names
        self._own(self._offer(preamble))

    def park(self) -> Parked | None:
        """What another process goes on with this session by; None where the kernel ends with this process."""
        address = self._kernel.address()
        if address is None or self.over:
            return None
        names = tuple(sorted(self._names))
        if not self.paused:
            return Parked(address, self._marker, names)
        return Parked(
            address,
            self._marker,
            names,
            self._running,
            self._ahead,
            self._pauses,
            self._left,
            self._outputs.sizes,
        )

    def take_over(self, parked: Parked, *, busy: bool) -> None:
        """Go on as `parked` says; what is still running, where nobody waits for it (`busy`), is stopped.

        Raises SandboxDied for a kernel that does not give in, or has been started anew meanwhile.
        """
        self._marker = parked.marker
        self._names = frozenset(parked.names)
        if parked.paused:
            self.paused = True
            self._running, self._ahead = parked.running, parked.ahead
            self._pauses, self._left = parked.pauses, parked.left
            self._outputs.count(parked.sizes or {})
            return
        if busy:
            self._kernel.interrupt()
        self._own_left = _OWN_SECONDS
        self.evaluate("1")  # only our stub writes values that can be read

    def leave(self) -> None:
        """Let the kernel live on for who has `park`; this session is over."""
        self._over = True
        self._kernel.leave()

    def start(self, source: str) -> Step:
        return _step(self.run(source))

    def resume(self, value: JSON) -> Step:
        return _step(self.run_on(value))

    def run(self, source: str) -> Iterator[Output | Step]:
        """Start a piece: its outputs as they come, a `Step` last. Raises as `start` does."""
        if self.paused:
            raise RuntimeError("the program is paused: resume it before starting another piece")
        if not self._lenient:
            source = settle_awaits(source, self._names, awaited=AWAITED)
            self._compile(source)
        self._begin(source)
        yield from self._messages()

    def _compile(self, source: str) -> None:
        """What CPython's compiler says of a whole program; IPython would run its beginning first."""
        try:
            wrong = next(misplaced(parse(source)), None)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # the kernel's to tell
        if wrong is not None:
            line, words = wrong
            text = source.splitlines()[line - 1].strip()
            traceback = render_traceback([Frame(line, "<module>", text)], "SyntaxError", words)
            raise ProgramFailed("SyntaxError", words, line, traceback)

    def run_on(self, value: JSON) -> Iterator[Output | Step]:
        """Give the paused call its result; then as `run`."""
        yield from self.run_on_together([value])

    def run_on_together(self, values: Sequence[JSON]) -> Iterator[Output | Step]:
        """Give the paused call and the first of those `ahead` of it their results; then as `run`."""
        self._pauses += len(values) - 1
        # A kernel that told of nothing ahead takes the bare value.
        said = values if self._ahead else values[0]
        yield from self._answered(json.dumps(said, allow_nan=False))

    def refuse(self, message: str) -> Iterator[Output | Step]:
        """Let the paused call raise TypeError(`message`) in the program; then as `run`."""
        yield from self._answered(REFUSED + message)

    def evaluate(self, expression: str) -> JSON:
        """The value of an expression of our own, between pieces. Raises SandboxError.

        All expressions between two pieces share one deadline: a program may have replaced what they call.
        """
        if self.over or self.paused:
            raise SandboxDied("this session has ended" if self.over else "this session is paused")
        began = time.monotonic()
        sent = self._kernel.execute("", silent=True, expressions={"it": expression})
        try:
            for channel, message in self._kernel.messages(self._own_left):
                if channel == "shell" and message["parent_header"].get("msg_id") == sent:
                    found = message["content"]["user_expressions"]["it"]
                    value: JSON = json.loads(found["data"][VALUE_MIME])
                    self._own_left -= time.monotonic() - began
                    return value
        except (TimeoutError, LookupError, TypeError, ValueError, RecursionError) as error:
            self._end()
            raise SandboxDied("the kernel no longer answers as it should") from error
        raise AssertionError("messages() ends by raising")

    def interrupt(self) -> None:
        """Let what runs raise KeyboardInterrupt. Callable from any thread."""
        self._kernel.interrupt()

    def kill(self) -> None:
        """End the kernel. Callable from any thread."""
        self._kernel.kill()

    @property
    def over(self) -> bool:
        """The kernel is no more: no piece can be run again."""
        return self._over or not self._kernel.alive()

    def _offer(self, preamble: str) -> str:
        names = sorted(self._names)
        return stub.call("offer", names=names, preamble=preamble, marker=self._marker)

    def _own(self, *calls: str) -> None:
        self._begin("\n".join(calls))
        _step(self._messages())

    def _begin(self, source: str) -> None:
        if self.over:
            raise SandboxDied("this session has ended")
        self._left = self._limits.seconds
        self._own_left = self._limits.seconds + _OWN_SECONDS
        self._outputs = Outputs(self._limits.output, lenient=self._lenient)
        if self._lenient:
            self._pauses = 0  # each cell may make as many calls
        with self._taken():
            self._running = self._kernel.execute(source)

    def _answered(self, reply: str) -> Iterator[Output | Step]:
        if not self.paused:
            raise RuntimeError("the program is not paused")
        self.paused = False
        with self._taken():
            self._kernel.answer(reply)
        yield from self._messages()

    @contextlib.contextmanager
    def _taken(self) -> Iterator[None]:
        """A kernel that takes no message is of no use any more."""
        try:
            yield
        except SandboxError:
            self._end()
            raise

    def _messages(self) -> Iterator[Output | Step]:
        """Take messages until the piece pauses or ends, on what is left of its deadline."""
        try:
            yield from self._until_step()
        except GeneratorExit:
            if self._running is not None and not self.paused:
                self._stop()  # nobody waits for this any more
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
            self._over = True
            raise

    def _until_step(self) -> Iterator[Output | Step]:
        began = time.monotonic()
        reply: dict[str, Any] | None = None
        idle = False
        for channel, message in self._kernel.messages(self._left):
            if message["parent_header"].get("msg_id") != self._running:
                continue
            kind, content = message["msg_type"], message["content"]
            if channel == "stdin" and kind == "input_request":
                paused = self._input_request(content)
                if paused is not None:
                    self._left -= time.monotonic() - began
                    yield from self._outputs_before_pause()
                    self.paused = True
                    yield paused
                    return
            elif channel == "iopub":
                idle = idle or (kind == "status" and content["execution_state"] == "idle")
                yield from self._outputs.read(kind, content)
            elif channel == "shell" and kind == "execute_reply":
                reply = content
            if idle and reply is not None:
                yield self._finished(reply)
                return
        raise AssertionError("messages() ends by raising")

    def _outputs_before_pause(self) -> Iterator[Output]:
        """What the piece put out before its call, where that comes another way."""
        if not self._lenient or (barrier := self._kernel.barrier()) is None:
            return
        with contextlib.suppress(TimeoutError):  # it comes when the piece goes on
            for channel, message in self._kernel.messages(_GRACE):
                parent = message["parent_header"].get("msg_id")
                kind, content = message["msg_type"], message["content"]
                if channel == "iopub" and parent == self._running:
                    yield from self._outputs.read(kind, content)
                elif parent == barrier and content.get("execution_state") == "idle":
                    return

    def _input_request(self, content: Message) -> Paused | None:
        prompt = content["prompt"]
        if not (isinstance(prompt, str) and prompt.startswith(self._marker)):
            self._kernel.answer(_END_OF_INPUT)  # the program's own input(): there is nobody to ask
            return None
        calls, self._ahead = stub_messages.calls(prompt.removeprefix(self._marker), self._names)
        if self._ahead and not self._lenient:
            raise ValueError("a program's calls come one by one")
        first, *ahead = calls
        self._pauses += 1
        if self._pauses > self._limits.pauses:
            raise SandboxLimit("calls")
        return replace(first, ahead=tuple(ahead[: self._limits.pauses - self._pauses]))

    def _finished(self, reply: Message) -> Finished:
        self._running = None
        stdout = self._outputs.printed
        if reply["status"] != "ok":
            failed = stub_messages.failure(reply, stdout)
            if failed.kind == "MemoryError" and not self._lenient:
                # The limit on address space shows as CPython's own error.
                raise SandboxLimit("memory")
            raise failed
        return replace(self._outputs.shown, stdout=stdout)

    def _stop(self) -> None:
        """Interrupt; a kernel that gives in keeps its state, one that does not is killed."""
        self._kernel.interrupt()
        with contextlib.suppress(TimeoutError, SandboxError):
            for channel, message in self._kernel.messages(_GRACE):
                if channel == "shell" and message["parent_header"].get("msg_id") == self._running:
                    return
        self._end()

    def _end(self) -> None:
        self._over = True
        self._kernel.kill()


def _step(events: Iterator[Output | Step]) -> Step:
    """The step at the end of a run."""
    for event in events:
        if isinstance(event, Paused | Finished):
            return event
    raise AssertionError("a step comes last")
