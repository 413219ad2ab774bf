"""Run cells in containers: kernels that keep their state, files and approvals.

Input: a cell and its container. Output: the cell's text, pictures and files, and its calls of a client's
functions. A container outlives its kernels: its files belong to the host (`emulator.storage`), and
`file_sync` copies them into each new kernel and out again; its variables end with the kernel.

The states, each at the head of its module:

* of a request to run a cell: `interpreter`; while it waits for a person's approval: `approvals`;
* of the cell: `cell`. It runs, waits for results inside its kernel, resumes, and completes or fails;
* of a container's kernel, as one process has it: `container_kernel`. A lost kernel is reported to the next
  cell, once;
* of a kernel that several processes may use, one at a time: `shared_kernels`.

What may never happen:

* two cells run in a container at the same time;
* a cell runs twice: it has side effects. Without its kernel, its results are an ordinary turn of the model;
* output of a kernel is parsed as code, or has no limit;
* two replicas use one kernel at the same time.

Start at `interpreter.Interpreter.run`.
"""
