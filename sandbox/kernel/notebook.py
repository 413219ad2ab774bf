"""A kernel for people and models: cells with rich outputs, one after the other, and files next to them.

Files travel over the kernel protocol: the host never opens a path in a sandbox, and it works the same
wherever the kernel runs. A kernel's answers about files are believed only about that kernel's own files, and
bounded in number and size.

Stops: files outside the data folder, more files or bytes than the host asked for, links followed
out of a sandbox (the host follows nothing).

Does not stop: a program that lies about its own files.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.engine import JSON
from sandbox.errors import SandboxDied, SandboxError
from sandbox.kernel.session import KernelSession
from sandbox.kernel.stub import STUB

_CHUNK = 768 * 1024
"""Bytes of a file in one message; as base64, far below the largest message."""


@dataclass(frozen=True)
class KernelFile:
    """A file in the data folder when it was listed."""

    path: str
    """Relative to the data folder, with `/`. Untrusted: it may be anything."""
    size: int
    modified: int
    """Nanoseconds."""


class KernelFileError(SandboxError):
    """A file could not be read or written in the sandbox: it is gone, too large, or the disk is full."""


class Notebook(KernelSession):
    """A session and its files. It can be parked and continued by another process."""

    def libraries(self, names: Sequence[str]) -> dict[str, str]:
        """Distributions among `names` that are installed in the sandbox -> their versions."""
        versions = self.evaluate(f"{STUB}.libraries({list(names)!r})")
        if not isinstance(versions, dict):
            raise SandboxDied("the kernel no longer answers as it should")
        return {str(name)[:100]: str(version)[:100] for name, version in versions.items()}

    def files(self, most: int = 1000) -> list[KernelFile]:
        """At most `most` regular files in the data folder, without hidden ones."""
        entries = self.evaluate(f"{STUB}.files({most})")
        try:
            return [_kernel_file(entry) for entry in _list(entries)[:most]]
        except (TypeError, ValueError) as error:
            raise SandboxDied("the kernel no longer answers as it should") from error

    def read(self, path: str, most: int) -> bytes:
        """The content of a file of at most `most` bytes. Raises KernelFileError."""
        content = bytearray()
        while True:
            chunk = self._read(path, len(content))
            content += chunk
            if len(content) > most:
                raise KernelFileError(f"{path} is larger than {most} bytes")
            if len(chunk) < _CHUNK:
                return bytes(content)

    def _read(self, path: str, start: int) -> bytes:
        chunk = self.evaluate(f"{STUB}.read({path!r}, {start}, {_CHUNK})")
        if not isinstance(chunk, str):
            raise KernelFileError(f"{path} cannot be read")
        try:
            return base64.b64decode(chunk, validate=True)
        except binascii.Error as error:
            raise KernelFileError(f"{path} cannot be read") from error

    def write(self, path: str, content: bytes) -> None:
        """Write a file in the data folder, replacing one that exists. Raises KernelFileError."""
        for start in range(0, len(content) or 1, _CHUNK):
            chunk = base64.b64encode(content[start : start + _CHUNK]).decode()
            problem = self.evaluate(f"{STUB}.write({path!r}, {start}, {chunk!r})")
            if problem is not None:
                raise KernelFileError(f"{path} cannot be written: {problem}")

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        self.evaluate(f"{STUB}.remove({path!r})")


def _list(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _kernel_file(entry: JSON) -> KernelFile:
    path, size, modified = _list(entry)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(modified, int)):
        raise TypeError("not a file")
    # A name that is not UTF-8 has surrogates, which cannot be stored; escaped, it names no file.
    return KernelFile(path.encode(errors="backslashreplace").decode(), size, modified)
