"""Cells in containers: kernels that keep their state, files, approvals.

In comes a cell and the container that it runs in; out comes what it prints, draws and writes, call by call
where it calls a client's functions. A container outlives its kernel: files are the host's (`storage`), and
`file_sync` brings them into each new kernel and out again.

Laws: one cell at a time in a container; all that comes out of a kernel is data, bounded and never parsed as
code; a cell that waits for a client's result waits inside its kernel and is never run twice.

Of several replicas, `shared_kernels` lets each go on with a container's kernel; `replicas` names what they
know together: `kernel_records`, `kernel_places` and `shared_approvals`.

Start at `interpreter.Interpreter.run`, then `kernels` (who has a kernel) and `cell` (one run).
"""
