"""The database: rows that outlive a request, and state that all processes of a proxy share.

    documents     values of one type under keys, which expire: responses, programs, the history
    journal       acts: each is a row before it is made, and then its result
    acts          rows of the journal that wait for a decision: the first one counts, and is taken before
                  anything is done
    tidying       removes expired documents, and the oldest ones of a kind above its budget
    leases        a limited number of holders of a name; a holder that dies loses its lease
    slots         the same, of holders that outlive their process
    counters      open requests, requests per minute, tokens per minute and day
    rows          statements and transactions for the tables of other rooms: files, containers

A database is SQLite (`sqlite`) or PostgreSQL (`postgres`). Every query is in the SQL that both have, with
``:name`` for each value. A process is a replica: it has its own connections, and no other way to reach the
other processes, whether they are workers of the same machine or replicas elsewhere.

The states of a lease are in `leases`, those of a database that does not answer in `availability`. A document
is stored, then expires, is deleted, or is dropped as the oldest above its kind's budget.

What may never happen:

* data is used before it is validated: another program may have written it;
* a request hangs on the database: every statement has a deadline (a second with SQLite, three for a lock in
  PostgreSQL, six if PostgreSQL does not answer at all), and after the first `DatabaseFailed` the others come
  immediately;
* something is computed, opened or sent within a transaction: others wait for its lock.

Start at `database.Database`, then `documents`.
"""

from emulator.database.acts import ACT_SECONDS, Acts
from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database, Rows, database_failures
from emulator.database.documents import MAX_VALUE_BYTES, Documents
from emulator.database.journal import Journal, JournalEntry
from emulator.database.leases import LEASE_SECONDS, Lease, Leases, LeaseTaken
from emulator.database.opening import open_database
from emulator.database.slots import Slots

__all__ = [
    "ACT_SECONDS",
    "LEASE_SECONDS",
    "MAX_VALUE_BYTES",
    "Acts",
    "Database",
    "DatabaseFailed",
    "Documents",
    "Journal",
    "JournalEntry",
    "Lease",
    "LeaseTaken",
    "Leases",
    "Rows",
    "Slots",
    "database_failures",
    "open_database",
]
