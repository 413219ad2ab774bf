"""A kernel for people and models: cells with rich outputs, one after the other, and files beside them.

Files travel over the kernel protocol: the host never opens a path in a sandbox, and it is the same
wherever the kernel runs. What a kernel says of its files is believed for as far as it concerns
that kernel's own files, bounded in number and size.

Stops: files outside the data folder, more files or bytes than the host asked for, links followed
out of a sandbox (the host follows nothing).

Does not stop: a program that lies about its own files.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox.engine import JSON, Step
from sandbox.errors import SandboxDied, SandboxError
from sandbox.kernel.parked import Parked
from sandbox.kernel.session import KernelSession
from sandbox.kernel.stub import STUB
from sandbox.outputs import Output

_CHUNK = 768 * 1024
"""Bytes of a file in one message; as base64, far below the largest message."""


@dataclass(frozen=True)
class Seen:
    """A file in the data folder, as it was when it was looked at."""

    path: str
    """Relative to the data folder, with `/`. Not to be trusted: it may be anything."""
    size: int
    changed: int
    """Modification time in nanoseconds."""


class FileFault(SandboxError):
    """A file could not be read or written in the sandbox: it is gone, too large, or there is no room."""


class Notebook:
    """Used by one thread at a time, and not while a cell is paused, but for `run_on` and `refuse`."""

    def __init__(self, session: KernelSession) -> None:
        self._session = session

    @property
    def over(self) -> bool:
        """The kernel is no more."""
        return self._session.over

    @property
    def paused(self) -> bool:
        return self._session.paused

    def park(self) -> Parked | None:
        """What another process goes on with this kernel by; None where it ends with this process."""
        return self._session.park()

    def leave(self) -> None:
        """Let the kernel live on for who has `park`: it is over here."""
        self._session.leave()

    def offer(self, names: frozenset[str], preamble: str = "") -> None:
        """Let calls of `names`, and of no others, pause from here on. Raises SandboxError."""
        self._session.offer(names, preamble)

    def run(self, cell: str) -> Iterator[Output | Step]:
        """Run a cell: outputs as they come, a `Step` last. Raises SandboxError."""
        return self._session.run(cell)

    def run_on(self, value: JSON) -> Iterator[Output | Step]:
        """Give a paused cell the result of its call; then as `run`."""
        return self._session.run_on(value)

    def run_on_together(self, values: Sequence[JSON]) -> Iterator[Output | Step]:
        """Give a paused cell the results of its call and of the first ones ahead; then as `run`."""
        return self._session.run_on_together(values)

    def refuse(self, message: str) -> Iterator[Output | Step]:
        """Let a paused cell's call raise TypeError; then as `run`."""
        return self._session.refuse(message)

    def interrupt(self) -> None:
        """Let the running cell raise KeyboardInterrupt. Callable from any thread."""
        self._session.interrupt()

    def kill(self) -> None:
        """End the kernel now. Callable from any thread."""
        self._session.kill()

    def libraries(self, names: Sequence[str]) -> dict[str, str]:
        """Those distributions of `names` that are installed in the sandbox -> their versions."""
        found = self._session.evaluate(f"{STUB}.libraries({list(names)!r})")
        if not isinstance(found, dict):
            raise SandboxDied("the kernel no longer answers as it should")
        return {str(name)[:100]: str(version)[:100] for name, version in found.items()}

    def files(self, most: int = 1000) -> list[Seen]:
        """At most `most` regular files in the data folder, hidden ones left out."""
        found = self._session.evaluate(f"{STUB}.files({most})")
        try:
            return [_seen(entry) for entry in _list(found)[:most]]
        except (TypeError, ValueError) as error:
            raise SandboxDied("the kernel no longer answers as it should") from error

    def read(self, path: str, most: int) -> bytes:
        """The content of a file of at most `most` bytes. Raises FileFault."""
        content = bytearray()
        while True:
            chunk = self._read(path, len(content))
            content += chunk
            if len(content) > most:
                raise FileFault(f"{path} is larger than {most} bytes")
            if len(chunk) < _CHUNK:
                return bytes(content)

    def _read(self, path: str, start: int) -> bytes:
        chunk = self._session.evaluate(f"{STUB}.read({path!r}, {start}, {_CHUNK})")
        if not isinstance(chunk, str):
            raise FileFault(f"{path} cannot be read")
        try:
            return base64.b64decode(chunk, validate=True)
        except binascii.Error as error:
            raise FileFault(f"{path} cannot be read") from error

    def write(self, path: str, content: bytes) -> None:
        """Put a file into the data folder, in place of what is there. Raises FileFault."""
        for start in range(0, len(content) or 1, _CHUNK):
            chunk = base64.b64encode(content[start : start + _CHUNK]).decode()
            problem = self._session.evaluate(f"{STUB}.write({path!r}, {start}, {chunk!r})")
            if problem is not None:
                raise FileFault(f"{path} cannot be written: {problem}")

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self._session.evaluate(f"{STUB}.remove({path!r})")


def _list(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _seen(entry: JSON) -> Seen:
    path, size, changed = _list(entry)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(changed, int)):
        raise TypeError("not a file")
    return Seen(path, size, changed)
