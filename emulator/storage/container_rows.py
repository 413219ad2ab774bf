"""Containers as rows: owner, state, version of their files.

    running ── not used for `expires_minutes` ──► expired ── swept: files removed ──► ended
                                                     ── `REMEMBERED_SECONDS` later ──► row removed

Knows nothing of contents or sandboxes. Source of the shape: OpenAI's API reference, "Containers".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.core.errors import NotFound
from emulator.database.database import Queries
from emulator.settings.settings import MemoryLimit

REMEMBERED_SECONDS = 86_400
"""An expired container is still listed this long."""

TABLES = (
    """
CREATE TABLE IF NOT EXISTS containers (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, name TEXT NOT NULL, created_at BIGINT NOT NULL,
    last_active_at BIGINT NOT NULL, expires_minutes BIGINT NOT NULL, memory_limit TEXT NOT NULL,
    stateful BOOLEAN NOT NULL, approval BOOLEAN NOT NULL,
    version BIGINT NOT NULL DEFAULT 0, ended BOOLEAN NOT NULL DEFAULT FALSE)
""",
    "CREATE INDEX IF NOT EXISTS containers_client ON containers (client, id)",
    """
CREATE TABLE IF NOT EXISTS container_sessions (
    id TEXT PRIMARY KEY REFERENCES containers ON DELETE CASCADE)
""",
)
# Once `ended` is set, a container stays expired, even if the clock goes back.
_EXPIRES_AT = "last_active_at + 60 * expires_minutes"
_RUNNING = f"NOT ended AND {_EXPIRES_AT} > :now"
_SELECT = f"""
SELECT id, client, name, created_at, last_active_at, expires_minutes, memory_limit,
    CASE WHEN {_RUNNING} THEN 'running' ELSE 'expired' END AS status, stateful, approval
FROM containers WHERE client = :client"""


@dataclass(frozen=True)
class Container:
    """``approval``: executions wait for a person. ``stateful``: variables persist between them."""

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

    @property
    def expires_at(self) -> int:
        """Unix time, unless it is used before."""
        return self.last_active_at + 60 * self.expires_minutes

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


def insert(rows: Queries, container: Container) -> None:
    rows.run(
        "INSERT INTO containers (id, client, name, created_at, last_active_at, expires_minutes, "
        "memory_limit, stateful, approval) VALUES (:id, :client, :name, :created_at, "
        ":last_active_at, :expires_minutes, :memory_limit, :stateful, :approval)",
        **vars(container),
    )


def find(rows: Queries, client: str, container_id: str, now: int) -> Container:
    """A container, even if it has expired. Raises `NotFound`."""
    row = rows.one(f"{_SELECT} AND id = :id", client=client, id=container_id, now=now)
    if row is None:
        raise not_found(container_id)
    return _container(row)


def find_named(rows: Queries, client: str, name: str, now: int) -> Container | None:
    """The newest running container of that name."""
    query = f"{_SELECT} AND name = :name AND {_RUNNING} ORDER BY id DESC"
    row = rows.one(query, client=client, name=name, now=now)
    return None if row is None else _container(row)


def all_of(rows: Queries, client: str, name: str | None, now: int) -> list[Container]:
    """The containers of that name, or all; including expired ones. Oldest first."""
    query = f"{_SELECT}{' AND name = :name' if name else ''} ORDER BY id"
    return [_container(row) for row in rows.all(query, client=client, name=name, now=now)]


def count_running(rows: Queries, client: str, now: int) -> int:
    query = f"SELECT count(*) FROM containers WHERE client = :client AND {_RUNNING}"
    return int(rows.one(query, client=client, now=now)[0])


def check_running(rows: Queries, container_id: str, now: int) -> int:
    """The version of the container's files. Raises `NotFound` unless it is running."""
    query = f"SELECT {_RUNNING}, version FROM containers WHERE id = :id"
    row = rows.one(query, id=container_id, now=now)
    if row is None:
        raise not_found(container_id)
    if not row[0]:
        raise expired(container_id)
    return int(row[1])


def touch(rows: Queries, container_id: str, now: int) -> None:
    query = f"UPDATE containers SET last_active_at = :now WHERE id = :id AND {_RUNNING}"
    rows.run(query, id=container_id, now=now)


def begin_session(rows: Queries, container_id: str) -> bool:
    """Mark the session as started. Returns True if an earlier one was not marked as ended."""
    query = (
        "INSERT INTO container_sessions SELECT id FROM containers WHERE id = :id "
        "AND NOT EXISTS (SELECT 1 FROM container_sessions WHERE id = :id)"
    )
    if rows.run(query, id=container_id):
        return False
    return rows.one("SELECT 1 FROM container_sessions WHERE id = :id", id=container_id) is not None


def end_session(rows: Queries, container_id: str) -> None:
    rows.run("DELETE FROM container_sessions WHERE id = :id", id=container_id)


def add_version(rows: Queries, container_id: str) -> None:
    rows.run("UPDATE containers SET version = version + 1 WHERE id = :id", id=container_id)


def end_expired(rows: Queries, now: int) -> Sequence[str]:
    """Mark the containers that have expired since the last call as ended. Returns their ids."""
    query = f"SELECT id FROM containers WHERE NOT ended AND {_EXPIRES_AT} <= :now"
    found = [container_id for (container_id,) in rows.all(query, now=now)]
    for container_id in found:
        rows.run("UPDATE containers SET ended = TRUE WHERE id = :id", id=container_id)
    return found


def forget_expired(rows: Queries, now: int) -> None:
    """Remove the ended containers that expired `REMEMBERED_SECONDS` ago."""
    query = f"DELETE FROM containers WHERE ended AND {_EXPIRES_AT} <= :then"
    rows.run(query, then=now - REMEMBERED_SECONDS)


def remove(rows: Queries, container_id: str) -> bool:
    """Returns True unless it was already marked as ended."""
    fresh = rows.run("DELETE FROM containers WHERE id = :id AND NOT ended", id=container_id)
    rows.run("DELETE FROM containers WHERE id = :id", id=container_id)
    return fresh > 0


def not_found(container_id: str) -> NotFound:
    return _unusable(container_id, "not found", "container_not_found")


def expired(container_id: str) -> NotFound:
    return _unusable(container_id, "has expired", "container_expired")


def _unusable(container_id: str, why: str, code: str) -> NotFound:
    message = f"Container {container_id!r} {why}."
    return NotFound(message, "container_id", code, subject=container_id)


def _container(row: Sequence[Any]) -> Container:
    *values, stateful, approval = row
    values += [bool(stateful), bool(approval)]
    return Container(*values)
