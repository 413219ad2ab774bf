"""The journal of acts: who makes an act, and what becomes of it, in several processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator.database import LEASE_SECONDS, Acts, Journal, JournalEntry, Leases, journal
from tests.database.conftest import OpenDatabase
from tests.support.processes import wait_until
from tests.support.uploads import Clock

MINE = JournalEntry("mine")
RUNNING = JournalEntry("running")
UNKNOWN = JournalEntry("unknown")


@pytest.fixture
def process(open_it: OpenDatabase) -> Callable[[], Journal]:
    def start() -> Journal:
        database = open_it()
        return Journal(database, Leases(database), 1000)

    return start


def test_one_of_all_processes_makes_an_act_and_the_others_read_its_result(
    process: Callable[[], Journal],
) -> None:
    journals = [process() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda journal: journal.begin("pay"), journals)]
    assert sorted(one.state for one in found) == ["mine"] + ["running"] * 5
    journals[found.index(MINE)].finish("pay", b"paid")
    assert [one.begin("pay") for one in journals] == [JournalEntry("done", b"paid")] * 6


def test_an_act_that_was_not_made_may_be_made_by_another_request(
    process: Callable[[], Journal],
) -> None:
    its, other = process(), process()
    assert its.begin("pay") == MINE
    other.withdraw("pay")
    assert other.begin("pay") == RUNNING, "only its own process withdraws it"
    its.withdraw("pay")
    assert other.begin("pay") == MINE


def test_an_act_of_a_dead_process_is_unknown_until_its_result_comes_late(
    process: Callable[[], Journal], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.database.leases._RENEW_SECONDS", 3600.0)
    its, other = process(), process()
    assert its.begin("pay") == MINE
    clock.now += LEASE_SECONDS * 100
    its.abandon("pay")
    assert [other.begin("pay"), other.begin("pay"), its.begin("pay")] == [UNKNOWN] * 3
    its.finish("pay", b"paid")
    assert other.begin("pay") == JournalEntry("done", b"paid")
    its.finish("pay", b"paid twice")
    assert other.find("pay") == JournalEntry("done", b"paid"), "the first result stays"


def test_an_act_about_which_a_person_was_asked_begins_once(process: Callable[[], Journal]) -> None:
    its, other = process(), process()
    its.ask("pay")
    its.ask("pay")
    assert other.find("pay") == JournalEntry("asked")
    assert [other.begin("pay"), its.begin("pay")] == [MINE, RUNNING]
    its.ask("pay")
    assert its.begin("pay") == RUNNING


def test_a_decision_about_something_else_changes_no_act(
    process: Callable[[], Journal], open_it: OpenDatabase
) -> None:
    its, decisions = process(), Acts(open_it())
    its.ask("asked")
    its.begin("pay")
    for key in ("asked", "pay"):
        assert decisions.pending("") == []
        assert decisions.decide("", key, b"yes") is None
        decisions.remove("", key)
    decisions.sweep()
    assert its.find("asked") == JournalEntry("asked")
    assert process().begin("pay") == RUNNING


def test_old_rows_are_removed_and_results_above_the_budget_are_dropped(
    process: Callable[[], Journal], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_RESULTS_BYTES", 10)
    its = process()
    for key in ("first", "second"):
        its.begin(key)
        its.finish(key, b"1234567")
        clock.now += 1
    wait_until(lambda: its.find("first") == JournalEntry("done", None))
    assert its.begin("first") == JournalEntry("done", None), "it is not made again"
    assert its.begin("second") == JournalEntry("done", b"1234567")
    its.finish("third", b"")
    clock.now += 1001
    its.finish("fourth", b"1")
    wait_until(lambda: [its.find(key) for key in ("first", "second", "third")] == [None] * 3)
