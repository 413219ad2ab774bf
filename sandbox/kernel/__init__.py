"""The kernel engine, host side: CPython in Jupyter kernels.

In: source code of programs and cells, results of their calls. Out: outputs, `Paused` and `Finished`, or a
`SandboxError`. `engine` takes a kernel from the pool for each session, `places` says where kernels run,
`session` speaks with the stub (`sandbox.inside`) in one kernel, and `notebook` adds files.

Law: everything that comes out of a kernel is data of an expected shape, read and bounded here. Nothing of it
is unpickled or evaluated.

jupyter_client takes 17 MiB; `jupyter` and `provisioners`, which need it, are imported with the first kernel.
"""
