"""The model's side: the client that asks it, server-sent events, the embedded model.

`interface` is what other rooms know: `Turns.open` sends one request of an answer, always streamed, and
gives chunks as plain dicts, decoded once. `client` does so with the official SDK, which only it imports;
`sse` reads and writes event streams, sans-IO; `local_model` serves a small model when nothing is
configured. Errors carry the upstream's own status and words. Nothing here knows tools.

Start at `interface`.
"""
