"""Fixtures: what a proxy stores is in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import StartProxy


@pytest.fixture
def start_proxy(start_app: Callable[..., tuple[str, Any]]) -> StartProxy:
    return lambda **settings: start_app(**settings)[0]
