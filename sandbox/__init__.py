"""Engines that run a model's Python with pauses. Knows nothing of HTTP, prompts or tools.

The modules of this folder are the face, which the proxy may import, and what several rooms need. Start at
`sandbox.engine`: the two verbs. The rooms, from top to bottom (a contract in pyproject.toml):

* `sandbox.monty` and `sandbox.kernel` are the two engines;
* `sandbox.fences` confines kernels;
* `sandbox.inside` is the code that runs inside a kernel, and imports nothing else of ours.

`sandbox.checks` tries all of it on this machine.
"""
