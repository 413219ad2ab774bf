"""State that several processes of one proxy share.

Three kinds of process boundaries, three ways across them:

* threads of one process: `state.LocalState`, ordinary memory under a lock.
* workers of one machine (setting ``workers`` above 1): the *keeper* process has the state that cannot be in
  several processes at the same time, above all the kernels of containers. Workers call it over a Unix
  socket (`rpc`); `state.keeper_calls` is such a caller. The few numbers that every request changes are in
  shared memory (`counts`).
* replicas on several machines: Redis has the counts (`state.redis_calls`) and the records
  (`emulator.storage`).

Callers see only `state.SharedState`; `state.open_state` chooses where its calls go.

Laws: the open requests and slots of a dead worker are released automatically; only bounded JSON crosses the
socket, never code; if the keeper is unavailable, a request that needs it fails and limits are counted per
worker, but no worker ends.

`emulator.web.server.keeper` describes the life of the keeper. Start at `state`.
"""
