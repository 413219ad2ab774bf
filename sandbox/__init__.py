"""Engines that run a model's Python with pauses. Knows nothing of HTTP, prompts or tools.

Start at `sandbox.engine`: the two verbs. `sandbox.monty` and `sandbox.kernel` offer them,
`sandbox.provisioners` says where kernels run, `sandbox.checks` which of all this works here.
"""
