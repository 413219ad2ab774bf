"""What confines a kernel: bubblewrap, seccomp, control groups, limits on processes, Docker.

In: a command and its limits. Out: the process, behind the fences. Each module says what it stops and what
it does not stop. Law: a fence that does not hold turns the kernel engine off; it never becomes a weaker one.

`probes` and `docker_probes` try each fence from within, before any program gets in. Start at `bubblewrap`.
"""
