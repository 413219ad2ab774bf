"""Keep a container's files and those of its kernel in step. Knows nothing of cells.

The host's copies are the ones that count: they outlive kernels. What a kernel says of its files is
bounded by what a container may hold, and each name is checked before it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emulator.errors import EmulatorError
from emulator.events import CreatedFile
from emulator.interpreter.kernel_records import SyncedFiles
from emulator.storage.container_files import ROOT
from emulator.storage.containers import Containers
from sandbox.kernel.notebook import FileFault, Notebook, Seen

MOST_FILES = 1000
"""Files of a kernel that are looked at."""


class FileSync:
    """The files of one kernel, from its start on. Used by one thread at a time."""

    def __init__(self, containers: Containers, container_id: str, most_bytes: int) -> None:
        """``most_bytes`` may one cell bring out."""
        self._containers = containers
        self._container_id = container_id
        self._most = most_bytes
        self._version: int | None = None
        self._seen: dict[str, Seen] = {}
        """What the kernel had when it was last looked at."""
        self._shared: set[str] = set()
        """What both sides had: only this is removed on one side when it has gone on the other."""
        self.notes: list[str] = []
        """What could not be kept or brought in, to be told and cleared by whoever tells it."""

    def state(self) -> SyncedFiles:
        """What another process goes on from."""
        seen = [(file.path, file.size, file.changed) for file in self._seen.values()]
        return SyncedFiles(self._version, seen, sorted(self._shared))

    def resume(self, state: SyncedFiles) -> None:
        self._version = state.version
        self._seen = {path: Seen(path, size, changed) for path, size, changed in state.seen}
        self._shared = {*state.shared}

    def bring_in(self, notebook: Notebook) -> None:
        """Bring what a user has added, replaced or removed into the kernel."""
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
                except FileFault as error:
                    notebook.remove(path)  # half of it may be
                    self.notes.append(f"the user's file is not there: {error}")
        self._look(notebook)
        self._shared = wanted.keys() & self._seen.keys()
        self._version = version

    def bring_out(self, notebook: Notebook) -> list[CreatedFile]:
        """Keep what a cell has written or changed, and remove what it has removed."""
        before, left = self._seen, self._most
        self._look(notebook)
        brought = []
        for path, file in self._seen.items():
            if before.get(path) == file:
                continue
            if file.size > left:
                self.notes.append(f"{path!r} was not kept: there is too much to keep")
                continue
            left -= file.size
            brought += self.keep(path, partial(notebook.read, path, file.size))
        stored = {
            file.path.removeprefix(ROOT): file.id
            for file in self._containers.files(self._container_id)
        }
        # In a longer list than that, what is not in it may be there all the same.
        gone = self._shared - self._seen.keys() if len(self._seen) < MOST_FILES else set()
        for path in gone:
            if path in stored:
                self._containers.remove(self._container_id, stored[path])
        self._shared = (self._seen.keys() & stored.keys()) | (self._shared - gone)
        return brought

    def keep(self, path: str, content: Callable[[], bytes]) -> list[CreatedFile]:
        """The file as it is kept; none, and a note, if it cannot be."""
        try:
            file = self._containers.put_file(
                self._container_id, ROOT + path, content(), "assistant"
            )
        except (EmulatorError, FileFault) as error:
            self.notes.append(f"{path!r} was not kept: {error}")
            return []
        return [CreatedFile(self._container_id, file.id, file.path, file.bytes)]

    def _look(self, notebook: Notebook) -> None:
        self._seen = {file.path: file for file in notebook.files(MOST_FILES)}
