"""Containers and what lies in them: metadata and file contents, held by the host. Knows nothing of sandboxes.

Source of the shapes and rules: OpenAI's API reference, "Containers" and "Container Files". Whoever runs a
container's code is told with ``on_gone`` when the container has been deleted or has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any, BinaryIO, Literal

from emulator import container_files
from emulator.container_files import ROOT, ContainerFile, Room, Source, check_path, room_beside
from emulator.errors import BadRequest, NotFound
from emulator.files import Files, check_file_size
from emulator.folder import Content, Folder, Rows
from emulator.paging import Listing, Page, listing
from emulator.settings import MemoryLimit, Settings

# How long an expired container can still be seen.
REMEMBERED_SECONDS = 86_400

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS containers (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, name TEXT NOT NULL, created_at INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL, expires_minutes INTEGER NOT NULL, memory_limit TEXT NOT NULL,
    stateful INTEGER NOT NULL, approval INTEGER NOT NULL,
    version INTEGER NOT NULL, ended INTEGER NOT NULL)
""",
    "CREATE INDEX IF NOT EXISTS containers_client ON containers (client, id)",
    container_files.TABLE,
)
# `ended` keeps what has expired so, whatever the clock does, and is set when `on_gone` is due.
_RUNNING = "NOT ended AND last_active_at + 60 * expires_minutes > :now"
_CONTAINER = f"""
SELECT id, client, name, created_at, last_active_at, expires_minutes, memory_limit,
    CASE WHEN {_RUNNING} THEN 'running' ELSE 'expired' END AS status, stateful, approval
FROM containers WHERE client = :client"""


@dataclass(frozen=True)
class Container:
    id: str
    client: str
    name: str
    created_at: int
    last_active_at: int
    expires_minutes: int
    memory_limit: MemoryLimit
    status: Literal["running", "expired"] = "running"
    stateful: bool = True
    approval: bool = False

    def json(self) -> dict[str, Any]:
        """The container as OpenAI's JSON object, with the proxy's own two fields."""
        return {
            "id": self.id,
            "object": "container",
            "created_at": self.created_at,
            "status": self.status,
            "expires_after": {"anchor": "last_active_at", "minutes": self.expires_minutes},
            "last_active_at": self.last_active_at,
            "memory_limit": self.memory_limit,
            "name": self.name,
            "stateful": self.stateful,
            "approval": "required" if self.approval else "never",
        }


class Containers:
    """Each belongs to a client; for another one it is not there. Safe to share between threads.

    `create`, `get`, `list` and `delete` ask whose container it is; the rest takes the id of one that `get`
    has given, and raises `NotFound` if it has gone or expired since.
    """

    def __init__(
        self,
        folder: Folder,
        files: Files,
        settings: Settings,
        *,
        on_gone: Callable[[str], None] = lambda _id: None,
    ) -> None:
        """``on_gone`` is called once with the id of a container that was deleted or has expired."""
        self._folder = folder
        self._uploaded = files
        self._settings = settings
        self._on_gone = on_gone
        with folder.transaction() as rows:
            for statement in _TABLES:
                rows.run(statement)

    def create(
        self,
        client: str,
        *,
        name: str | None = None,
        expires_minutes: int = 20,
        memory_limit: MemoryLimit = "1g",
        file_ids: Sequence[str] = (),
        stateful: bool = True,
        approval: bool = False,
    ) -> Container:
        """A container with copies of ``file_ids`` in it, or none at all.

        Raises `BadRequest`, `NotFound` (a file), `TooLarge`, `NotStored`.
        """
        if int(memory_limit[:-1]) > int(self._settings.container_memory[:-1]):
            raise BadRequest(
                f"Invalid 'memory_limit': at most {self._settings.container_memory} here.",
                "memory_limit",
            )
        now = self._folder.now()
        container_id = self._folder.new_id("cntr_")
        container = Container(
            container_id,
            client,
            name or container_id,
            now,
            now,
            expires_minutes,
            memory_limit,
            "running",
            stateful,
            approval,
        )
        given = [self._uploaded.get(client, file_id) for file_id in file_ids]
        Room(self._settings.container_bytes).check(sum(file.bytes for file in given))
        with ExitStack() as writing:
            copies = []
            for file in given:
                with self._uploaded.open(client, file.id) as content:
                    copied = writing.enter_context(self._folder.written(content, self._check_size))
                copies.append((ROOT + file.filename, copied))
            rows = writing.enter_context(self._folder.transaction())
            running = f"SELECT count(*) FROM containers WHERE client = :client AND {_RUNNING}"
            if rows.one(running, client=client, now=now)[0] >= self._settings.max_containers:
                raise BadRequest(
                    f"There are {self._settings.max_containers} containers already: delete some first.",
                    code="too_many_containers",
                )
            rows.run(
                "INSERT INTO containers VALUES (:id, :client, :name, :created_at, :last_active_at, "
                ":expires_minutes, :memory_limit, :stateful, :approval, 0, FALSE)",
                **vars(container),
            )
            for path, copied in copies:
                self._put(rows, container_id, path, copied, "user")
        return container

    def get(self, client: str, container_id: str, *, even_expired: bool = False) -> Container:
        """Raises `NotFound`, with code ``container_expired`` for a container that has expired."""
        with self._folder.transaction() as rows:
            row = rows.one(
                f"{_CONTAINER} AND id = :id", client=client, id=container_id, now=self._folder.now()
            )
        if row is None:
            raise _not_found(container_id)
        container = _container(row)
        if container.status == "expired" and not even_expired:
            raise _expired(container_id)
        return container

    def touch(self, container_id: str) -> None:
        """Let the container live on from now. What has expired stays so."""
        with self._folder.transaction() as rows:
            rows.run(
                f"UPDATE containers SET last_active_at = :now WHERE id = :id AND {_RUNNING}",
                id=container_id,
                now=self._folder.now(),
            )

    def list(
        self, client: str, page: Page | None = None, *, name: str | None = None
    ) -> Listing[Container]:
        """Also those that have expired not long ago."""
        page = page or Page()
        wanted = " AND name = :name" if name else ""
        with self._folder.transaction() as rows:
            found = rows.all(
                f"{_CONTAINER}{wanted}{page.clause}",
                client=client,
                now=self._folder.now(),
                name=name,
                **page.values,
            )
        return listing(page, [_container(row) for row in found])

    def delete(self, client: str, container_id: str) -> None:
        """Raises `NotFound`."""
        with self._folder.transaction() as rows:
            query = "SELECT ended FROM containers WHERE client = :client AND id = :id"
            found = rows.one(query, client=client, id=container_id)
            if found is None:
                raise _not_found(container_id)
            container_files.remove_all(rows, container_id)
            rows.run("DELETE FROM containers WHERE id = :id", id=container_id)
        if not found[0]:
            self._on_gone(container_id)

    def sweep(self) -> None:
        """Empty what has expired, and forget what expired a day ago."""
        now = self._folder.now()
        with self._folder.transaction() as rows:
            over = rows.all(
                f"SELECT id FROM containers WHERE NOT ended AND NOT ({_RUNNING})", now=now
            )
            for (container_id,) in over:
                container_files.remove_all(rows, container_id)
                rows.run("UPDATE containers SET ended = TRUE WHERE id = :id", id=container_id)
            rows.run(
                "DELETE FROM containers WHERE ended AND last_active_at + 60 * expires_minutes <= :then",
                then=now - REMEMBERED_SECONDS,
            )
        for (container_id,) in over:
            self._on_gone(container_id)

    def version(self, container_id: str) -> int:
        """A number that changes with each file that a user adds, replaces or removes."""
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            found = rows.one("SELECT version FROM containers WHERE id = :id", id=container_id)
            return int(found[0])

    def files(self, container_id: str) -> Sequence[ContainerFile]:
        """All of them, oldest first."""
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            return container_files.all_of(rows, container_id)

    def page_of_files(self, container_id: str, page: Page) -> Listing[ContainerFile]:
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            return container_files.page_of(rows, container_id, page)

    def file(self, container_id: str, file_id: str) -> ContainerFile:
        return self._find(container_id, file_id)[0]

    def put_file(
        self, container_id: str, path: str, content: bytes | IO[bytes], source: Source
    ) -> ContainerFile:
        """Keep ``content`` under ``path``, whole or not at all, in place of what was there (its id stays).

        Raises `BadRequest`, `NotFound`, `TooLarge`, `NotStored`.
        """
        check_path(path)
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            room = room_beside(rows, container_id, path, self._settings.container_bytes)

        def check(size: int) -> None:
            self._check_size(size)
            room.check(size)

        stream = BytesIO(content) if isinstance(content, bytes) else content
        with self._folder.written(stream, check) as stored, self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            return self._put(rows, container_id, path, stored, source)

    def open(self, container_id: str, file_id: str) -> BinaryIO:
        """The contents, to be closed by whoever asked."""
        try:
            return self._folder.open(self._find(container_id, file_id)[1])
        except FileNotFoundError as error:
            raise container_files.not_found(file_id) from error

    def read(self, container_id: str, file_id: str) -> bytes:
        with self.open(container_id, file_id) as content:
            return content.read()

    def remove(self, container_id: str, file_id: str) -> None:
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            container_files.remove(rows, container_id, file_id)
            _changed(rows, container_id)

    def _check_running(self, rows: Rows, container_id: str) -> None:
        query = f"SELECT {_RUNNING} FROM containers WHERE id = :id"
        row = rows.one(query, id=container_id, now=self._folder.now())
        if row is None:
            raise _not_found(container_id)
        if not row[0]:
            raise _expired(container_id)

    def _find(self, container_id: str, file_id: str) -> tuple[ContainerFile, str]:
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            return container_files.find(rows, container_id, file_id)

    def _put(
        self, rows: Rows, container_id: str, path: str, stored: Content, source: Source
    ) -> ContainerFile:
        # Once more: others may have put files there while this one was written.
        room_beside(rows, container_id, path, self._settings.container_bytes).check(stored.bytes)
        if source == "user":
            _changed(rows, container_id)
        return container_files.put(rows, self._folder, container_id, path, stored, source)

    def _check_size(self, size: int) -> None:
        check_file_size(size, self._settings)


def _changed(rows: Rows, container_id: str) -> None:
    rows.run("UPDATE containers SET version = version + 1 WHERE id = :id", id=container_id)


def _container(row: Sequence[Any]) -> Container:
    *values, stateful, approval = row
    values += [bool(stateful), bool(approval)]
    return Container(*values)


def _not_found(container_id: str) -> NotFound:
    return NotFound(f"Container {container_id!r} not found.", "container_id", "container_not_found")


def _expired(container_id: str) -> NotFound:
    return NotFound(f"Container {container_id!r} has expired.", "container_id", "container_expired")
