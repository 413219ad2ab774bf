"""pytest's option ``--slice N``: every Nth test. CI runs slices of what takes long, the nightly run all."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", type=int, default=1, metavar="N", help="run every Nth test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = items[:: config.getoption("--slice")]
