"""How many random examples a test tries: all, or a third with EXAMPLES_SLICE=3 (CI; nightly.yml: all)."""

from __future__ import annotations

import os


def example_count(count: int) -> int:
    return max(1, count // int(os.environ.get("EXAMPLES_SLICE", "1")))
