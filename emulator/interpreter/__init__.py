"""Cells in containers: kernels that keep their state, files, approvals.

In: a cell and its container. Out: what the cell prints, draws and writes, call by call if it calls a
client's functions. A container outlives its kernel: files belong to the host (`emulator.storage`), and
`file_sync` copies them into each new kernel and out again.

Laws: one cell at a time in a container; everything that comes out of a kernel is data, bounded, and never
parsed as code; a cell that waits for a client's result waits inside its kernel and is never run twice.

Each process has the kernels that it started; `SharedKernels` lets the others use them, one at a time.

Start at `interpreter.Interpreter.run`, then `container_kernel` (the states of a kernel) and `cell` (one run).
"""
