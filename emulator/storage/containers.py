"""Containers and their files, as the host stores them. Knows nothing of sandboxes.

The methods that remove containers return which ones, so that the caller can stop what runs in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from typing import IO, BinaryIO

import structlog

from emulator.core.errors import BadRequest, StorageFailed
from emulator.database.database import Queries
from emulator.settings.settings import MemoryLimit, Settings
from emulator.storage import container_files, container_rows
from emulator.storage.blob_store import BlobStore, Content, ContentRows
from emulator.storage.container_files import (
    ROOT,
    ByteQuota,
    ContainerFile,
    Source,
    check_path,
    quota_for,
)
from emulator.storage.container_rows import Container
from emulator.storage.files import Files, check_file_size

log = structlog.get_logger()

_MAX_RUNNING = 256
"""Containers of one client."""


class Containers:
    """A container belongs to a client and does not exist for another one. Safe to share between threads.

    `create`, `get`, `list` and `delete` check the owner. The other methods take an id that `get` returned,
    and raise `NotFound` if the container has been deleted or has expired since, or has no such file.
    """

    def __init__(
        self,
        folder: BlobStore,
        files: Files,
        settings: Settings,
    ) -> None:
        self._folder = folder
        self._uploaded = files
        self._settings = settings
        folder.make_tables(*container_rows.TABLES, container_files.TABLE)

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
        """A container with copies of the uploaded ``file_ids``. If anything fails, there is no container.

        Raises `BadRequest`, `NotFound` (a file), `TooLarge`, `StorageFailed`.
        """
        max_memory = self._settings.container_memory
        if _gigabytes(memory_limit) > _gigabytes(max_memory):
            raise BadRequest(f"Invalid 'memory_limit': at most {max_memory} here.", "memory_limit")
        copied = [self._uploaded.get(client, file_id) for file_id in file_ids]
        ByteQuota(self._settings.container_bytes).check(sum(file.bytes for file in copied))

        id_, now = self._folder.new_id("cntr_"), self._folder.now()
        container = Container(
            id_,
            client,
            name or id_,
            created_at=now,
            last_active_at=now,
            expires_minutes=expires_minutes,
            memory_limit=memory_limit,
            stateful=stateful,
            approval=approval,
        )
        with ExitStack() as writing:
            copies = []
            for file in copied:
                with self._uploaded.open(client, file.id) as content:
                    copy = writing.enter_context(self._folder.writing(content, self._check_size))
                copies.append((ROOT + file.filename, copy))
            rows = writing.enter_context(self._folder.transaction())
            self._insert(rows, container)
            for path, copy in copies:
                self._put(rows, id_, path, copy, "user")
        return container

    def get(self, client: str, container_id: str, *, even_expired: bool = False) -> Container:
        """Raises `NotFound`, with code ``container_expired`` for a container that has expired."""
        with self._folder.rows() as rows:
            container = container_rows.find(rows, client, container_id, self._folder.now())
        if container.status == "expired" and not even_expired:
            raise container_rows.expired(container_id)
        return container

    def named(self, client: str, name: str, *, create: bool = False) -> Container:
        """The newest running container of that name, which counts as used now.

        Without one: a new container, or `NotFound` unless ``create``. Raises `BadRequest`, `StorageFailed`.
        """
        now = self._folder.now()
        with self._folder.transaction() as rows:
            container = container_rows.find_named(rows, client, name, now)
            if container is None and create:
                id_ = self._folder.new_id("cntr_")
                container = Container(id_, client, name, now, now, 20, "1g")
                self._insert(rows, container)
        if container is None:
            raise container_rows.not_found(name)
        return self.use(container)

    def use(self, container: Container) -> Container:
        """The container as it is after `touch`."""
        self.touch(container.id)
        return replace(container, last_active_at=self._folder.now())

    def touch(self, container_id: str) -> None:
        """The container is used now: its time to expiry starts again. An expired one stays expired.

        If the disk is full or fails, the container can be used anyway.
        """
        try:
            with self._folder.rows() as rows:
                container_rows.touch(rows, container_id, self._folder.now())
        except StorageFailed as error:
            log.warning("the use of a container was not recorded", reason=error.message)

    def begin_session(self, container_id: str) -> bool:
        """Mark the session as started. Returns True if an earlier session ended without being reported.

        Returns False if that cannot be recorded: as with `touch`, the container can be used anyway.
        """
        try:
            with self._folder.rows() as rows:
                return container_rows.begin_session(rows, container_id)
        except StorageFailed as error:
            log.warning("the session of a container was not recorded", reason=error.message)
            return False

    def end_session(self, container_id: str) -> None:
        """The variables are gone, and the client is informed."""
        try:
            with self._folder.rows() as rows:
                container_rows.end_session(rows, container_id)
        except StorageFailed as error:
            log.warning("the end of a container's session was not recorded", reason=error.message)

    def list(self, client: str, *, name: str | None = None) -> Sequence[Container]:
        """Oldest first. Includes those that have expired within `REMEMBERED_SECONDS`."""
        with self._folder.transaction() as rows:
            return container_rows.all_of(rows, client, name, self._folder.now())

    def delete(self, client: str, container_id: str) -> bool:
        """Returns True unless it had expired and been swept already. Raises `NotFound`."""
        with self._folder.transaction() as rows:
            container_rows.find(rows, client, container_id, self._folder.now())
            rows.prepare_removal()
            container_files.remove_all(rows, container_id)
            return container_rows.remove(rows, container_id)

    def sweep(self) -> Sequence[str]:
        """Empty newly expired containers, whose ids are returned once, and remove old ones."""
        now = self._folder.now()
        with self._folder.transaction() as rows:
            ended = container_rows.end_expired(rows, now)
            for container_id in ended:
                container_files.remove_all(rows, container_id)
            container_rows.forget_expired(rows, now)
        return ended

    def version(self, container_id: str) -> int:
        """A number that changes whenever a user adds, replaces or removes a file."""
        with self._folder.rows() as rows:
            return self._check_running(rows, container_id)

    def files(self, container_id: str) -> Sequence[ContainerFile]:
        """Oldest first."""
        with self._folder.rows() as rows:
            self._check_running(rows, container_id)
            return container_files.all_of(rows, container_id)

    def file(self, container_id: str, file_id: str) -> ContainerFile:
        with self._folder.rows() as rows:
            self._check_running(rows, container_id)
            return container_files.find(rows, container_id, file_id)[0]

    def put_file(
        self, container_id: str, path: str, content: bytes | IO[bytes], source: Source
    ) -> ContainerFile:
        """Store ``content`` at ``path``, whole or not at all. A file that it replaces keeps its id.

        Raises `BadRequest`, `TooLarge`, `StorageFailed`.
        """
        check_path(path)
        with self._folder.rows() as rows:
            self._check_running(rows, container_id)
            quota = quota_for(rows, container_id, path, self._settings.container_bytes)

        def check(size: int) -> None:
            self._check_size(size)
            quota.check(size)

        stream = BytesIO(content) if isinstance(content, bytes) else content
        with self._folder.writing(stream, check) as stored, self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            return self._put(rows, container_id, path, stored, source)

    def open(self, container_id: str, file_id: str) -> BinaryIO:
        """The contents as they are now, whatever happens to the file later. The caller closes them."""

        def find(rows: Queries) -> str:
            self._check_running(rows, container_id)
            return container_files.find(rows, container_id, file_id)[1]

        return self._folder.open(find)

    def read(self, container_id: str, file_id: str) -> bytes:
        with self.open(container_id, file_id) as content:
            return content.read()

    def remove(self, container_id: str, file_id: str) -> None:
        with self._folder.transaction() as rows:
            self._check_running(rows, container_id)
            container_files.remove(rows, container_id, file_id)
            container_rows.add_version(rows, container_id)

    def _insert(self, rows: Queries, container: Container) -> None:
        if (
            container_rows.count_running(rows, container.client, container.created_at)
            >= _MAX_RUNNING
        ):
            raise BadRequest(
                f"There are already {_MAX_RUNNING} containers, the limit: delete some first.",
                code="too_many_containers",
            )
        container_rows.insert(rows, container)

    def _check_running(self, rows: Queries, container_id: str) -> int:
        return container_rows.check_running(rows, container_id, self._folder.now())

    def _put(
        self, rows: ContentRows, container_id: str, path: str, stored: Content, source: Source
    ) -> ContainerFile:
        # Again: other files may have been stored while this one was written.
        quota_for(rows, container_id, path, self._settings.container_bytes).check(stored.bytes)
        if source == "user":
            container_rows.add_version(rows, container_id)
        return container_files.put(rows, self._folder, container_id, path, stored, source)

    def _check_size(self, size: int) -> None:
        check_file_size(size, self._settings)


def _gigabytes(limit: MemoryLimit) -> int:
    return int(limit.removesuffix("g"))
