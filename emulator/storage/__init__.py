"""Files and containers, and their contents.

    files         files that clients upload
    containers    containers and their files
    blob_store    contents in a folder or an object store, and their rows in the database
    budgets       tokens that a client may spend
    stores        opens all of them: once to prepare them, then in each worker
    version_1     what an earlier version had stored

Laws: everything belongs to a client and does not exist for another one; what is stored is whole or absent,
also after a crash; quotas are checked before bytes are stored. Nothing here knows HTTP, or what runs in a
container.

Start at `files` for the pattern, then `blob_store` for how bytes reach the disk.
"""
