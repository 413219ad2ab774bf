"""Fixtures of the inspector's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.inspected import Inspected
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve


@pytest.fixture
def inspect(
    upstream: ScriptedUpstream,
    open_shared_engines: Callable[[Any], Any],
    open_shared_kernels: Callable[[Any], Any],
) -> Iterator[Callable[..., Inspected]]:
    """`inspect(**settings)` starts a proxy."""
    from app import create_app
    from emulator.settings import Settings

    with ExitStack() as running:

        def start(**values: Any) -> Inspected:
            own = {"base_url": upstream.base_url, "store": ":memory:", "files_dir": ":temporary:"}
            settings = Settings(**{"warm_kernels": 0, "engines": ("monty",), **own, **values})
            app = create_app(
                settings,
                engines=open_shared_engines(settings),
                kernels=open_shared_kernels(settings),
            )
            running.callback(app.extensions["emulator"].close)
            return Inspected(
                running.enter_context(serve(app)), app.extensions["emulator"].requests.traces
            )

        yield start
