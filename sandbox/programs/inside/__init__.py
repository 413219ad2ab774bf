"""The code of the program server and of its children. It imports the standard library and itself only.

Start at `server.serve`, which the host starts (`sandbox.programs.server_process`). `fence` is what a child
gives up, `filter` are its system calls, `channel` is its socket, `preload` is what it can import, `probe`
tries what it must not do. `run` is what a child does: it runs one program.

Laws:

* Import first, fence second, fork third: neither the server nor a child can open a file after that.
* The server never reads what its children read: its own filter forbids it.
* A child is native code to the Linux kernel. No rule here depends on what Python lets a program do.
"""
