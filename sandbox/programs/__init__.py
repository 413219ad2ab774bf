"""Run programs in small processes that can only compute and talk to the host.

In: messages for one program (its source, recorded results). Out: messages of that program, untrusted. This
room knows neither tools nor what the messages mean: `inside.run` and the host's caller do.

How it works. A worker of the proxy starts one process, the *program server*, when the first program arrives
(`server_process`). The server imports the standard library and then gives up opening, executing and
connecting. For each run it forks a *child* (about a millisecond), which gives up the rest: afterwards it
has one descriptor, its socket, and 19 system calls (`inside.fence`, `inside.filter`). The host and the
child exchange messages over that socket (`messages`, `child_process`). This needs no privileges and no
namespaces.

Laws:

* Everything from a child is untrusted: it is native code that may send any bytes, or none. The host bounds
  size, number and time before it parses, never waits without a deadline, and never blocks in a send.
* The server reads nothing of a program. Only a child does, and a child runs one program and ends.
* A child is killed by its pidfd, which cannot name another process, and only then forgotten.
* At most `most` children run and `waiting` children wait for the host, each within its share of memory
  (`slots`): the budget of a worker is the product.
* If the probe (`probes`) finds one fence that does not hold, no program runs. There is no weaker way to run
  one.

Start at `server.ProgramServer`, which the proxy uses; then `inside`, the code of the server and its children.
"""
