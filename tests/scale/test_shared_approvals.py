"""A cell that waits for approval at one replica is shown and decided at the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from emulator.database import ACT_SECONDS
from tests.scale.replicas import Replicas
from tests.support.processes import wait_until
from tests.support.programs import INTERPRETER
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream


class Waiting:
    """A cell that was sent to the first replica, and waits there."""

    def __init__(self, replicas: Replicas, pool: ThreadPoolExecutor) -> None:
        self.replicas = replicas
        made = replicas.at(0, "/v1/containers", {"name": "c", "approval": "required"})
        self.container = made["id"]
        url = f"{replicas.urls[0]}/v1/containers/{self.container}/execute"
        self.answer: Future[Any] = pool.submit(send, url, {"code": "print('as it was written')"})
        wait_until(lambda: self.listed(1))

    def listed(self, replica: int) -> list[Any]:
        path = f"/v1/containers/{self.container}/executions"
        found: list[Any] = self.replicas.at(replica, path)["data"]
        return found

    def decide(self, replica: int, word: str, body: Any = None) -> tuple[int, Any]:
        [held] = self.listed(0)
        path = f"/v1/containers/{self.container}/executions/{held['id']}/{word}"
        status, _, answer = send(f"{self.replicas.urls[replica]}{path}", body or {})
        return status, answer

    def ran(self) -> Any:
        status, _, answer = self.answer.result(60)
        assert status == 200, answer
        return answer


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as opened:
        yield opened


def test_a_cell_pending_at_one_replica_is_approved_at_the_other(
    replicas: Replicas, pool: ThreadPoolExecutor
) -> None:
    waiting = Waiting(replicas, pool)
    assert waiting.listed(1) == waiting.listed(0)
    status, answer = waiting.decide(1, "approve", {"code": "print('as it was edited')"})
    assert (status, answer["status"]) == (200, "approved")
    ran = waiting.ran()
    assert ran["stdout"] == "as it was edited\n"
    assert "changed the code" in ran["notes"][0]
    assert waiting.listed(0) == waiting.listed(1) == []


def test_the_first_decision_on_a_pending_cell_counts_at_every_replica(
    replicas: Replicas, pool: ThreadPoolExecutor
) -> None:
    waiting = Waiting(replicas, pool)
    [held] = waiting.listed(1)
    path = f"/v1/containers/{waiting.container}/executions/{held['id']}"
    words = [(replica, word) for word in ("approve", "decline") for replica in (0, 1)]
    answers = [
        pool.submit(send, f"{replicas.urls[replica]}{path}/{word}", {}) for replica, word in words
    ]
    statuses = [answer.result(60)[0] for answer in answers]
    assert sorted(statuses) == [200, 404, 404, 404]
    approved = words[statuses.index(200)][1] == "approve"
    assert (waiting.ran()["status"] == "Success") == approved


def test_a_cell_of_a_container_that_the_other_replica_deletes_is_not_run(
    replicas: Replicas, pool: ThreadPoolExecutor
) -> None:
    waiting = Waiting(replicas, pool)
    replicas.at(1, f"/v1/containers/{waiting.container}", method="DELETE")
    ran = waiting.ran()
    assert ran["status"] == "Failure"
    assert "has gone" in ran["stderr"]


def test_a_pending_cell_whose_replica_was_killed_is_no_longer_listed(
    replicas: Replicas, pool: ThreadPoolExecutor
) -> None:
    """The cell ended with its client's connection; the list must not show it any longer."""
    waiting = Waiting(replicas, pool)
    replicas.kill(0)
    assert waiting.answer.exception(60) is not None
    wait_until(lambda: waiting.listed(1) == [])
    assert ACT_SECONDS < 60, "wait_until waits as long"


def test_a_cell_of_a_chat_is_approved_at_the_other_replica(
    replicas: Replicas, pool: ThreadPoolExecutor, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nprint(6 * 7)\n```", "Forty-two.")
    container = replicas.at(0, "/v1/containers", {"name": "c", "approval": "required"})["id"]
    tool = {**INTERPRETER, "container": container}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "tools": [tool]}
    answer = pool.submit(replicas.at, 0, "/v1/chat/completions", asked)
    path = f"/v1/containers/{container}/executions"
    wait_until(lambda: replicas.at(1, path)["data"])
    [held] = replicas.at(1, path)["data"]
    assert held["code"] == "print(6 * 7)\n"
    replicas.at(1, f"{path}/{held['id']}/approve", {})
    assert "Forty-two." in json.dumps(answer.result(60))
    assert "42" in json.dumps(upstream.requests[-1]["messages"])
