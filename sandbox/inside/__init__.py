"""The code that runs inside a kernel. The host sends it there as text (`sandbox.kernel.stub`).

Imports the standard library, IPython and itself, nothing else: a kernel may run where this project is not
installed. `values` is used on the host as well.

Stops: nothing. A program can read and change all of this; the host checks what a kernel says.
"""
