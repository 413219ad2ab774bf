"""Run programs in a Jupyter kernel: all of CPython, spoken to through jupyter_client.

Stops: what the kernel's place stops (`sandbox.provisioners`), and here: running time (interrupt,
then kill), printed bytes, calls per session, a kernel that dies (the session alone is lost),
`input()`, state left by an earlier program (a kernel serves one session).

Does not stop: a program that forges a call, since it can read the stub that makes calls. The host
reads every message as data of an expected shape, unpickles nothing and evaluates nothing.
"""

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NoReturn, Self

from sandbox import cgroups, fences, leftovers
from sandbox.awaits import settle_awaits
from sandbox.engine import Finished, Limits, Paused, Session, Step
from sandbox.errors import (
    Frame,
    ProgramFailed,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
    render_traceback,
)
from sandbox.jupyter import Connected, Kernel
from sandbox.pool import WarmPool
from sandbox.provisioners import PLACES, kernel_spec
from sandbox.values import JSON

VALUE_MIME = "application/vnd.tool-emulator.value+json"

_STUB = "__import__('sys').modules['sandbox.kernel_stub']"
_GRACE = 1.0
"""Seconds that an interrupted kernel has to give in before it is killed."""
_PICTURES = 64
"""What is displayed (images, HTML) may take so many times what is printed."""
_LARGEST_CALL = 1024 * 1024
_END_OF_INPUT = "\x04"  # Jupyter's reply that makes input() raise EOFError


class KernelEngine:
    """Kernels in one place: `bubblewrap`, or `none` where the operator said so by name.

    `warm` kernels wait ready, started in the background by `warm_up` or the first session; at most
    `most` sessions are open at once, one more raises SandboxBusy. A kernel that has waited `max_age`
    seconds, or has died, is replaced. `memory` in `limits` counts what
    a kernel maps beyond its own start, in each of its processes.
    """

    name = "kernel"

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        place: str = "bubblewrap",
        warm: int = 1,
        most: int = 16,
        max_age: float = 3600.0,
        connect: Callable[[str], Connected] | None = None,
    ) -> None:
        """`connect` makes kernels somewhere else than in `place`, each given the source of its
        setup; what confines them there is not for this engine to check."""
        self.limits = limits or Limits()
        self.place = place
        if place not in PLACES:
            raise ValueError(f"unknown place {place!r}; known: {', '.join(PLACES)}")
        spec = kernel_spec(place, {"memory": self.limits.memory})
        setup = f"{_STUB}.prepare({self.limits.output})"
        launch = connect or partial(Kernel, spec)
        self._pool: WarmPool[Connected] = WarmPool(
            partial(launch, setup), size=warm, most=most, max_age=max_age
        )
        self._probe_lock = threading.Lock()
        self._problem: SandboxUnavailable | None = None
        self._probed = place == "none" or connect is not None

    def warm_up(self) -> None:
        """Start the waiting kernels now. Raises SandboxUnavailable if this place cannot be had."""
        self._check()
        self._pool.fill()

    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> AbstractContextManager[Session]:
        return self._session(names, preamble, seed)

    @contextmanager
    def _session(self, names: frozenset[str], preamble: str, seed: int) -> Iterator[Session]:
        self._check()
        kernel = self._pool.take()
        try:
            session = _KernelSession(kernel, names, self.limits)
            session.open(preamble, seed)
            yield session
        finally:
            self._pool.give_back(kernel)

    def _check(self) -> None:
        """A sandbox that cannot be had turns this engine off; it never becomes a weaker one."""
        with self._probe_lock:
            if not self._probed:
                leftovers.sweep(cgroups.folders())
                self._problem = fences.problem()
                self._probed = True
            if self._problem is not None:
                raise SandboxUnavailable(self._problem.reason, self._problem.fix)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _KernelSession:
    """One program's use of a kernel. `_running` is the execute_request being served, if any."""

    def __init__(self, kernel: Connected, names: frozenset[str], limits: Limits) -> None:
        self._kernel = kernel
        self._names = names
        self._limits = limits
        self._marker = secrets.token_hex(16)
        self._running: str | None = None
        self._paused = False
        self._over = False
        self._left = 0.0  # seconds of the piece's deadline
        self._pauses = 0
        self._printed: list[str] = []
        self._printed_size = 0
        self._displayed_size = 0
        self._shown: Finished = Finished()

    def open(self, preamble: str, seed: int) -> None:
        payload = {
            "names": sorted(self._names), "preamble": preamble, "seed": seed,
            "marker": self._marker,
        }  # fmt: skip
        # repr of a str is Python source for it.
        self._begin(f"{_STUB}.open_session({json.dumps(payload)!r})")
        self._run_on()

    def start(self, source: str) -> Step:
        if self._paused:
            raise RuntimeError("the program is paused: resume it before starting another piece")
        self._begin(settle_awaits(source, self._names))
        return self._run_on()

    def resume(self, value: JSON) -> Step:
        if not self._paused:
            raise RuntimeError("the program is not paused")
        self._paused = False
        self._kernel.answer(json.dumps(value, allow_nan=False))
        return self._run_on()

    def _begin(self, source: str) -> None:
        if self._over:
            raise SandboxDied("this session has ended")
        self._left = self._limits.seconds
        self._printed, self._shown = [], Finished()
        self._printed_size = self._displayed_size = 0
        self._running = self._kernel.execute(source)

    def _run_on(self) -> Step:
        """Take messages until the piece pauses or ends, on what is left of its deadline."""
        began = time.monotonic()
        reply: dict[str, Any] | None = None
        idle = False
        try:
            for channel, message in self._kernel.messages(self._left):
                if message["parent_header"].get("msg_id") != self._running:
                    continue
                kind, content = message["msg_type"], message["content"]
                if channel == "stdin" and kind == "input_request":
                    paused = self._input_request(content)
                    if paused is not None:
                        self._left -= time.monotonic() - began
                        self._paused = True
                        return paused
                elif channel == "iopub":
                    idle = idle or (kind == "status" and content["execution_state"] == "idle")
                    self._output(kind, content)
                elif channel == "shell" and kind == "execute_reply":
                    reply = content
                if idle and reply is not None:
                    return self._finished(reply)
        except TimeoutError:
            self._stop()
            raise SandboxTimeout(self._limits.seconds) from None
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            self._end()
            raise SandboxDied("the kernel sent what no kernel sends") from error
        except ProgramFailed:
            raise
        except SandboxError:
            self._over = True
            raise
        raise AssertionError("messages() ends by raising")

    def _input_request(self, content: dict[str, Any]) -> Paused | None:
        prompt = content["prompt"]
        if not (isinstance(prompt, str) and prompt.startswith(self._marker)):
            self._kernel.answer(_END_OF_INPUT)  # the program's own input(): there is nobody to ask
            return None
        if len(prompt) > _LARGEST_CALL:
            self._limit("argument bytes in a call")
        call = json.loads(prompt.removeprefix(self._marker), parse_constant=_no_constant)
        name, args, kwargs, line = call["name"], call["args"], call["kwargs"], call["line"]
        if name not in self._names or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError(name)
        self._pauses += 1
        if self._pauses > self._limits.pauses:
            self._limit("calls")
        return Paused(name, tuple(args), kwargs, line if type(line) is int else None)

    def _output(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            text = _text(content["text"])
            self._printed.append(text)
            self._printed_size += len(text.encode(errors="replace"))
        elif kind in ("execute_result", "display_data"):
            data = content["data"]
            text = _text(data.get("text/plain", ""))
            self._printed_size += len(text)
            self._displayed_size += sum(len(str(shape)) for shape in data.values())
            if kind == "execute_result":
                value = data.get(VALUE_MIME)
                self._shown = Finished("", None if value is None else json.loads(value), text)
            else:
                self._printed.append(f"{text}\n")
        if (
            self._printed_size > self._limits.output
            or self._displayed_size > _PICTURES * self._limits.output
        ):
            self._limit("output")

    def _finished(self, reply: dict[str, Any]) -> Finished:
        self._running = None
        stdout = "".join(self._printed)
        if reply["status"] != "ok":
            self._fail(reply, stdout)
        return Finished(stdout, self._shown.value, self._shown.text)

    def _fail(self, reply: dict[str, Any], stdout: str) -> NoReturn:
        kind, message = str(reply["ename"]), str(reply["evalue"])[:10_000]
        if kind == "MemoryError":
            # The limit on address space shows as CPython's own error.
            self._end()
            raise SandboxLimit("memory")
        try:
            frames = [
                (bool(current), Frame(int(line), str(function), str(text)))
                for current, line, function, text in json.loads(reply["traceback"][0])
            ]
        except (ValueError, TypeError, LookupError, RecursionError):
            frames = []  # not written by our stub
        lines = [frame.line for current, frame in frames if current]
        raise ProgramFailed(
            kind,
            message,
            lines[-1] if lines else None,
            render_traceback([frame for _, frame in frames], kind, message),
            stdout,
        )

    def _limit(self, what: str) -> NoReturn:
        self._end()
        raise SandboxLimit(what)

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


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
