"""The model's side: which upstream has which model, the client that asks it, server-sent events.

`interface` is what other rooms know: `Turns.open` sends one request of an answer, always streamed, and
gives chunks as plain dicts, decoded once. On its way a request passes `routes` (which upstream, under
which name), `guarded` (a place among those it gets at once, `breaker`, `retries`) and `client`, which sends
it by `posts`, as the official SDK would; only it imports that. A `reply` tells who asks to know what came of
it. `upstreams` holds all of them and merges their model lists; `pass_through` sends on what is no chat, by
the model that `named_model` finds in its body; `sse` reads and writes event streams, sans-IO, and `chunk`
says what an event must be; `local_model` serves a small model when nothing is configured. Errors carry the
upstream's own status and words. Nothing here knows tools.

Start at `upstreams`.
"""
