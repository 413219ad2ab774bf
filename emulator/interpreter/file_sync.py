"""Synchronizes a container's files with those of its kernel. Knows nothing of cells.

The host's copies are authoritative: they outlive kernels. Before a cell, the user's changes are copied into
the kernel; after it, the cell's changes are copied out. A kernel's list of files is limited to a container's
quota, and each name is checked before a file is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from emulator.core.errors import EmulatorError
from emulator.core.events import CreatedFile
from emulator.storage.container_files import ROOT
from emulator.storage.containers import Containers
from sandbox.kernel.notebook import KernelFile, KernelFileError, Notebook

MAX_FILES = 1000
"""If a kernel has more files, the rest are ignored."""


@dataclass(frozen=True)
class SyncedFiles:
    """The state of a `FileSync`. A file is (path, size, modification time)."""

    version: int | None = None
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)


class FileSync:
    """The files of one kernel, from its start on. Used by one thread at a time."""

    def __init__(self, containers: Containers, container_id: str, max_bytes: int) -> None:
        """One cell can store at most ``max_bytes``."""
        self._containers = containers
        self._container_id = container_id
        self._max_bytes = max_bytes
        self._version: int | None = None
        self._seen: dict[str, KernelFile] = {}
        """The kernel's files when they were last listed."""
        self._shared: set[str] = set()
        """Paths that both sides had. Only such a file is removed on one side when the other has removed
        it.
        """
        self.notes: list[str] = []
        """Files that could not be stored or copied. The code that reports them clears the list."""

    def state(self) -> SyncedFiles:
        """What another process needs to continue."""
        seen = [(file.path, file.size, file.modified) for file in self._seen.values()]
        return SyncedFiles(self._version, seen, sorted(self._shared))

    def resume(self, state: SyncedFiles) -> None:
        self._version = state.version
        self._seen = {path: KernelFile(path, size, changed) for path, size, changed in state.seen}
        self._shared = {*state.shared}

    def bring_in(self, notebook: Notebook) -> None:
        """Apply to the kernel's files what a user has added, replaced or removed."""
        version = self._containers.version(self._container_id)
        if version == self._version:
            return
        files = self._containers.files(self._container_id)
        wanted = {file.path.removeprefix(ROOT): file for file in files}
        for path in self._shared - wanted.keys():
            notebook.remove(path)
        for path, file in wanted.items():
            if file.source == "user" or path not in self._shared:
                try:
                    notebook.write(path, self._containers.read(self._container_id, file.id))
                except KernelFileError as error:
                    notebook.remove(path)  # a part of it may have been written
                    self.notes.append(f"the user's file could not be copied: {error}")
        self._list(notebook)
        self._shared = wanted.keys() & self._seen.keys()
        self._version = version

    def bring_out(self, notebook: Notebook) -> list[CreatedFile]:
        """Store the files that a cell has written or changed, and remove those that it has removed."""
        before, remaining = self._seen, self._max_bytes
        self._list(notebook)
        created = []
        for path, file in self._seen.items():
            if before.get(path) == file:
                continue
            if file.size > remaining:
                self.notes.append(f"{path!r} was not kept: the cell wrote too much")
                continue
            remaining -= file.size
            created += self.store(path, partial(notebook.read, path, file.size))
        stored = {
            file.path.removeprefix(ROOT): file.id
            for file in self._containers.files(self._container_id)
        }
        # A list of `MAX_FILES` may be incomplete: a path that is missing there may still exist.
        removed = self._shared - self._seen.keys() if len(self._seen) < MAX_FILES else set()
        for path in removed:
            if path in stored:
                self._containers.remove(self._container_id, stored[path])
        self._shared = (self._seen.keys() & stored.keys()) | (self._shared - removed)
        return created

    def store(self, path: str, content: Callable[[], bytes]) -> list[CreatedFile]:
        """The stored file; or none, and a note, if it cannot be stored."""
        try:
            file = self._containers.put_file(
                self._container_id, ROOT + path, content(), "assistant"
            )
        except (EmulatorError, KernelFileError) as error:
            self.notes.append(f"{path!r} was not kept: {error}")
            return []
        return [CreatedFile(self._container_id, file.id, file.path, file.bytes)]

    def _list(self, notebook: Notebook) -> None:
        self._seen = {file.path: file for file in notebook.files(MAX_FILES)}
