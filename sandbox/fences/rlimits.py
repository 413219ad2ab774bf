"""What a sandboxed process may use: it limits itself, before anything else runs in it. Knows no sandbox."""

SET_LIMITS = """\
import resource, sys
memory, cpu, processes, file_size = map(int, sys.argv.pop(1).split(","))
with open("/proc/self/statm") as statm:
    mapped = int(statm.read().split()[0]) * resource.getpagesize()
for limit, most in (
    (resource.RLIMIT_AS, mapped + memory), (resource.RLIMIT_CPU, cpu),
    (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_FSIZE, file_size),
    (resource.RLIMIT_NOFILE, 256), (resource.RLIMIT_CORE, 0),
):
    if most >= 0:
        resource.setrlimit(limit, (most, most))
"""
"""Python source that limits its own process by the numbers in its first argument. Address space is
limited from there on: RLIMIT_AS counts what is mapped, and much is before the first line of any
program."""
