"""The cases of `make bench-rivals` are sound, and this proxy passes those that are not about formats."""

from __future__ import annotations

from collections import Counter

import openai
import pytest

from benchmarks.rivals.__main__ import Score, play
from benchmarks.rivals.cases import CASES, TOOLS
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.scripted import ScriptedUpstream

FEW = [case for case in CASES if "ways" not in case.group and "name" not in case.group]


def test_the_expected_calls_are_valid_and_no_case_is_there_twice() -> None:
    tools = {tool.name: tool for tool in Toolset.parse(TOOLS).tools}
    for case in CASES:
        for name, arguments in case.calls:
            assert tools[name].validator.is_valid(dict(arguments)), case.name
    assert set(Counter((case.group, case.name) for case in CASES).values()) == {1}


@pytest.mark.parametrize("group", dict.fromkeys(case.group for case in FEW))
def test_the_proxy_passes_the_cases_of_a_group(
    start_proxy: StartProxy, upstream: ScriptedUpstream, group: str
) -> None:
    score = Score()
    with openai.OpenAI(base_url=f"{start_proxy()}/v1", api_key="any", max_retries=0) as client:
        for case in FEW:
            if case.group == group:
                play(case, client, upstream, score)
    assert score.failed == []
