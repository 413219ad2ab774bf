"""The database: documents, leases, counters; SQLite and PostgreSQL."""
