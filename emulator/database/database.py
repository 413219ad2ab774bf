"""Statements and transactions of either database. Knows nothing of tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from emulator.core.errors import StorageFailed, StoreUnavailable
from emulator.database.availability import Availability, DatabaseFailed

SECONDS = 1.0
"""The longest wait for a connection, or for another writer."""


@contextmanager
def database_failures(problem: str) -> Iterator[None]:
    """Raises `StoreUnavailable` with ``problem`` if the block cannot use the database, or `StorageFailed` if
    its disk is full or failed."""
    try:
        yield
    except DatabaseFailed as error:
        if error.of_disk:
            raise StorageFailed(f"{problem}: {error}") from error
        raise StoreUnavailable(f"{problem} at the moment: {error}") from error


class Result(NamedTuple):
    rows: Sequence[Any]
    changed: int
    """The number of rows that were changed."""


Execute = Callable[[str, Mapping[str, Any]], Result]


class Queries(Protocol):
    """What `Rows` of a transaction and a `Database` have in common."""

    def run(self, query: str, **values: object) -> int:
        """Returns the number of rows that ``query`` changed."""

    def all(self, query: str, **values: object) -> list[Any]: ...

    def one(self, query: str, **values: object) -> Any:
        """The first row, or None."""


class Rows:
    """The rows as one transaction sees and changes them: `Queries`."""

    def __init__(
        self, execute: Execute, now: float, prepare_removal: Callable[[], None] = lambda: None
    ) -> None:
        self._execute = execute
        self.now = now
        """Unix time by a clock that all processes share."""
        self.prepare_removal = prepare_removal
        """Must be called before rows are removed: frees the disk space that a removal needs at first."""

    def run(self, query: str, **values: object) -> int:
        return self._execute(query, values).changed

    def all(self, query: str, **values: object) -> list[Any]:
        return [*self._execute(query, values).rows]

    def one(self, query: str, **values: object) -> Any:
        return next(iter(self._execute(query, values).rows), None)


class Database(ABC):
    """`Queries`, each statement by itself. Every method raises `DatabaseFailed`.

    Safe to share between threads, not to inherit in a fork.
    """

    clock = ":now"
    """SQL for the Unix time that all processes share; the value ``now`` must be given, too."""
    has_tables = False
    """Another process has made the tables."""

    def __init__(self) -> None:
        self.availability = Availability()

    def has_answered(self) -> bool:
        """Return True if a statement of this process has ever succeeded; without one, try one."""
        if not self.availability.has_answered:
            with suppress(DatabaseFailed):
                self.one("SELECT value FROM facts")
        return self.availability.has_answered

    @abstractmethod
    def execute(self, query: str, values: Mapping[str, Any], *, writes: bool) -> Result:
        """Execute one statement by itself."""

    @abstractmethod
    def transaction(self, lock: str = "") -> AbstractContextManager[Rows]:
        """All of the block's changes, or none.

        No other transaction with the same ``lock`` runs meanwhile, in any process.
        """

    @abstractmethod
    def now(self) -> float:
        """Unix time by this process's clock."""

    def make_tables(self, *statements: str) -> None:
        """One process at a time: PostgreSQL refuses to make a table that another one is making."""
        if self.has_tables:
            return
        with self.transaction("tables") as rows:
            for statement in statements:
                rows.run(statement)

    @abstractmethod
    def close(self) -> None: ...

    def run(self, query: str, **values: object) -> int:
        return self.execute(query, values, writes=True).changed

    def all(self, query: str, **values: object) -> list[Any]:
        return [*self.execute(query, values, writes=False).rows]

    def one(self, query: str, **values: object) -> Any:
        return next(iter(self.execute(query, values, writes=False).rows), None)
