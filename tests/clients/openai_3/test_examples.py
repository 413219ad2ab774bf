"""The examples of examples/ that use LangChain, LangGraph and PydanticAI, as processes."""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import SharedUpstream
from tests.clients.examples import run_example

BOTH = """\
```tool_code
london = get_weather(location="London")
oslo = get_weather(location="Oslo")
print(london["celsius"], oslo["celsius"])
```"""
ANSWER = "It is warmer in London: 12 degrees, and 4 in Oslo."


def test_langchain(base_url: str, upstream: SharedUpstream, tmp_path: Path) -> None:
    upstream.reply(BOTH, ANSWER, '{"city": "London", "celsius": 12}')
    shown = run_example("readme_langchain.py", url=base_url, folder=tmp_path)
    assert "get_weather (call_" in shown and '{"celsius": 4.0}' in shown
    assert shown.endswith(f"{ANSWER}\ncity='London' celsius=12.0\n")


def test_langgraph(base_url: str, upstream: SharedUpstream, tmp_path: Path) -> None:
    upstream.reply(BOTH, ANSWER)
    shown = run_example("readme_langgraph.py", url=base_url, folder=tmp_path).splitlines()
    assert [line.partition(":")[0] for line in shown] == ["model", "tools", "tools", "model"]
    assert shown[-1] == f"model: {ANSWER}"


def test_pydantic_ai(base_url: str, upstream: SharedUpstream, tmp_path: Path) -> None:
    upstream.reply(BOTH, "```tool_code\nfinal_result(city='London', celsius=12)\n```")
    assert run_example("readme_pydantic_ai.py", url=base_url, folder=tmp_path).splitlines() == [
        'get_weather({"location":"London"})',
        'get_weather({"location":"Oslo"})',
        'final_result({"city":"London","celsius":12})',
        "Warmer(city='London', celsius=12.0)",
    ]
