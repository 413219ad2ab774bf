"""What confines a kernel: bubblewrap, seccomp, control groups, process limits, Docker.

Input: a command and its limits. Output: the confined process. Each module says what it stops and what it
does not stop. Law: if a fence does not hold, the kernel engine is turned off; it never runs with a weaker
fence instead.

`probes` and `docker_probes` test each fence from inside a sandbox, before any program runs there. Start
at `bubblewrap`.
"""
