"""What the worker processes of one machine share, and how they reach it.

With `workers` above 1 there is one more process, the keeper (`emulator.web.server.keeper`): it has
what cannot be in several processes at once, above all the kernels of containers. Workers ask it over a Unix
socket (`wire`). Numbers that each request changes are in shared memory instead: those of all (`counts`,
`registers`), and those of each client (`open_requests`, `rates`, both by `sketch`).

Laws: what a dead worker held is free again without anybody's doing; what crosses the socket is JSON, bounded,
and never code; a keeper that cannot be reached is an error of that request or a limit that is not kept, never
the end of a worker.

Start at `wire`.
"""
