"""Reasoning at the start of an answer that otherwise stays unchanged: whole, and cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator.reading.events import Reasoning
from emulator.reading.reasoning import LeadingReasoning
from emulator.reading.tags import REASONING

SAMPLES = [
    ("<think>Hm.</think>Hi.", "Hm.", "Hi."),
    ("\n <think>\n\nHm. <b></thin\n</think>\n\n Hi. ", "Hm. <b></thin\n", "Hi. "),
    ("<think>\n\n</think>\n\nHi.", "", "Hi."),
    ("[THINK]a[/THINK]b", "a", "b"),
    ("<think>cut of", "cut of", ""),
    ("<think>cut off</thi", "cut off</thi", ""),
    ("Hi. <think>is a tag</think>", "", "Hi. <think>is a tag</think>"),
    ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    ("<thin", "", "<thin"),
    ("<thinker> is", "", "<thinker> is"),
    ("```python\nf()\n```", "", "```python\nf()\n```"),
    ("  \n", "", "  \n"),
    ("", "", ""),
]


def read(pieces: Sequence[str]) -> tuple[str, str]:
    leading = LeadingReasoning()
    events = [event for piece in pieces for event in leading.feed(piece)]
    events += leading.close()
    assert all(event.text for event in events)
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    return thought, "".join(event.text for event in events if not isinstance(event, Reasoning))


@pytest.mark.parametrize(("text", "thought", "answer"), SAMPLES)
def test_reasoning_is_separated_however_the_text_is_cut(
    text: str, thought: str, answer: str
) -> None:
    assert read([text]) == (thought, answer)
    assert read([*text]) == (thought, answer)
    for at in range(len(text) + 1):
        assert read([text[:at], text[at:]]) == (thought, answer)


@pytest.mark.parametrize("opening", REASONING)
def test_every_reasoning_tag_is_recognized(opening: str) -> None:
    assert read([*f"{opening}a{REASONING[opening]}b"]) == ("a", "b")
