"""The database: rows that outlive a request, and what all processes of a proxy share.

    documents     values of one type under keys, which expire: responses, programs, the history
    leases        at most so many holders of a name; one that dies loses it
    counters      requests per minute, tokens per minute and day
    rows          statements and transactions, for tables of one's own: files, containers

A database is SQLite (`sqlite`) or PostgreSQL (`postgres`). Every query is in the SQL that both have, with
``:name`` for each value. A process is a replica: it has a connection of its own and no other way to the other
processes, whether they are workers of the same machine or replicas elsewhere.

Laws: what is read is validated as data; a failure is `DatabaseFailed` within about a second (for a lock that
another replica has in PostgreSQL, five), and nobody waits for another's wait; nothing is computed, opened or
sent within a transaction.

Start at `database.Database`, then `documents`.
"""

from emulator.database.database import (
    Database,
    DatabaseFailed,
    Rows,
    database_failures,
)
from emulator.database.documents import MAX_VALUE_BYTES, Documents
from emulator.database.leases import LEASE_SECONDS, Lease, Leases, LeaseTaken
from emulator.database.opening import open_database

__all__ = [
    "LEASE_SECONDS",
    "MAX_VALUE_BYTES",
    "Database",
    "DatabaseFailed",
    "Documents",
    "Lease",
    "LeaseTaken",
    "Leases",
    "Rows",
    "database_failures",
    "open_database",
]
