"""The guard on cost: a stored table of how many Python functions each standard request calls."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.call_counts import TABLE, Counts, measure

TOLERANCE = 0.03
"""The share by which a count may grow."""
LOWER_TOLERANCE = 0.15
"""The share by which it may fall: on a busy machine several chunks of a stream are read at once."""
WRITE = "python -m tests.support.call_counts --write"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the table is of Python 3.11; others inline some calls"
)
def test_a_request_calls_as_many_functions_as_the_table_says() -> None:
    """A request had become a third dearer over a series of small changes, unnoticed."""
    table: dict[str, Counts] = json.loads(TABLE.read_text())
    found = measure()
    assert found.keys() == table.keys()
    dearer = [
        report(name, table[name], counts)
        for name, counts in found.items()
        if sum(counts.values()) > (1 + TOLERANCE) * sum(table[name].values())
    ]
    assert not dearer, "\n".join([*dearer, f"If it is worth that: {WRITE}"])
    cheaper = [
        name
        for name, counts in found.items()
        if sum(counts.values()) < (1 - LOWER_TOLERANCE) * sum(table[name].values())
    ]
    assert not cheaper, f"Cheaper now, so store the lower counts ({WRITE}): {', '.join(cheaper)}"


def report(name: str, stored: Counts, found: Counts) -> str:
    """The sums, and the modules that grew most."""
    grown = {module: count - stored.get(module, 0) for module, count in found.items()}
    most = sorted(grown.items(), key=lambda item: -item[1])[:8]
    listed = ", ".join(f"{module} +{more}" for module, more in most if more > 0)
    return f"{name}: {sum(stored.values())} -> {sum(found.values())} calls: {listed}"
