"""The value of a result: its text where the program treats it as text, else its text parsed as JSON."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.chat import calls, plain
from tests.support.programs import result
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

PACKAGE = '{"name": "app", "version": "1.0"}'
TOOLS = [
    function("read_file", strings("path")),
    function("bash", strings("command")),
    function("search", strings("q")),
    function("note", strings("text")),
    function("weigh", {"type": "object", "properties": {"x": {}}, "required": ["x"]}),
]

USES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("a method of texts", "note(read_file('p').replace('app', 'x'))", PACKAGE,
     {"text": '{"name": "x", "version": "1.0"}'}),
    ("parsed by the program", "import json\nnote(json.loads(read_file('p'))['name'])", PACKAGE,
     {"text": "app"}),
    ("parsed later", "import json\nt = read_file('p')\nd = json.loads(t)\nnote(d['version'])", PACKAGE,
     {"text": "1.0"}),
    ("a number with its line end", "note(bash('wc -l').strip())", "42\n", {"text": "42"}),
    ("the digits of a number", "note('-'.join(c for c in str(bash('id'))))", "123", {"text": "1-2-3"}),
    ("the first digit, and one among them", "x = str(bash('id'))\nnote(x[0] if '2' in x else 'none')", "123",
     {"text": "1"}),
    ("a number as a number", "weigh(bash('wc -l') + 1)", "42\n", {"x": 43}),
    ("a number that is parsed", "weigh(int(bash('wc -l')))", "42\n", {"x": 42}),
    ("a number that is compared with a text", "x = bash('id')\nif x == '0':\n    note('root')", "0",
     {"text": "root"}),
    ("a value", "note(search('q')['hits'][0])", '{"hits": ["a"]}', {"text": "a"}),
    ("a value, kept", "r = search('q')\nfor h in r['hits']:\n    note(h)", '{"hits": ["a"]}', {"text": "a"}),
    ("lines", "for line in read_file('p').splitlines():\n    note(line)", "[1]", {"text": "[1]"}),
    ("passed on as a text", "note(read_file('p'))", PACKAGE, {"text": PACKAGE}),
    ("formatted", "note(f\"read: {read_file('p')}\")", PACKAGE, {"text": f"read: {PACKAGE}"}),
    ("made a text", "note('a {}'.format(read_file('p')))", PACKAGE, {"text": f"a {PACKAGE}"}),
    ("looked for among texts", "note('a' if bash('id') in ('0', '1') else 'b')", "0", {"text": "a"}),
    ("a key of texts", "d = {'0': 'root'}\nnote(d[bash('id')])", "0", {"text": "root"}),
    ("cut, which no dict can be", "note(read_file('p')[:7])", PACKAGE, {"text": '{"name"'}),
    ("what only running tells", "def f(t):\n    return t.upper()\nnote(f(read_file('p')))", '{"a": 1}',
     {"text": '{"A": 1}'}),
    ("a comprehension's own x is another one", "x = read_file('p')\nys = [x['a'] for x in [{'a': 'b'}]]\n"
     "note(x.strip() + ys[0])", "{} ", {"text": "{}b"}),
    ("searched for words", "note('yes' if 'not found' in bash('x') else 'no')", '{"m": "is not found"}',
     {"text": "yes"}),
    ("asked for a key", "note('yes' if 'found' in bash('x') else 'no')", '{"m": "is not found"}',
     {"text": "no"}),
    ("asked for a key of words, which is read", "r = bash('x')\nif 'a b' in r:\n    note(r['a b'])",
     '{"a b": "c"}', {"text": "c"}),
    ("null", "note('none' if bash('x') is None else 'some')", "null", {"text": "none"}),
    ("empty", "note('empty' if not bash('x') else 'some')", "", {"text": "empty"}),
    ("a JSON string reads as its text", "note(bash('x').strip())", '"two words"', {"text": "two words"}),
    ("a text in JSON that is parsed", "import json\nnote(json.loads(bash('x')))", '"two words"',
     {"text": "two words"}),
    ("plain text", "note(bash('ls').split()[1])", "a b c", {"text": "b"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "text", "sent"), [row[1:] for row in USES], ids=[row[0] for row in USES]
)
def test_a_result_is_text_where_the_program_treats_it_as_text(
    client: openai.OpenAI, upstream: ScriptedUpstream, program: str, text: str, sent: dict[str, Any]
) -> None:
    assert _sent_next(client, upstream, program, text, TOOLS) == sent


SHOWN: list[tuple[str, str, str, str]] = [
    ("printed where it is called", "print(read_file('p'))", PACKAGE, PACKAGE),
    ("printed later, and twice", "t = read_file('p')\nprint(t)\nprint('file:', t)", PACKAGE,
     f"file: {PACKAGE}"),
    ("in a text that is printed", "for p in ('a',):\n    t = read_file(p)\n    print(f'{p}: {t}')", PACKAGE,
     f"a: {PACKAGE}"),
    ("a number, as it was written", "print(bash('x'))", "1.50", "1.50"),
    ("null", "print(bash('x'))", "null", "None"),
    ("a text in JSON", "print(bash('x'))", '"two\\nlines"', "two\nlines"),
    ("printed as text, and taken apart as text", "t = read_file('p')\nprint(t)\nprint(t.upper())", '{"a": 1}',
     '{"A": 1}'),
    ("printed, and treated as JSON", "d = search('q')\nprint(d, d['a'])", '{"a": true}', '{"a": true} True'),
    ("printed within something", "print([search('q')])", '{"a": 1}', "[{'a': 1}]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "text", "printed"), [row[1:] for row in SHOWN], ids=[row[0] for row in SHOWN]
)
def test_a_whole_result_is_printed_unchanged(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    program: str,
    text: str,
    printed: str,
) -> None:
    """``print(read_file("package.json"))`` showed the model Python's repr of the file's content."""
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(f"```tool_code\n{program}\n```", "Done.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    first = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
    messages += [first.model_dump(exclude_none=True), result(first.tool_calls[0], text)]
    plain(client, model="m", messages=messages, tools=TOOLS)
    told = "\n".join(str(message["content"]) for message in upstream.requests[-1]["messages"][1:])
    assert printed in told


GET = "weigh(get('a'))"
SCHEMAS: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("a schema that says text", {"output_schema": {"type": "string"}}, GET, "[1]", {"x": "[1]"}),
    ("a schema that says an object", {"outputSchema": {"type": "object"}}, GET, "[1]", {"x": [1]}),
    ("a description that says JSON", {"description": "Looks up. Returns JSON."}, GET, "3", {"x": 3}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "program", "text", "sent"),
    [row[1:] for row in SCHEMAS],
    ids=[row[0] for row in SCHEMAS],
)
def test_a_schema_decides_the_type_of_a_result(
    client: openai.OpenAI, upstream: ScriptedUpstream, more: Any, program: str, text: str, sent: Any
) -> None:
    tool = function("get", strings("key"))
    tool["function"] |= more
    assert _sent_next(client, upstream, program, text, [tool, *TOOLS]) == sent


def test_the_stub_shows_the_output_schema(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    tool = function("get", strings("key"))
    tool["function"]["output_schema"] = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
        },
    }
    upstream.reply("Hello.")
    plain(client, model="m", messages=[{"role": "user", "content": "Hi."}], tools=[tool])
    prompt = json.dumps(upstream.requests[0]["messages"])
    assert "-> list[dict[str, Any]]:" in prompt
    assert "Returns: list of {id: str, n: int}" in prompt


def _sent_next(
    client: openai.OpenAI, upstream: ScriptedUpstream, program: str, text: str, tools: list[Any]
) -> Any:
    """The arguments of the call that the program makes of its first result."""
    upstream.reply(f"```tool_code\n{program}\n```")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    first = plain(client, model="m", messages=messages, tools=tools).choices[0].message
    messages += [first.model_dump(exclude_none=True), result(first.tool_calls[0], text)]
    second = plain(client, model="m", messages=messages, tools=tools)
    ((_, arguments),) = calls(second)
    return arguments
