"""What outlives a request: values under keys, files, containers and their contents.

    key_value     small values that expire (programs between turns, responses), in SQLite or Redis
    files         files that clients upload
    containers    containers and their files
    budgets       tokens that a client may spend

Files and containers are built on `blob_store`: contents, and an index of them. One machine has both in a
folder, the index in SQLite. Several replicas have contents in a mounted folder or an object store
(`object_contents`), and the index in PostgreSQL (`shared_index`).

Laws: everything belongs to a client and does not exist for another one; what is stored is whole or absent,
also after a crash; quotas are checked before bytes are stored. Nothing here knows HTTP, or what runs in a
container.

Start at `files` for the pattern, then `blob_store` for how bytes reach the disk.
"""
