"""`max_kernels` is one number of all replicas, where one gateway has their kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.scale.replicas import Replicas, was_restarted
from tests.support.raw_http import send

AT_MOST_TWO = pytest.mark.parametrize(
    "replicas", [["--max-kernels", "2", "--interpreter-idle-seconds", "600"]], indirect=True
)
GIVING_WAY = pytest.mark.parametrize(
    "replicas", [["--max-kernels", "2", "--interpreter-idle-seconds", "0"]], indirect=True
)


def container_at(replicas: Replicas, replica: int) -> str:
    return str(replicas.at(replica, "/v1/containers", {"name": "c"})["id"])


def run(replicas: Replicas, replica: int, container: str, code: str) -> tuple[int, Any]:
    url = f"{replicas.urls[replica]}/v1/containers/{container}/execute"
    status, headers, answer = send(url, {"code": code})
    assert status == 200 or "retry-after" in headers
    return status, answer


@AT_MOST_TWO
def test_kernels_of_all_replicas_count_and_a_kernel_beyond_the_limit_is_refused(
    replicas: Replicas,
) -> None:
    before = replicas.kernels()
    containers = [container_at(replicas, 0) for _ in range(3)]
    assert run(replicas, 0, containers[0], "x = 1")[0] == 200
    assert run(replicas, 1, containers[1], "x = 1")[0] == 200
    for replica in (0, 1):
        status, answer = run(replicas, replica, containers[2], "x = 1")
        assert (status, answer["error"]["code"]) == (503, "overloaded")
        assert "all 2 kernels of all replicas are in use" in answer["error"]["message"]
    assert len(replicas.kernels() - before) == 2
    # A container that has its kernel keeps it, whichever replica is asked.
    assert run(replicas, 1, containers[0], "print(x)")[1]["stdout"] == "1\n"
    replicas.at(1, f"/v1/containers/{containers[0]}", method="DELETE")
    assert run(replicas, 0, containers[2], "print(2)")[1]["stdout"] == "2\n"


@AT_MOST_TWO
def test_concurrent_requests_start_no_more_kernels_than_the_limit(replicas: Replicas) -> None:
    before = replicas.kernels()
    containers = [container_at(replicas, n % 2) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        ran = pool.map(lambda n: run(replicas, n % 2, containers[n], "1")[0], range(8))
        assert sorted(ran) == [200] * 2 + [503] * 6
    assert len(replicas.kernels() - before) == 2


@AT_MOST_TWO
def test_a_kernel_counts_when_its_replica_was_killed_and_until_it_is_ended(
    replicas: Replicas,
) -> None:
    containers = [container_at(replicas, 0) for _ in range(3)]
    for container in containers[:2]:
        assert run(replicas, 0, container, "x = 1")[0] == 200
    replicas.kill(0)
    assert run(replicas, 1, containers[2], "1")[0] == 503
    replicas.at(1, f"/v1/containers/{containers[1]}", method="DELETE")
    assert run(replicas, 1, containers[2], "1")[0] == 200


@AT_MOST_TWO
def test_a_kernel_without_variables_counts_while_it_runs(replicas: Replicas) -> None:
    for n in range(4):
        made = replicas.at(0, "/v1/containers", {"name": "c", "stateful": False})
        assert run(replicas, n % 2, made["id"], "1")[0] == 200


@GIVING_WAY
def test_the_longest_idle_kernel_of_all_replicas_is_ended_for_a_new_one(
    replicas: Replicas,
) -> None:
    before = replicas.kernels()
    containers = [container_at(replicas, 0) for _ in range(3)]
    assert run(replicas, 0, containers[0], "x = 1\nopen('a.txt', 'w').write('kept')")[0] == 200
    assert run(replicas, 1, containers[1], "x = 1")[0] == 200
    assert run(replicas, 1, containers[2], "x = 1")[0] == 200
    assert len(replicas.kernels() - before) == 2
    ran = run(replicas, 0, containers[0], "print(open('a.txt').read())\nx")[1]
    assert "NameError" in ran["stderr"]
    assert ran["stdout"] == "kept\n"
    assert was_restarted(ran)
    assert run(replicas, 0, containers[2], "print(x)")[1]["stdout"] == "1\n"
