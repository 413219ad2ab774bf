"""Values of one type under keys, which expire.

A stored value is validated as that type when it is read, and ignored if it is invalid: another program may
have written it.

Each kind of documents has its own budget, above which `tidying` removes the oldest, and expired ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import structlog
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database
from emulator.database.tidying import Removal, Tidying

log = structlog.get_logger()

T = TypeVar("T")

MAX_VALUE_BYTES = 4 * 2**20
TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS documents (kind TEXT NOT NULL, key TEXT NOT NULL, value BYTEA NOT NULL, "
        "bytes BIGINT NOT NULL, stored DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, "
        "PRIMARY KEY (kind, key))"
    ),
    "CREATE INDEX IF NOT EXISTS documents_stored ON documents (kind, stored)",
)
_INSERT = (
    "INSERT INTO documents (kind, key, value, bytes, stored, expires) VALUES {rows} "
    "ON CONFLICT (kind, key) DO "
)
_PUT = (
    f"{_INSERT}UPDATE SET value = excluded.value, bytes = excluded.bytes, "
    "stored = excluded.stored, expires = excluded.expires"
)
_FIND = (
    "SELECT key, value FROM documents WHERE kind = :kind AND expires >= :now AND key IN ({keys})"
)
_PUT_NEW = f"{_INSERT}NOTHING".format(rows="(:kind, :key, :value, :bytes, :now, :until)")
_REPLACE = (
    "UPDATE documents SET value = :value, bytes = :bytes, stored = :now, expires = :until "
    "WHERE kind = :kind AND key = :key AND value = :old"
)
_EXPIRED = "SELECT key FROM documents WHERE kind = :kind AND expires < :now"
_OLDEST = (
    "SELECT key FROM (SELECT key, sum(bytes) OVER (ORDER BY stored DESC, key) AS total "
    "FROM documents WHERE kind = :kind) AS sizes WHERE total > :most"
)
# Not if it was replaced since. "+": by the key, not by the index of `stored`, which has all of them.
_REMOVE = "DELETE FROM documents WHERE kind = :kind AND +stored <= :now AND key IN ({keys})"
_MAX_KEYS = 10_000
"""In a statement: SQLite takes 32,766 values."""
_ONE: Any = tuple  # mypy wants the type of its items
_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Documents(Generic[T]):
    """Safe to share between threads. The methods that use the database raise `DatabaseFailed`."""

    def __init__(
        self,
        database: Database,
        kind: str,
        type_: Any = bytes,
        *,
        seconds: float,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        """``seconds``: when a document expires, unless it is stored with another time; 0: none is kept."""
        self.is_kept = seconds > 0
        self._database = database
        self._kind = kind
        self._seconds = seconds
        # In a tuple, since only then can a dataclass be given a configuration.
        self._adapter: TypeAdapter[tuple[T]] | None = None
        if type_ is not bytes:
            self._adapter = TypeAdapter(_ONE[type_], config=_BYTES)
        values = {"kind": kind}
        self._tidying = Tidying(
            database,
            f"documents {kind}",
            Removal(_EXPIRED, _REMOVE, values),
            Removal(_OLDEST, _REMOVE, values | {"most": max_bytes}),
            due_bytes=max_bytes // 16,
        )

    def get(self, key: str) -> T | None:
        return self.get_many([key]).get(key)

    def get_many(self, keys: Collection[str]) -> dict[str, T]:
        """The documents of those ``keys`` that have one."""
        wanted = [*keys] if self.is_kept else []
        found: dict[str, T | None] = {}
        while wanted:  # once, unless somebody sends a history of that many calls
            names = {f"k{n}": key for n, key in enumerate(wanted[:_MAX_KEYS])}
            query = _FIND.format(keys=", ".join(f":{name}" for name in names))
            now = self._database.now()
            rows = self._database.all(query, kind=self._kind, now=now, **names)
            found |= {key: self.load(_bytes(value)) for key, value in rows}
            wanted = wanted[_MAX_KEYS:]
        return {key: value for key, value in found.items() if value is not None}

    def put(self, values: Mapping[str, T], seconds: float | None = None) -> None:
        if not (values and self.is_kept):
            return
        now = self._database.now()
        bound: dict[str, Any] = {
            "kind": self._kind,
            "now": now,
            "until": now + (self._seconds if seconds is None else seconds),
        }
        rows, size = [], 0
        for n, (key, value) in enumerate(values.items()):
            dumped = self.dump(value)
            size += len(dumped)
            bound |= {f"k{n}": key, f"v{n}": dumped, f"b{n}": len(dumped)}
            rows.append(f"(:kind, :k{n}, :v{n}, :b{n}, :now, :until)")
        self._database.run(_PUT.format(rows=", ".join(rows)), **bound)
        self._tidying.count(size)

    def change(
        self, key: str, change: Callable[[T | None], T], seconds: float | None = None
    ) -> None:
        """Replace a document by ``change(document)`` in one step, for all processes.

        ``change`` gets None if there is none, and is called again if another process was faster. Raises what
        it raises.
        """
        while True:
            now = self._database.now()
            find = "SELECT value, expires FROM documents WHERE kind = :kind AND key = :key"
            row = self._database.one(find, kind=self._kind, key=key)
            known = None if row is None or row[1] < now else self.load(_bytes(row[0]))
            value = self.dump(change(known))
            bound = {
                "kind": self._kind,
                "key": key,
                "value": value,
                "bytes": len(value),
                "now": now,
                "until": now + (self._seconds if seconds is None else seconds),
            }
            if row is None:
                changed = self._database.run(_PUT_NEW, **bound)
            else:
                changed = self._database.run(_REPLACE, **bound, old=row[0])
            if changed:
                return self._tidying.count(len(value))

    def delete(self, keys: Collection[str]) -> None:
        """Remove those documents, if there are any."""
        with self._database.transaction() as rows:
            rows.prepare_removal()
            for key in keys:
                query = "DELETE FROM documents WHERE kind = :kind AND key = :key"
                rows.run(query, kind=self._kind, key=key)

    def dump(self, value: T) -> bytes:
        """Raises `DatabaseFailed` if ``value`` is no JSON: a text may have half a surrogate pair."""
        if self._adapter is None:
            assert isinstance(value, bytes)
            return value
        try:
            return self._adapter.dump_json((value,))
        except PydanticSerializationError as error:
            problem = f"a document of kind {self._kind} cannot be written as JSON"
            raise DatabaseFailed(problem, passes=False) from error

    def load(self, value: bytes) -> T | None:
        if self._adapter is None:
            return value  # type: ignore[return-value]
        try:
            (document,) = self._adapter.validate_json(value)
        except ValidationError as error:
            log.warning("invalid document", kind=self._kind, problems=error.error_count())
            return None
        return document


def _bytes(value: Any) -> bytes:
    """SQLite returns what another program wrote, whatever the column's type."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")
