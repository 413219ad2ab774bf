"""The proxy acts only when the model means to act: the cases of cases.md, over HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.answering.block_intent import IntentJudge
from emulator.answering.call_policy import CallPolicy
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.program_runs import ProgramRuns
from emulator.answering.prose import Prose, StopFilter
from emulator.answering.quotations import Quotations
from emulator.answering.reply_reader import ReplyReader
from emulator.events import ContentDelta, ToolCall
from emulator.programs.driver import Driver
from emulator.tools.toolset import Toolset
from tests.support.chat import BOTH
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

PATH = Path(__file__).parents[1] / "intent" / "cases.md"
#: A case of cases.md is `## a sentence`, settings, and the reply between two rows of `%%%%`. ``expected`` is
#: "runs", "shown" (the reply is the answer, unchanged, after one model turn) or "asked" (the model is asked
#: once; nothing has run). ``request`` are the user's words. ``shown as python``: the block's label leaves so.
_CASE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<settings>(?:[a-z ]+: [^\n]*\n)*)%%%%\n(?P<reply>.*?)\n%%%%$",
    re.MULTILINE | re.DOTALL,
)

READING = ("get_weather", "list_files", "read_file")
TOOLS = [
    function("get_weather", strings("city"), "Get the weather of a city."),
    function("list_files", strings("path"), "List the files of a folder."),
    function("read_file", strings("path"), "Read a file."),
    function("write_file", strings("path", "content"), "Write a file."),
    function("delete_file", strings("path"), "Delete a file."),
    function("send_email", strings("to", "body"), "Send a mail."),
    function("bash", strings("command"), "Run a command."),
]


@dataclass(frozen=True)
class IntentCase:
    kind: str
    title: str
    reply: str
    expected: str
    request: str
    leaves_as_python: bool

    @property
    def content(self) -> str:
        """What the user reads of a reply that is shown."""
        if not self.leaves_as_python:
            return self.reply
        return re.sub(r"```[^\n]*[Ee]xample\}?", "```python", self.reply)


def cases() -> list[IntentCase]:
    text = PATH.read_text(encoding="utf-8")
    found = []
    for section in re.split(r"(?:\A|(?<=%%%%\n\n))# ", text)[1:]:
        kind = section.partition("\n")[0]
        for match in _CASE.finditer(section):
            settings = dict(line.split(": ", 1) for line in match["settings"].splitlines())
            found.append(
                IntentCase(
                    kind,
                    match["title"],
                    match["reply"],
                    settings["expected"],
                    settings.get("request", "Please."),
                    "shown as python" in settings,
                )
            )
    assert len(found) == len(re.findall(r"^## ", text, re.MULTILINE))
    return found


PAGE = Path(__file__).parents[2] / "docs" / "intent.md"

CASES = cases()


@BOTH
@pytest.mark.parametrize("case", CASES, ids=[f"{case.kind}: {case.title}" for case in CASES])
def test_a_reply_runs_or_is_shown_or_the_model_is_asked(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, case: IntentCase
) -> None:
    upstream.reply(case.reply, *["NO"] * (case.expected == "asked"))
    messages = [{"role": "user", "content": case.request}]
    completion = ask(client, model="m", messages=messages, tools=TOOLS)
    message = completion.choices[0].message
    assert len(upstream.requests) == 1 + (case.expected == "asked")
    assert bool(message.tool_calls) == (case.expected == "runs")
    if case.expected != "runs":
        assert message.content.removesuffix("\n\nNO") == case.content
        assert completion.choices[0].finish_reason == "stop"


def test_the_page_lists_every_kind_of_case_with_its_outcomes() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| .* \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    outcomes = {kind: set(re.findall(r"shown|runs|asked", text)) for kind, text in rows[1:]}
    for case in CASES:
        allowed = outcomes[case.kind]
        meant = case.kind == "The words after it say so" and case.expected == "runs"
        assert case.expected in allowed or meant, case.title
    assert outcomes.keys() == {case.kind for case in CASES}


#: Names of tools, one that acts and one that reads, and what a call of it looks like.
ACTIONS = st.sampled_from(["delete_file", "drop_table", "send_money", "deploy_app"])
READS = st.sampled_from(["get_weather", "list_items", "search_web"])
SAY_SHOWN = st.sampled_from(
    [
        "For example, a call looks like this:",
        "Don't run this:",
        "Here is how you could do it:",
        "To do that you would call",
        "I won't do that without your permission:",
        "Shall I proceed?",
    ]
)
SAY_MEANT = st.sampled_from(["", "I'll do it now:", "Doing that now.", "Let me do that:"])
LABELS = st.sampled_from(["```python", "```py", "```", "~~~python", "```Python", "```tool_code"])


def read(reply: str, name: str, cuts: list[int]) -> tuple[list[str], str]:
    """The names of the calls and the content of a reply that arrives in pieces."""
    toolset = Toolset.parse([function(name, strings("value"), f"{name.replace('_', ' ')}.")])
    draft = ProgramDraft(
        ProgramRuns(Driver((), toolset)), IntentJudge(toolset), Quotations((), toolset)
    )
    reader = ReplyReader(draft, Prose(StopFilter(None), hold=False), CallPolicy())
    at = sorted({0, len(reply), *(cut % (len(reply) + 1) for cut in cuts)})
    events = [event for one, two in pairwise(at) for event in reader.feed(reply[one:two])]
    events += reader.close()
    calls = [event.name for event in events if isinstance(event, ToolCall)]
    return calls, "".join(event.text for event in events if isinstance(event, ContentDelta))


@given(
    name=ACTIONS | READS,
    before=SAY_SHOWN,
    label=LABELS,
    after=st.sampled_from(["", "That is all.", "This is the call."]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
@settings(max_examples=150)
def test_a_call_that_the_words_show_is_content_however_the_reply_is_cut(
    name: str, before: str, label: str, after: str, cuts: list[int]
) -> None:
    reply = f'{before}\n\n{label}\n{name}(value="x")\n{label[:3]}\n\n{after}'.rstrip()
    assert read(reply, name, cuts) == ([], reply)


@given(
    name=ACTIONS,
    label=LABELS,
    code=st.sampled_from(
        [
            'def {0}(value):\n    print(value)\n\n{0}("x")',
            'from lib import {0}\n{0}("x")',
            'import os\n{0} = os.remove\n{0}("x")',
            '>>> {0}("x")\nTrue',
            'def main():\n    {0}("x")\n\ndef {0}(value):\n    return value\n\nmain()',
        ]
    ),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
@settings(max_examples=150)
def test_code_with_a_definition_of_its_own_is_content_however_the_reply_is_cut(
    name: str, label: str, code: str, cuts: list[int]
) -> None:
    reply = f"{label}\n{code.format(name)}\n{label[:3]}"
    assert read(reply, name, cuts) == ([], reply)


@given(
    name=ACTIONS | READS,
    before=SAY_MEANT,
    label=LABELS,
    after=st.sampled_from(["", "I'll report back.", "Done."]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
@settings(max_examples=150)
def test_a_call_that_is_meant_runs_however_the_reply_is_cut(
    name: str, before: str, label: str, after: str, cuts: list[int]
) -> None:
    reply = f'{before}\n\n{label}\n{name}(value="x")\n{label[:3]}\n\n{after}'.strip()
    assert read(reply, name, cuts) == ([name], before)
