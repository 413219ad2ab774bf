"""What runs is a matter of syntax: the table of `emulator.reply.judge`, over HTTP.

No words decide: each row is tried in fourteen languages. Nothing that was ordered is lost, and nothing that
acts runs because of the words around it.
"""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.chat import BOTH, calls, plain
from tests.support.examples import example_count
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

TOOLS: list[Any] = [
    function("delete_file", strings("path"), "Delete a file."),
    function("bash", strings("command"), "Run a command."),
    function("send_mail", strings("to", "body"), "Send a mail."),
    function("read_file", strings("path"), "Read a file."),
]
TOOLS[-1]["function"]["annotations"] = {"readOnlyHint": True}
PATH = "notes.txt"
DELETED = [("delete_file", {"path": PATH})]
CODE = f'delete_file(path="{PATH}")'
JSON = json.dumps({"name": "delete_file", "arguments": {"path": PATH}})

TRUSTED = {
    "the label": f"```tool_code\n{CODE}\n```",
    "the label, tildes": f"~~~tool_code\n{CODE}\n~~~",
    "a label of other models": f"```tool_call\n{JSON}\n```",
    "Hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "Qwen Coder": f"<function=delete_file>\n<parameter=path>\n{PATH}\n</parameter>\n</function>",
    "Mistral": f"[TOOL_CALLS][{JSON}]",
    "ReAct": f'Action: delete_file\nAction Input: {{"path": "{PATH}"}}',
    "Command R": f"Action: ```json\n[{JSON.replace('name', 'tool_name', 1)}]\n```",
    "Gemma": f"<tool_code>\n{CODE}\n</tool_code>",
}
OTHERS = {
    "Python": f"```python\n{CODE}\n```",
    "Python, short": f"```py\n{CODE}\n```",
    "no label": f"```\n{CODE}\n```",
    "a statement": f"```python\nresult = {CODE}\nprint(result)\n```",
    "a loop": f'```python\nfor path in ["{PATH}"]:\n    delete_file(path=path)\n```',
    "JSON": f"```json\n{JSON}\n```",
    "YAML": f"```yaml\nname: delete_file\narguments:\n  path: {PATH}\n```",
    "bare Python": CODE,
    "a name and JSON": f'delete_file {{"path": "{PATH}"}}',
    "a name, then JSON": f'delete_file\n{{"path": "{PATH}"}}',
    "bare JSON": JSON,
}
AROUND = {
    "English, a closing question": ("Sure, one moment.", "Anything else?"),
    "English, leave": ("I would run this:", "Just say the word and off it goes."),
    "English, an example": ("For example, deleting looks like this:", "It is only an example."),
    "English, a user's act": ("Here you are:", "Run it with `python hello.py`."),
    "German": ("Ich lösche die Datei jetzt:", "Soll ich sonst noch etwas tun?"),
    "French": ("Je supprime le fichier :", "Puis-je vous aider avec autre chose ?"),
    "Spanish": ("Por ejemplo, así se borra:", "¿Quiere que lo ejecute?"),
    "Portuguese": ("Vou apagar o arquivo:", "Posso ajudar em algo mais?"),
    "Italian": ("Elimino il file:", "Serve altro?"),
    "Dutch": ("Ik verwijder het bestand:", "Zal ik verdergaan?"),
    "Polish": ("Usuwam plik:", "Czy mam kontynuować?"),
    "Turkish": ("Dosyayı siliyorum:", "Başka bir şey ister misiniz?"),
    "Russian": ("Удаляю файл:", "Выполнить это?"),
    "Chinese": ("我来删除这个文件:", "还需要我做什么吗?"),
    "Japanese": ("ファイルを削除します:", "実行してもよろしいですか?"),
    "Korean": ("파일을 삭제하겠습니다:", "다른 도움이 필요하신가요?"),
    "Arabic": ("سأحذف الملف الآن:", "هل تريد شيئا آخر؟"),
    "Hindi": ("मैं फ़ाइल हटा रहा हूँ:", "क्या मैं और कुछ करूँ?"),
}
GO: list[Any] = [{"role": "user", "content": "What's the command to delete notes.txt?"}]


def said(words: str, block: str) -> str:
    before, after = AROUND[words]
    return f"{before}\n\n{block}\n\n{after}"


def answer(client: openai.OpenAI, ask: Any = plain, **request: Any) -> Any:
    return ask(client, **{"model": "m", "messages": GO, "tools": TOOLS, **request})


@BOTH
def test_a_block_that_comes_after_the_last_attempt_is_shown(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """The model cannot be asked about it any more: the answer was empty."""
    reply = said("English, a user's act", next(iter(OTHERS.values())))
    wrong = [f"```tool_code\ndelete_file(name={n})\n```" for n in range(3)]
    upstream.reply(*wrong, reply)
    message = answer(client, ask).choices[0].message
    assert (message.content, message.tool_calls) == (reply, None)


@BOTH
@pytest.mark.parametrize("words", AROUND)
@pytest.mark.parametrize("syntax", TRUSTED)
def test_a_trusted_syntax_runs_whatever_words_surround_it(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, words: str
) -> None:
    upstream.reply(Reply(said(words, TRUSTED[syntax]), chunks=7))
    assert calls(answer(client, ask)) == DELETED
    assert len(upstream.requests) == 1


RUN_ANSWERS = {
    "RUN": "RUN",
    "run.": "Run.",
    "after thoughts": "<think>It should delete.</think>\n\nRUN",
    "bold": "**RUN**",
    "the block again": None,
    "a labelled block": TRUSTED["the label"],
    "another syntax": TRUSTED["Hermes"],
}


@BOTH
@pytest.mark.parametrize("words", AROUND)
@pytest.mark.parametrize("syntax", OTHERS)
def test_an_acting_block_among_words_runs_after_the_answer_run(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, words: str
) -> None:
    reply = said(words, OTHERS[syntax])
    upstream.reply(Reply(reply, chunks=5), "RUN")
    assert calls(answer(client, ask)) == DELETED
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first)] == first
    assert second[-2] == {"role": "assistant", "content": reply}
    assert "Answer RUN to run it exactly as written" in second[-1]["content"]


@BOTH
@pytest.mark.parametrize("said_then", RUN_ANSWERS)
@pytest.mark.parametrize("syntax", OTHERS)
def test_each_of_these_answers_confirms_the_block(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, said_then: str
) -> None:
    block = OTHERS[syntax]
    upstream.reply(f"Here:\n\n{block}\n\nOk?", RUN_ANSWERS[said_then] or block)
    assert calls(answer(client, ask)) == DELETED
    assert len(upstream.requests) == 2


@BOTH
@pytest.mark.parametrize("declines", ["NO", "No, I only showed it.", "您要我做什么?", "I ran it."])
@pytest.mark.parametrize("syntax", OTHERS)
def test_any_other_answer_leaves_the_first_reply_as_it_is(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, declines: str
) -> None:
    reply = said("Korean", OTHERS[syntax])
    upstream.reply(Reply(reply, chunks=3), declines)
    completion = answer(client, ask)
    assert (calls(completion), completion.choices[0].message.content) == ([], reply)
    assert completion.choices[0].finish_reason == "stop"
    assert len(upstream.requests) == 2


@BOTH
@pytest.mark.parametrize("syntax", OTHERS)
def test_a_reply_of_nothing_but_a_block_runs(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str
) -> None:
    upstream.reply(Reply(f"\n{OTHERS[syntax]}\n", chunks=4))
    assert calls(answer(client, ask)) == DELETED
    assert len(upstream.requests) == 1


READ = {
    "Python": '```python\nread_file(path="a")\n```',
    "JSON": '```json\n{"name": "read_file", "arguments": {"path": "a"}}\n```',
}


@BOTH
@pytest.mark.parametrize("words", AROUND)
@pytest.mark.parametrize("syntax", READ)
def test_a_block_that_only_reads_runs(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, words: str
) -> None:
    upstream.reply(said(words, READ[syntax]))
    assert calls(answer(client, ask)) == [("read_file", {"path": "a"})]
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("block", [*READ.values(), OTHERS["Python"], OTHERS["JSON"]])
def test_an_unlabelled_block_of_a_model_that_labels_blocks_causes_a_question(
    client: openai.OpenAI, upstream: ScriptedUpstream, block: str
) -> None:
    """Also if it only reads, or is the whole reply."""
    upstream.reply('```tool_code\nread_file(path="b")\n```')
    first = answer(client).choices[0].message
    messages = [
        *GO,
        first.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "It is b."},
    ]
    upstream.reply(block, "NO")
    completion = answer(client, messages=messages)
    assert (calls(completion), completion.choices[0].message.content) == ([], block)
    assert len(upstream.requests) == 3


SHOWN = {
    "a session": f"```python\n>>> {CODE}\n'ok'\n```",
    "an own function": f"```python\nimport os\n\ndef delete_file(path):\n    os.remove(path)\n\n{CODE}\n```",
    "an example": f"```python example\n{CODE}\n```",
    "only definitions": f"```python\ndef clean():\n    {CODE}\n```",
    "another library": "```python\nimport shutil\nshutil.rmtree('build')\n```",
    "no call": '```json\n{"path": "notes.txt"}\n```',
}


@BOTH
@pytest.mark.parametrize("case", SHOWN)
def test_a_block_that_calls_no_offered_function_is_shown(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, case: str
) -> None:
    reply = f"Here:\n\n{SHOWN[case]}\n\nDone."
    upstream.reply(reply)
    completion = answer(client, ask)
    assert (calls(completion), completion.choices[0].message.content) == ([], reply)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("syntax", OTHERS)
def test_a_required_call_runs(
    client: openai.OpenAI, upstream: ScriptedUpstream, syntax: str
) -> None:
    upstream.reply(said("English, leave", OTHERS[syntax]))
    assert calls(answer(client, tool_choice="required")) == DELETED


@pytest.mark.parametrize(
    "block",
    ["```python\ndelete_file(file='x')\n```", "```python\ndelete_file(path='x') 5 6\n```"],
)
def test_the_question_about_an_invalid_block_names_its_fault(
    client: openai.OpenAI, upstream: ScriptedUpstream, block: str
) -> None:
    upstream.reply(f"I delete it.\n\n{block}\n\nOk?", TRUSTED["the label"])
    assert calls(answer(client)) == DELETED
    question = upstream.requests[1]["messages"][-1]["content"]
    assert "it has a fault" in question
    assert "error:" in question
    assert "Answer NO if you only showed it" in question


def test_the_question_includes_the_blocks_after_an_acting_one(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """A reading call ran, and the acting call before it was lost."""
    upstream.reply(f"First:\n\n{OTHERS['Python']}\n\nThen:\n\n{READ['Python']}\n\nOk?", "RUN")
    assert calls(answer(client)) == DELETED  # the reading call waits for it
    assert len(upstream.requests) == 2


MIXED = '```python\ntext = read_file(path="a")\ndelete_file(path=text)\n```'


@BOTH
def test_a_block_that_reads_and_then_acts_runs_nothing_before_the_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """The reading call was sent while the block was written, and the act was lost."""
    reply = f"Here:\n\n{MIXED}\n\nOk?"
    upstream.reply(Reply(reply, chunks=4), "NO", Reply(reply, chunks=4), "RUN")
    completion = answer(client, ask)
    assert (calls(completion), completion.choices[0].message.content) == ([], reply)
    assert calls(answer(client, ask)) == [("read_file", {"path": "a"})]


def test_an_early_streamed_read_does_not_run_the_act_after_it(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """It is streamed while it is written, unless what follows needs an answer."""
    long = "a" * 900
    block = f'```python\nread_file(path="{long}")\n{CODE}\n```'
    upstream.reply(Reply(f"Here:\n\n{block}\n\nOk?", chunks=9), "NO")
    with client.chat.completions.stream(model="m", messages=GO, tools=TOOLS) as stream:
        for _ in stream:
            pass
        assert calls(stream.get_final_completion()) == []


BLANKS = [
    ("bash", {"command": "psql -c \"INSERT INTO t VALUES ('Bob')\""}),
    ("bash", {"command": "grep -n '[a-z]' notes.txt"}),
    ("send_mail", {"to": "you@example.com", "body": "Your refund"}),
    ("send_mail", {"to": "a@b.c", "body": "<Button>{{ title }}</Button>"}),
    ("delete_file", {"path": "..."}),
    ("delete_file", {"path": "path/to/your/file"}),
    ("send_mail", {"to": "[name]", "body": "TODO"}),
    ("bash", {"command": "echo $YOUR_NAME <placeholder>"}),
]


@BOTH
@pytest.mark.parametrize(("tool", "arguments"), BLANKS)
def test_an_argument_that_resembles_a_blank_is_an_argument(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, tool: str, arguments: Any
) -> None:
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    upstream.reply(f"Here.\n\n```tool_code\n{tool}({written})\n```\n\nIs that fine?")
    assert calls(answer(client, ask)) == [(tool, arguments)]


def test_any_call_of_a_model_acts_if_its_profile_says_so(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    row = {"name": "mine", "pattern": "m", "acts": "any"}
    client = openai.OpenAI(base_url=start_proxy(profiles=(row,)), api_key="k", max_retries=0)
    for block in OTHERS.values():
        upstream.reply(f"Here:\n\n{block}\n\nShall I?")
        assert calls(answer(client)) == DELETED
    upstream.reply(f"Here:\n\n{SHOWN['a session']}")
    assert calls(answer(client)) == []


def test_a_labelled_block_that_calls_nothing_runs_and_its_output_goes_back(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """It was shown as Python."""
    upstream.reply("Look:\n\n```tool_code\nprint(6 * 7)\n```", "It is 42.")
    content = answer(client).choices[0].message.content
    assert content == "Look:\n\nIt is 42."
    assert "42" in upstream.requests[1]["messages"][-1]["content"]


words = st.text(
    st.characters(blacklist_characters="`~<>[]{}|\\\r", blacklist_categories=("Cs", "Cc")),
    max_size=60,
).map(str.strip)


@settings(
    max_examples=example_count(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    before=words,
    after=words,
    syntax=st.sampled_from(sorted({*TRUSTED} | {*OTHERS} - {"bare Python", "bare JSON"})),
    size=st.integers(1, 40),
)
def test_the_outcome_depends_on_the_syntax_only(
    client: openai.OpenAI,
    upstream: ScriptedUpstream,
    before: str,
    after: str,
    syntax: str,
    size: int,
) -> None:
    before = f"So {before}"  # some word, and nothing that begins a call itself
    asked = len(upstream.requests)
    block = TRUSTED.get(syntax) or OTHERS[syntax]
    upstream.reply(Reply(f"{before}.\n\n{block}\n\nSo {after}", chunks=size))
    if syntax in OTHERS:
        upstream.reply("RUN")
    assert calls(answer(client)) == DELETED
    assert len(upstream.requests) - asked == 1 + (syntax in OTHERS)
