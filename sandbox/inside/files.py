"""A kernel's files, for the host: the part of `sandbox.kernel.notebook` that runs *inside* a kernel.

The host calls these functions through `sandbox.inside.stub`.
"""

import atexit
import base64
import contextlib
import importlib.metadata
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_DEPTH = 8

DATA = os.getcwd()  # noqa: PTH109
"""The data folder: where the kernel starts, or what `own_folder` made."""


def own_folder() -> None:
    """Make a data folder for this kernel alone, which may share a machine with others.

    It is removed when the kernel exits, unless the kernel is killed. A kernel that starts in /mnt/data has
    that folder for itself.
    """
    global DATA  # noqa: PLW0603 - one kernel, one session
    if DATA == "/mnt/data":
        return
    DATA = tempfile.mkdtemp(prefix="kernel-")
    atexit.register(shutil.rmtree, DATA, ignore_errors=True)
    os.chdir(DATA)


def libraries(names: Sequence[str]) -> dict[str, str]:
    """Installed distributions among `names` -> their versions."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def files(most: int) -> list[list[str | int]]:
    """[path, size, modification time in ns] of regular files that are not hidden. Links are not followed."""
    found: list[list[str | int]] = []
    for path in _walk(DATA, "", _DEPTH):
        status = Path(DATA, path).lstat()
        if stat.S_ISREG(status.st_mode):
            found.append([path, status.st_size, status.st_mtime_ns])
        if len(found) >= most:
            break
    return found


def _walk(folder: str, prefix: str, depth: int) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                yield from _walk(entry.path, f"{prefix}{entry.name}/", depth - 1)
        else:
            yield prefix + entry.name


def read(path: str, start: int, size: int) -> str | None:
    """`size` bytes of a file from `start` as base64, or None if it cannot be read."""
    try:
        descriptor = os.open(Path(DATA, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return base64.b64encode(os.pread(descriptor, size, start)).decode()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write(path: str, start: int, content: str) -> str | None:
    """Write base64 `content` at `start`; 0 empties the file first. Return None, or why it failed."""
    whole = Path(DATA, path)
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(whole, flags | (0 if start else os.O_TRUNC), 0o644)
    except OSError as error:
        return error.strerror or "it cannot be opened"
    try:
        remaining = base64.b64decode(content)
        while remaining:
            size = os.pwrite(descriptor, remaining, start)
            remaining, start = remaining[size:], start + size
    except OSError as error:
        return error.strerror or "it cannot be written"
    finally:
        os.close(descriptor)
    return None


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(OSError):
        Path(DATA, path).unlink()
