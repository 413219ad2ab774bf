"""The monty engine: pydantic-monty, a Rust implementation of a Python subset, in worker processes.

Input: a program's source, and the results of its calls. Output: `Paused` and `Finished`, or a `SandboxError`.

Laws:

* A program that Monty would run differently than CPython is `Unsupported` before its first line runs
  (`language`, with the tables of `facts`), or is rewritten with the same meaning (`rewrites`).
* An error that comes from a missing feature of Monty is `Unsupported`, never the program's failure
  (`gaps`, `errors`).

Start at `engine`, then `session`.
"""
