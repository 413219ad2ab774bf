"""Proxies on one database that cannot attach to each other's kernels: each ends those that it has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.fences import probes
from tests.support.raw_http import send

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")


def test_a_container_that_moves_to_another_proxy_leaves_no_kernel_running(
    start_app: Callable[..., tuple[str, Any]],
) -> None:
    # Proxies of one limit of time would share their kernels' processes.
    limits = [{"program_key": key, "interpreter_seconds": 30 + n} for n, key in enumerate("ab")]
    proxies = [start_app(max_kernels=2, **limit)[0] for limit in limits]
    container = send(f"{proxies[0]}/v1/containers", {"name": "c"})[2]["id"]
    for proxy in proxies * 4:
        code = {"code": "print('x' in globals()); x = 1"}
        status, _, ran = send(f"{proxy}/v1/containers/{container}/execute", code)
        assert (status, ran.get("stdout")) == (200, "False\n"), ran
