"""How the model sees its programs afterwards: with at least the information of an ordinary turn."""

from __future__ import annotations

import ast
import json
from typing import Any

import hypothesis
import openai
import pytest
from hypothesis import strategies as st

from emulator.rendering.python_calls import literal
from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes, converse
from tests.support.chat import calls, plain
from tests.support.programs import CHAIN, LOCAL, TOOLS, result, started
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings


def block(code: str) -> str:
    return f"```tool_code\n{code}\n```"


def last_prompt(upstream: ScriptedUpstream) -> str:
    """The user's last message of the last prompt."""
    prompt_text = upstream.requests[-1]["messages"][-1]
    assert prompt_text["role"] == "user"
    return str(prompt_text["content"])


FAILED = """The program made its calls, then failed:

```text
error: KeyError: 'prize'
 --> line 3
  |
3 | print(x[0]['prize'])
  | ^^^^^^^^^^^^^^^^^^^^
```

Before the error it printed:

```text
on time
```

Its calls returned:

```check(id="a2")
on time
```

```search(to="Oslo")
[{"id": "a1", "price": 90}, {"id": "a2", "price": 50}]
```

Calls already made are not undone. Answer the request, or write another tool_code block."""


def test_a_failure_is_shown_with_its_line_earlier_output_and_all_calls(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    program = block("print(check('a2'))\nx = search('Oslo')\nprint(x[0]['prize'])")
    upstream.reply(program, "I am sorry.", "Again.")
    converse(client, ["Go.", "And now?"], tools=TOOLS, local=LOCAL)
    shown = upstream.requests[1]["messages"]
    assert [m["content"] for m in shown[2:]] == [program, FAILED]
    assert broken_prefixes(upstream.requests) == []


def test_a_repair_of_a_program_without_calls_shows_its_output(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(block("print('seen')\nx = 1 / 0\ncheck(id=str(x))"), "I cannot.")
    converse(client, ["Go."], tools=TOOLS, local=LOCAL)
    prompt_text = last_prompt(upstream)
    assert (
        "ZeroDivisionError" in prompt_text
        and "Before the error it printed:\n\n```text\nseen\n```" in prompt_text
    )


def test_a_program_that_fails_before_its_first_result_shows_its_earlier_output(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The placeholder was shown to the model: ``<__main__._Unknown object at 0x7ff01da670d0>``."""
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(
        block("print('seen')\nprint('it is', check('a2'))\nraise ValueError"), "I cannot."
    )
    converse(client, ["Go."], tools=TOOLS, local=LOCAL)
    prompt_text = last_prompt(upstream)
    assert (
        "ValueError" in prompt_text
        and "Before the error it printed:\n\n```text\nseen\n```" in prompt_text
    )
    assert "Unknown" not in prompt_text


FAILURES: list[tuple[str, str, list[str]]] = [
    (
        "a call that does not fit its schema, found while it runs",
        "a = check('a2')\nprint('seen', a)\nbook(id=a, note=[1])",
        ["seen on time", 'book(id="on time"', 'check(id="a2")\non time'],
    ),
    (
        "an attribute instead of a key",
        "print('first')\nx = search('Oslo')\nx[0].prize",
        ["first", "prize", '"price": 90'],
    ),
    (
        "a block that cannot be read behind one whose call has left",
        "print('begun')\na = check('a2')\nprint(a)\nif a:\n  x = )",
        ["invalid Python", "begun\non time", 'check(id="a2")\non time'],
    ),
    (
        "an unknown argument after a call that was sent",
        "a = check('a2')\nprint(a)\nbook(identity='x')",
        ["identity", 'check(id="a2")\non time'],
    ),
]


@pytest.mark.parametrize(
    ("code", "words"), [row[1:] for row in FAILURES], ids=[r[0] for r in FAILURES]
)
def test_every_failure_of_a_program_is_shown_with_its_earlier_calls(
    client: openai.OpenAI, upstream: ScriptedUpstream, code: str, words: list[str]
) -> None:
    # So slow that a call leaves before what follows it has come.
    upstream.reply(Reply(block(code), chunks=5, delay=0.02), "I am sorry.", "Again.")
    converse(client, ["Go.", "And now?"], tools=TOOLS, local=LOCAL)
    prompt_text = str(upstream.requests[1]["messages"][-1]["content"])
    assert "The program made its calls, then failed" in prompt_text
    assert [word for word in words if word not in prompt_text] == []
    assert broken_prefixes(upstream.requests) == []


def test_long_results_of_a_failed_program_are_cut_with_a_mark(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        block("a = [check(str(n)) for n in range(20)]\nprint(a[0].split()[99])"), "Sorry."
    )
    converse(client, ["Go."], tools=TOOLS, local={"check": lambda id: f"{id} " + "x" * 8_000})
    prompt_text = last_prompt(upstream)
    assert prompt_text.count("characters omitted") == 20 and "IndexError" in prompt_text
    assert len(prompt_text) < 20_000


OUTPUTS: list[tuple[str, str, str]] = [
    ("a printed call prints", "print(check('a2'))", "Its output:\n\n```text\non time\n```"),
    (
        "two printed calls print in their order",
        "print(check('a2'), check('a2'))\nprint('end')",
        "Its output:\n\n```text\non time on time\nend\n```",
    ),
    (
        "the result of a call without assignment is shown next to the output",
        "book('a1')\nprint('booked')",
        'book(id="a1")\n{"booked": "a1", "note": ""}\n```\n\nThe program ran to its end',
    ),
    (
        "also of one in a loop",
        "for i in ('a1', 'a2'):\n    check(i)\nprint('end')",
        'check(id="a2")\non time\n```\n\nThe program ran to its end',
    ),
    (
        "where nothing is printed the results are shown",
        "x = check('a2')\ny = check('a1')",
        'check(id="a2")\non time\n```\n\n```check(id="a1")\n{"late": 10}',
    ),
    (
        "what is printed may hold a fence",
        "print('```tool_code\\n' + check('a2'))",
        "Its output:\n\n````text\n```tool_code\non time\n````",
    ),
]


@pytest.mark.parametrize(
    ("code", "words"), [row[1:] for row in OUTPUTS], ids=[r[0] for r in OUTPUTS]
)
def test_a_finished_program_stays_in_the_history_with_its_output(
    start_proxy: StartProxy, upstream: ScriptedUpstream, code: str, words: str
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(f"I look.\n\n{block(code)}", "Done.", "Again.")
    converse(client, ["Go.", "And now?"], tools=TOOLS, local=LOCAL)
    assert (
        words in last_prompt(upstream) or words in upstream.requests[1]["messages"][-1]["content"]
    )
    assert upstream.requests[2]["messages"][2]["content"] == f"I look.\n\n{block(code)}"
    assert broken_prefixes(upstream.requests) == []


def test_comments_and_blank_lines_of_a_program_stay(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    code = "# First the status.\nx = check('a2')   # late?\n\n\nif x:\n    # tell\n    print(x)"
    upstream.reply(Reply(block(code), chunks=3), "Done.", "Again.")
    converse(client, ["Go.", "And now?"], tools=TOOLS, local=LOCAL)
    assert upstream.requests[2]["messages"][2]["content"] == block(code)


def test_the_calls_of_a_program_before_its_failure_are_sent(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    code = "for flight in search('Oslo'):\n    check(flight['id'])\n    flight['prize']"
    upstream.reply(block(code), "Sorry.")
    history = converse(client, ["Go."], tools=TOOLS, local=LOCAL)
    sent_calls = [call["function"]["name"] for m in history for call in m.get("tool_calls", ())]
    assert sent_calls == ["search", "check"]
    assert 'check(id="a1")\n{"late": 10}' in last_prompt(upstream)


def test_long_results_of_a_program_are_not_repeated_in_the_next_turn(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """One user turn later the prompt went from 1,319 to 165,175 characters."""
    upstream.reply(
        block("found = [check(str(n)) for n in range(20)]\nprint(sum(map(len, found)))"),
        "160000.",
        "Yes.",
    )
    converse(client, ["Go.", "Sure?"], tools=TOOLS, local={"check": lambda id: "x" * 8_000})
    sizes = [sum(len(m["content"]) for m in r["messages"]) for r in upstream.requests]
    assert sizes[2] - sizes[1] < 50
    assert broken_prefixes(upstream.requests) == []


def test_programs_stay_in_the_history_across_later_programs_and_requests_without_tools(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    second = block("x = book('a1')\nprint(x['booked'])")
    upstream.reply(CHAIN, second, "Done.", "Title.")
    history = converse(client, ["Go."], tools=TOOLS, local=LOCAL)
    assert broken_prefixes(upstream.requests) == []
    plain(client, model="m", messages=[*history, {"role": "user", "content": "A title?"}])
    shown = upstream.requests[-1]["messages"]
    assert [m["content"] for m in shown if m["role"] == "assistant"] == [CHAIN, second, "Done."]


def lost(history: list[Any]) -> list[Any]:
    return [json.loads(json.dumps(m).replace("on time", "late")) for m in history]


def test_a_history_with_other_results_shows_them_as_they_are(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(block("x = check('a2')\nprint('it is', x)"), "Done.", "Again.")
    history = converse(client, ["Go."], tools=TOOLS, local=LOCAL)
    changed = [*lost(history), {"role": "user", "content": "And now?"}]
    plain(client, model="m", messages=changed, tools=TOOLS)
    shown = upstream.requests[-1]["messages"]
    assert shown[2]["content"] == block('check(id="a2")')
    assert 'check(id="a2")\nlate' in shown[3]["content"]


def test_a_record_that_is_lost_means_the_calls_and_their_results(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    one, other = (openai.OpenAI(base_url=start_proxy(), api_key="k") for _ in range(2))
    upstream.reply(block("x = check('a2')\nprint('it is', x)"), "Done.", "Again.")
    history = converse(one, ["Go."], tools=TOOLS, local=LOCAL)
    plain(other, model="m", messages=[*history, {"role": "user", "content": "?"}], tools=TOOLS)
    shown = upstream.requests[-1]["messages"]
    assert shown[2]["content"] == block('check(id="a2")')


THEN_ACTS = "x = look(city='Oslo')\nprint(x)\nact(x=x)"


@pytest.mark.parametrize(
    ("schema", "code"),
    [(None, "look(city='Oslo')"), (None, THEN_ACTS), (strings("town"), "look(city='Oslo')")],
)
def test_a_call_of_a_changed_or_removed_tool_is_not_shown_as_a_failure(
    client: openai.OpenAI, upstream: ScriptedUpstream, schema: Any, code: str
) -> None:
    """The model read that its program had failed: ``look`` was not defined."""
    act = function("act", strings("x"))
    upstream.reply(block(code), "It is warm.")
    ask: Any = [{"role": "user", "content": "How is it?"}]
    first = plain(client, model="m", messages=ask, tools=[function("look", strings("city")), act])
    message = first.choices[0].message
    now = [*([function("look", schema)] if schema else []), act]
    messages = [*ask, message, result(message.tool_calls[0], "4 degrees")]  # type: ignore[index]
    second = plain(client, model="m", messages=messages, tools=now)
    assert second.choices[0].message.content == "It is warm."
    assert last_prompt(upstream).startswith("Results:")
    assert last_prompt(upstream).endswith("\n4 degrees\n```")


def test_a_program_resumes_after_a_call_whose_tool_has_changed(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    act = function("act", strings("x"))
    upstream.reply(block(THEN_ACTS))
    ask: Any = [{"role": "user", "content": "How is it?"}]
    first = plain(client, model="m", messages=ask, tools=[function("look", strings("city")), act])
    message: Any = first.choices[0].message
    messages = [*ask, message, result(message.tool_calls[0], "4 degrees")]
    tools = [function("look", strings("town")), act]
    second = plain(client, model="m", messages=messages, tools=tools)
    assert calls(second) == [("act", {"x": "4 degrees"})]


def test_images_in_results_are_shown_with_what_the_program_printed(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(block("x = check('a2')\nprint('seen')"), "Nice.")
    messages, message = started(client, "")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    parts = [{"type": "text", "text": "on time"}, picture]
    tool_result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": parts}
    plain(client, model="m", messages=[*messages, tool_result], tools=TOOLS)
    content = upstream.requests[-1]["messages"][-1]["content"]
    assert "seen" in content[0]["text"] and content[1] == picture


# Busy and slow sandboxes


def test_a_sandbox_that_is_slow_on_resume_makes_an_ordinary_turn(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(program_seconds=1)
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    upstream.reply(block("x = check('a2')\nif x:\n    while True:\n        pass"), "I see.")
    messages, message = started(client, "")
    messages.append(result(message.tool_calls[0], "on time"))
    answer = plain(client, model="m", messages=messages, tools=TOOLS)
    assert answer.choices[0].message.content == "I see."
    prompt_text = last_prompt(upstream)
    assert 'check(id="a2")\non time' in prompt_text and "fail" not in prompt_text


# Long arguments


WRITE = [function("write_file", strings("path", "content"))]
FILE = "".join(f'print("line {n}\\\\n")  # it\'s """quoted"""\n' for n in range(300))


def test_long_arguments_are_shown_once_with_their_line_breaks(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """A file of 12,000 characters cost 28,228."""
    upstream.reply(block(f"write_file(path='a.py', content={FILE!r})"), "Written.", "Yes.")
    converse(
        client, ["Go.", "Sure?"], tools=WRITE, local={"write_file": lambda path, content: "ok"}
    )
    called, prompt_text = (m["content"] for m in upstream.requests[1]["messages"][2:])
    assert len(called) + len(prompt_text) < 1.2 * len(FILE)
    assert f"[{len(FILE):,} characters])\nok" in prompt_text
    tree = ast.parse(called.removeprefix("```tool_code\n").removesuffix("\n```"))
    call = tree.body[0].value  # type: ignore[attr-defined]
    assert ast.literal_eval(call.keywords[1].value) == FILE and called.count("\n") > 300
    assert broken_prefixes(upstream.requests) == []


def test_two_calls_that_differ_beyond_the_cut_are_numbered(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    code = ", ".join(f"write_file(path='a', content='{'x' * 200}{n}')" for n in (1, 2))
    upstream.reply(block(f"[{code}]"), "Written.")
    converse(client, ["Go."], tools=WRITE, local={"write_file": lambda path, content: content[-1]})
    prompt_text = last_prompt(upstream)
    assert "(number 1)\n1" in prompt_text and "(number 2)\n2" in prompt_text


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(alphabet="\"'\\\n\r\tab`"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@hypothesis.given(JSON_VALUES)
def test_python_reads_a_literal_back_as_its_value(value: Any) -> None:
    assert ast.literal_eval(literal(value)) == value
