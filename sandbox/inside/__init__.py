"""The code that runs inside a kernel. The host sends it there as text (`sandbox.kernel.stub`).

In: cells of a notebook, and the results of their calls. Out: the calls, and values as
JSON. Start at `stub`, which the host calls; `calls` has the protocol of a call.

Laws:

* A kernel may run where this project is not installed: these modules import the standard library, IPython and
  one another (tests/sandbox/inside/test_inside.py).
* Calls are sent in the order in which the code makes them. A cell may wait for several at the same time
  (`cells`, `tasks`); the host decides which of them share a message.
* Functions that call the host run in the main thread, one after the other (`threads`).

Stops: nothing. A cell can read and change all of this; the host checks what a kernel sends.
"""
