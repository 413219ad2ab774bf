"""The readers: statements as soon as they are complete, repairs of models' mistakes, and clear faults."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.reading.calls import find_calls
from emulator.reading.diagnostics import Diagnostic, render
from emulator.reading.python_reader import PythonReader
from emulator.reading.readers import READERS, Statement, Unreadable, calls_tool, mentions_tool, read
from emulator.reading.repairs import REPAIRS
from emulator.reading.rewrites import REWRITES
from emulator.reading.statements import MAX_BLOCK
from emulator.reading.tool_names import ToolNames
from tests.support.examples import example_count
from tests.support.replies import NAMES, Block, cases, events, pieces, read_block, with_blocks

BLOCKS = [
    (case.title, block.start.dialect, "".join(block.deltas))
    for case in cases()
    for block in with_blocks(events(case))
    if isinstance(block, Block)
]
blocks = st.sampled_from(BLOCKS)


def outcome(dialect: str, text: str, cuts: list[int]) -> object:
    found, fault = read_block(dialect, pieces(text, cuts))
    return found, fault.diagnostics if fault else ()


@settings(max_examples=example_count(300))
@given(blocks, st.data())
def test_a_block_is_read_the_same_however_it_is_cut(
    block: tuple[str, str, str], data: st.DataObject
) -> None:
    _, dialect, text = block
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    whole = outcome(dialect, text, [])
    assert outcome(dialect, text, cuts) == whole
    assert outcome(dialect, text, list(range(1, len(text)))) == whole


@settings(max_examples=example_count(300))
@given(st.sampled_from(sorted(READERS)), st.text(max_size=80), st.data())
def test_any_text_is_read_or_unreadable_and_statements_parse(
    dialect: str, text: str, data: st.DataObject
) -> None:
    _, _, block = data.draw(blocks)
    at = data.draw(st.integers(0, len(block)))
    found, _ = outcome(dialect, block[:at] + text + block[at:], [])  # type: ignore[misc]
    for statement in found:
        assert len(ast.parse(statement.source).body) == 1


@pytest.mark.parametrize(("title", "dialect", "text"), BLOCKS, ids=[title for title, *_ in BLOCKS])
def test_every_statement_is_one_statement_of_valid_python(
    title: str, dialect: str, text: str
) -> None:
    found, _ = outcome(dialect, text, [])  # type: ignore[misc]
    for statement in found:
        assert len(ast.parse(statement.source).body) == 1


# ---------------------------------------------------------------------------- when they are complete


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("get_time()", [], id="a call may continue in its line"),
        pytest.param("get_time()\n", [("get_time()", 1)], id="a simple statement ends its line"),
        pytest.param("get_time(\n", [], id="an open bracket"),
        pytest.param('x = """a\n', [], id="an open string"),
        pytest.param("x = 1 + \\\n", [], id="a continued line"),
        pytest.param("if x:\n    f()\n", [], id="a body may continue"),
        pytest.param("if x:\n    f()\n\n", [], id="a blank line does not end a body"),
        pytest.param("if x:\n    f()\nelse:\n", [], id="an else continues"),
        pytest.param(
            "if x:\n    f()\ny = 1\n",
            [("if x:\n    f()", 1), ("y = 1", 3)],
            id="the next statement closes a body",
        ),
        pytest.param("@cache\n", [], id="a decorator needs its function"),
        pytest.param("a = 1; b = 2\n", [("a = 1", 1), ("b = 2", 1)], id="semicolons"),
    ],
)
def test_a_statement_is_returned_when_it_is_certainly_complete(
    text: str, expected: list[tuple[str, int]]
) -> None:
    found = PythonReader(NAMES).feed(text)
    assert [(statement.source, statement.line) for statement in found] == expected


def test_after_a_fault_nothing_more_is_returned_and_close_reports_it() -> None:
    reader = PythonReader(NAMES)
    assert reader.feed("a = 1\nb = = 2\nget_time()\n") == [Statement("a = 1", 1)]
    with pytest.raises(Unreadable) as caught:
        reader.close()
    assert caught.value.diagnostics == (
        Diagnostic(
            "invalid Python",
            2,
            5,
            "b = = 2",
            "write plain Python, one statement on a line: name(argument=value)",
        ),
    )


# ---------------------------------------------------------------------------- the tables

#: One example for each row of REPAIRS, by the row's place.
REPAIRED = [
    ("get_time(tz\xa0=\u200b1)", "get_time(tz =1)"),
    ('get\\_time(tz="a\\_b")', 'get_time(tz="a_b")'),
    ("get_time(tz=“it's”)", """get_time(tz="it's")"""),
    ("get_time(tz=&quot;a&amp;b&quot;)", 'get_time(tz="a&b")'),
    ('"get_time("CET")"', 'get_time("CET")'),
    ('get_time(tz: "CET")', 'get_time(tz= "CET")'),
    ("let x = get_time()", "x = get_time()"),
]

#: One example for each row of REWRITES, by the row's place.
REWRITTEN = [
    ("x = [true, false, null]", ["x = [True, False, None]"]),
    (r"get_time(tz='\ud83d\ude00')", ["get_time(tz='\U0001f600')"]),
    ("functions.math.lcm(1, 2)", ["math_lcm(1, 2)"]),
    ("python\n", []),
    ('if __name__ == "__main__":\n    get_time()', ["get_time()"]),
    ("Result: fine", []),
    ("def get_time(tz):\n    return tz", []),
    ("from tools import get_time as now", ["now = get_time"]),
    ("'get_time()'", ["get_time()"]),
    ('{"name": "get_time", "arguments": {"tz": null}}', ["get_time(**{'tz': None})"]),
]


@pytest.mark.parametrize(("written", "read_as"), REPAIRED, ids=[row.why for row in REPAIRS])
def test_every_repair_of_text_has_an_example(written: str, read_as: str) -> None:
    assert [statement.source for statement in read("python", written, NAMES)] == [read_as]


@pytest.mark.parametrize(("written", "read_as"), REWRITTEN, ids=[row.why for row in REWRITES])
def test_every_rewrite_of_the_tree_has_an_example(written: str, read_as: list[str]) -> None:
    assert [statement.source for statement in read("python", written, NAMES)] == read_as


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\n",
        's = "“quoted” it’s \\\\_ &quot; true"\n',
        "print(get_time(), search('a'))\n",
        "print('Weather:', get_time())\n",
        "print(x, sep='')\n",
        "calls = [get_time(), search('a')]\n",
        "[get_time(), search('a')]\n",
        "[get_time(tz=t) for t in x]\n",
        "{'name': 'Alice', 'age': 3}\n",
        "re.search('a', 'b')\n",
        "def helper(tz):\n    return get_time(tz=tz)\n",
        "import json\n",
        "from math import sqrt as root\n",
        "class Point:\n    x = 1\n",
        "if __name__ == x:\n    pass\n",
        "asyncio.sleep(1)\n",
        "async def f():\n    await get_time()\n",
        "asyncio.run(f())\n",
        "'just text'\n",
        "d.invoke(1)\n",
        "a-b\n",
    ],
)
def test_plain_python_stays_unchanged(code: str) -> None:
    assert [statement.source for statement in read("python", code, NAMES)] == [code.rstrip("\n")]


# ---------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("written", "python_name"),
    [
        ("get_weather", "get_weather"),
        ("get\\_weather", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("default_api.get_weather", "get_weather"),
        ("math.lcm", "math_lcm"),
        ("math_lcm", "math_lcm"),
        ("tools.math.lcm", "math_lcm"),
        ("get-stock-price", "get_stock_price"),
        ("lcm", None),
        ("re.search", None),
        ("functions", None),
        ("", None),
    ],
)
def test_a_written_name_finds_its_function(written: str, python_name: str | None) -> None:
    assert ToolNames(NAMES).find(written) == python_name


def test_only_a_name_in_data_may_differ_in_case() -> None:
    """In Python it may be a class of the program."""
    reply = '{"name": "Get_Weather", "arguments": {"city": "Oslo"}}'
    [statement] = read("json", reply, ToolNames(NAMES))
    assert statement.source == "get_weather(**{'city': 'Oslo'})"
    assert ToolNames(NAMES).find("Get_Weather") is None


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("get_time()", True),
        ("x = [search(q) for q in qs]", True),
        ("def f():\n    return functions.get_time()", True),
        ("print('get_time()')", False),
        ("re.search('a')", False),
        ("get_time", False),
        ("get_time(", False),
    ],
)
def test_code_differs_from_documentation_by_its_calls(source: str, calls: bool) -> None:
    assert calls_tool(source, NAMES) is calls


@pytest.mark.parametrize(
    ("written", "read_as", "calls"),
    [
        ("max(a=1, b=2)", "max_(a=1, b=2)", True),
        ("max([1, 2])", "max_([1, 2])", True),
        ("max((x for x in xs))", "max((x for x in xs))", False),
        ("max(xs, key=lambda x: -x)", "max(xs, key=lambda x: -x)", False),
        ("top(x for x in xs)", "top_((x for x in xs))", True),
    ],
)
def test_a_built_in_keeps_the_calls_that_no_tool_of_its_name_accepts(
    written: str, read_as: str, calls: bool
) -> None:
    """BFCL offers a tool `sum`: prose with `sum(n * n for n in numbers)` in a fence was refused."""
    names = {"max": "max_", "top": "top_"}
    assert [statement.source for statement in read("python", written, names)] == [read_as]
    assert calls_tool(written, names) is calls


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("get_time(tz=", True),
        ('{"name": "math.lcm", ', True),
        ("get\\_time(", True),
        ("forget_time()", False),
        ("x = 1", False),
    ],
)
def test_a_broken_block_differs_from_documentation_by_its_names(text: str, mentions: bool) -> None:
    assert mentions_tool(text, NAMES) is mentions


def test_a_value_that_is_not_a_call_yields_none() -> None:
    names = ToolNames(NAMES)
    for value in (None, 3, "get_time", [], {}, {"name": "Alice"}, {"city": {"name": "Oslo"}}):
        assert list(find_calls(value, names)) == []


# ---------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("dialect", "text", "rendered"),
    [
        pytest.param(
            "python",
            'x = 1\nget_weather(city="Oslo" days=3)\n',
            "error: invalid Python: invalid syntax. Perhaps you forgot a comma?\n"
            " --> line 2\n"
            "  |\n"
            '2 | get_weather(city="Oslo" days=3)\n'
            "  |                  ^\n"
            "  = help: separate arguments with commas: name(a=1, b=2)",
            id="a missing comma",
        ),
        pytest.param(
            "python",
            "get_weather(city=Oslo\n",
            "error: invalid Python: '(' was never closed\n"
            " --> line 1\n"
            "  |\n"
            "1 | get_weather(city=Oslo\n"
            "  |            ^\n"
            "  = help: close every opening bracket before the line ends",
            id="an open bracket",
        ),
        pytest.param(
            "python",
            'get_weather(city="Os',
            "error: invalid Python: unterminated string literal\n"
            " --> line 1\n"
            "  |\n"
            '1 | get_weather(city="Os\n'
            "  |                  ^\n"
            "  = help: close the quote; escape quotes inside the text, "
            'or use """ for text over several lines',
            id="an open string",
        ),
        pytest.param(
            "json",
            '{"name": "get_time",\n "arguments": {"tz" "CET"}}',
            "error: invalid JSON: expecting ':' delimiter\n"
            " --> line 2\n"
            "  |\n"
            '2 |  "arguments": {"tz" "CET"}}\n'
            "  |                     ^\n"
            '  = help: write {"name": "function", "arguments": {"argument": value}}',
            id="broken JSON",
        ),
        pytest.param(
            "json",
            '{"name": "calculate", "arguments": {"a": 12',
            "error: the JSON is cut off\n"
            " --> line 1\n"
            "  |\n"
            '1 | {"name": "calculate", "arguments": {"a": 12\n'
            "  |                                            ^\n"
            "  = help: write the call again, complete",
            id="a number that may be truncated",
        ),
        pytest.param(
            "json",
            '{"name": "got time", "arguments": {}}',
            "error: no function is called 'got time'\n --> line 1",
            id="a name that is not valid",
        ),
    ],
)
def test_a_fault_names_its_place_and_the_correction(dialect: str, text: str, rendered: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(dialect, text, NAMES)
    assert render(caught.value.diagnostics) == rendered == str(caught.value)


def test_a_fault_in_a_very_long_line_shows_the_part_around_it() -> None:
    diagnostic = Diagnostic("m", 1, 500, "a" * 499 + "!" + "b" * 500)
    text, caret = diagnostic.render().splitlines()[3:5]
    assert len(text) < 120
    assert text[caret.index("^")] == "!"


def test_a_fault_without_its_line_takes_it_from_the_source() -> None:
    assert Diagnostic("m", 2, 1, "").render("a\nb\n") == "error: m\n --> line 2\n  |\n2 | b\n  | ^"


@pytest.mark.parametrize(
    ("dialect", "text", "message"),
    [
        ("python", f"f({'[' * 80}{']' * 80})", "invalid Python: brackets nested more than 60 deep"),
        ("python", "a = 1\n" * 5001, "invalid Python: more than 5000 statements"),
        ("python", ";".join(["a"] * 5001), "invalid Python: more than 5000 statements"),
        ("python", "x" * (MAX_BLOCK + 1), f"the code is longer than {MAX_BLOCK} characters"),
        ("json", "[" * 200 + "]" * 200, "JSON nested more than 100 deep"),
        ("json", " " * (MAX_BLOCK + 1), f"the block is longer than {MAX_BLOCK} characters"),
        ("yaml", "a" * 70_000, "the YAML is longer than 65536 characters"),
    ],
)
def test_a_block_beyond_a_limit_is_refused_with_the_limit(
    dialect: str, text: str, message: str
) -> None:
    with pytest.raises(Unreadable) as caught:
        read(dialect, text, NAMES)
    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [message]


LARGE = 1 << 15
HOSTILE = {
    "nested brackets": "get_time(" + "[" * LARGE + "]" * LARGE + ")",
    "nested calls": "get_time(" * LARGE,
    "open brackets": "(" * LARGE,
    "unary operators": "x = " + "-" * LARGE + "1",
    "nots": "x = " + "not " * (LARGE // 4) + "1",
    "a sum": "x = 1" + "+1" * (LARGE // 2),
    "attributes": "x" + ".a" * (LARGE // 2),
    "calls of calls": "f" + "()" * (LARGE // 2),
    "comparisons": "x" + "<1" * (LARGE // 2),
    "lambdas": "x = " + "lambda: " * (LARGE // 8) + "1",
    "nested ifs": "".join(" " * i + "if x:\n" for i in range(500)) + " " * 500 + "x\n",
    "elifs": "if x:\n    y\n" + "elif x:\n    y\n" * (LARGE // 14),
    "a long string": "get_time('" + "a" * LARGE + "')",
    "triple quotes": '"""' * (LARGE // 3),
    "null bytes": "\x00" * LARGE,
    "lone surrogates": "x = '" + "\ud800" * 100 + "'",
    "many statements": "a = 1\n" * (LARGE // 6),
    "semicolons": "a;" * (LARGE // 2),
    "a block too long": "x = 1\n" * (MAX_BLOCK // 6 + 1),
    "nested JSON": '{"name": "get_time", "arguments": ' + "[" * LARGE,
    "closed nested JSON": "[" * LARGE + "]" * LARGE,
    "nested XML": "<function=" * (LARGE // 10),
    "XML parameters": "<function=get_time>" + "<parameter=a>" * (LARGE // 13),
    "YAML aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
    "nested YAML": "name: get_time\narguments: " + "[" * 5000,
    "huge number": '{"name": "get_time", "arguments": {"a": ' + "9" * 5000 + "}}",
    "infinity": '{"name": "get_time", "arguments": {"a": 1e999}}',
}


@pytest.mark.parametrize("dialect", sorted(READERS))
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_or_unreadable_and_nothing_else(dialect: str, text: str) -> None:
    found, diagnostics = outcome(dialect, text, [])  # type: ignore[misc]
    assert all(isinstance(statement, Statement) for statement in found)
    assert all(diagnostic.message for diagnostic in diagnostics)
