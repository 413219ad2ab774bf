"""Fixtures of the inspector's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.inspected import Inspected


@pytest.fixture
def inspect(start_app: Callable[..., tuple[str, Any]]) -> Callable[..., Inspected]:
    """`inspect(**settings)` starts a proxy."""

    def start(**settings: Any) -> Inspected:
        # Without a key the server makes a token at its start; these tests start an app without the server.
        opened = {} if {"client_keys", "inspector_key"} & settings.keys() else {"inspector": "open"}
        url, services = start_app(**{**opened, **settings})
        return Inspected(url, services.requests)

    return start
