"""`python -m sandbox`: report which engines and fences work on this machine, and how to fix the others."""

import sys

from sandbox.checks import check_all
from sandbox.report import render

if __name__ == "__main__":
    checks = check_all()
    sys.stdout.write(f"{render(checks)}\n")
    sys.exit(0 if all(each.ok for each in checks if each.needed) else 1)
