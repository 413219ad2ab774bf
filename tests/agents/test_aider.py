"""aider calls no tools: files pass the proxy as the model writes them, and failing tests go back to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.agents import AIDER
from tests.agents.tasks import BROKEN, MENDED, TEST
from tests.conftest import StartProxy
from tests.support.metrics import count_requests
from tests.support.scripted import ScriptedUpstream

pytestmark = pytest.mark.skipif(not AIDER.environment.installed, reason="aider is not installed")


def test_aider_repairs_a_file_until_its_test_passes(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    home: Path,
    record_property: Callable[[str, object], None],
) -> None:
    work = home / "work"
    work.mkdir()
    (work / "add.py").write_text(BROKEN)
    (work / "test_add.py").write_text(TEST)
    wrong = BROKEN.replace("a - b", "a * b")
    upstream.reply(*(f"add.py\n```\n{text}```\n" for text in (wrong, MENDED)))
    url = start_proxy()
    requests = count_requests(url)
    run = AIDER.run("Mend add.py so that test_add.py passes.", url, home, work)
    told = f"{run.stdout}\n{run.stderr}"
    assert run.returncode == 0, told
    assert (work / "add.py").read_text() == MENDED, told
    assert len(upstream.requests) == 2, told
    record_property("environment", "aider")
    record_property("requests", requests())
    record_property("turns", 2)
    assert "AssertionError: wrong" in upstream.requests[1]["messages"][-1]["content"]
