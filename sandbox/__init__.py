"""Engines that run a model's Python and pause at calls. Knows nothing of HTTP, prompts or tools.

The modules of this folder are the face, which the proxy may import, and code that several rooms share.
Start at `sandbox.engine`, the interface of all engines. The rooms, from top to bottom (a contract in
pyproject.toml):

* `sandbox.monty` and `sandbox.kernel` are the two engines;
* `sandbox.programs` runs programs in small processes that can only compute;
* `sandbox.fences` confines kernels;
* `sandbox.inside` is the code that runs inside a kernel; it imports nothing else of this project.

`sandbox.checks` tests all of them on this machine.
"""
