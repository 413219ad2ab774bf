"""Runs a model's Python. Knows nothing of HTTP, prompts or tools.

The modules of this folder are the face, which the proxy may import, and code that several rooms share.
The rooms, from top to bottom (a contract in pyproject.toml):

* `sandbox.programs` runs programs in small processes that can only compute, `sandbox.kernel` cells in Jupyter
  kernels;
* `sandbox.fences` confines kernels;
* `sandbox.inside` is the code that runs inside a kernel; it imports nothing else of this project.

`sandbox.checks` tests all of them on this machine.
"""
