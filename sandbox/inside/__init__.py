"""The code that runs inside a kernel. The host sends it there as text (`sandbox.kernel.stub`).

In: pieces of a program, or cells of a notebook, and the results of their calls. Out: the calls, and values as
JSON. Start at `stub`, which the host calls; `calls` has the protocol of a call.

Laws:

* A kernel may run where this project is not installed: these modules import the standard library, IPython and
  one another (tests/sandbox/inside/test_inside.py).
* Calls are sent in the order in which the code makes them. A cell may wait for several at the same time
  (`cells`, `tasks`); the host decides which of them share a message.
* A program is run again from its start, so everything that differs between runs is fixed: the clock and
  random numbers (`clock`), the order of threads (`threads`) and of sets of tasks.

Stops: nothing. A program can read and change all of this; the host checks what a kernel sends.
"""
