"""The monty engine: pydantic-monty, a Rust implementation of a Python subset, in worker processes.

In: a program's source and the results of its calls. Out: `Paused` and `Finished`, or a `SandboxError`.

Laws:

* A program that Monty would run differently than CPython is `Unsupported` before its first line runs
  (`language`, with the tables of `facts`), or becomes one that means the same (`lazy`, `shadows`).
* An error that is Monty's own lack is `Unsupported`, never the program's failure (`gaps`, `errors`).

Start at `engine`, then `session`.
"""
