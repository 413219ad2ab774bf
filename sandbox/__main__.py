"""`python -m sandbox`: which engines work on this machine, and what to do about the others."""

import sys

from sandbox.checks import check, render

if __name__ == "__main__":
    checks = check()
    sys.stdout.write(f"{render(checks)}\n")
    sys.exit(0 if any(each.ok for each in checks) else 1)
