"""Stops: a sandboxed process from using more memory, CPU time, processes, file size or open files than
its limits. It sets them on itself, before it runs anything else.

Does not stop: memory spread over many processes (`sandbox.fences.cgroups`). Knows no sandbox.
"""

SET_LIMITS = """\
import resource, sys
memory, cpu, processes, file_size = map(int, sys.argv.pop(1).split(","))
with open("/proc/self/statm") as statm:
    mapped = int(statm.read().split()[0]) * resource.getpagesize()
for limit, maximum in (
    (resource.RLIMIT_AS, mapped + memory), (resource.RLIMIT_CPU, cpu),
    (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_FSIZE, file_size),
    (resource.RLIMIT_NOFILE, 256), (resource.RLIMIT_CORE, 0),
):
    if maximum >= 0:
        hard = resource.getrlimit(limit)[1]
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(limit, (maximum, maximum))
"""
"""Python source that limits its own process by the numbers in its first argument; -1 means no limit. The
memory limit is added to what is mapped so far, because RLIMIT_AS counts mapped memory."""
