"""What outlives a request: values under keys, files, containers and their contents.

`key_value` keeps small values for a while (programs over turns, responses), in SQLite or Redis.
`blob_store` keeps bytes in a folder with an index in SQLite, or for several replicas in `object_contents`
with a `shared_index`; `files` and `containers` are built on it.

Laws: everything belongs to a client and is not there for another; what is kept is whole or absent, also
after a crash; quotas are checked before bytes are kept. Nothing here knows HTTP or what runs in a
container.

Start at `files` for the pattern, `blob_store` for how bytes get to disk.
"""
