"""A result that is a number is its text where it is printed, formatted, joined or compared as text, and its
value where it is used as a number. Booleans and null are Python's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.programs.driver import Driver
from emulator.programs.program import CallRecord, Program
from emulator.programs.saved import with_result
from emulator.reading.readers import Statement
from emulator.tools.toolset import Toolset
from sandbox.programs.server import ProgramServer
from tests.support.chat import plain
from tests.support.examples import example_count
from tests.support.programs import result
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings


def _typed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return function(name, {"type": "object", "properties": {"x": schema}, "required": ["x"]})


TOOLS = [
    function("get", strings("key")),
    function("note", strings("text")),
    _typed("any_type", {}),
    _typed("number", {"type": "number"}),
    _typed("boolean", {"type": "boolean"}),
    _typed("texts", {"type": "array", "items": {"type": "string"}}),
    _typed("numbers", {"type": "array", "items": {"type": "number"}}),
    _typed("text_or_null", {"type": ["string", "null"]}),
    _typed("version", {"enum": ["1.10", "3.10"]}),
]
VALUES = {
    "v": "1.10", "w": "3.10", "w1": "3.1", "big": "12345678901234567890.0", "e": "1e5", "minus": "-0",
    "t": "true", "f": "false", "null": "null", "nine": "9.50", "ten": "10.50", "zero": "0.00",
    "line": "42\n", "seven": "7", "object": '{"n": 1.5}', "list": "[1, 2]", "text": '"x"',
}  # fmt: skip
R = "r = get('v')\n"
USES: list[tuple[str, Any]] = [
    # As text
    (R + "note(f'v{r}')", "v1.10"),
    (R + "note(f'{r:>6}|')", "  1.10|"),
    (R + "note(f'{r!r}')", "1.10"),
    (R + "note(str(r))", "1.10"),
    (R + "note('v%s' % r)", "v1.10"),
    (R + "note('{} {x}'.format(r, x=r))", "1.10 1.10"),
    (R + "note(r)", "1.10"),
    (R + "note(r.split('.')[1])", "10"),
    ("note(', '.join([get('v'), get('seven')]))", "1.10, 7"),
    ("note(', '.join(get(k) for k in ('e', 'big', 'minus')))", "1e5, 12345678901234567890.0, -0"),
    ("xs = [get(k) for k in ('v', 'seven')]\nnote(' '.join(f'{x}' for x in xs))", "1.10 7"),
    ("d = {k: get(k) for k in ('v', 't')}\nfor k, x in d.items():\n    note(f'{k}={x}')", "v=1.10"),
    ("def f(k):\n    return get(k)\nnote(f'{f(\"t\")}')", "True"),
    ("import asyncio\nasync def main():\n    a, b = await asyncio.gather(get('v'), get('null'))\n"
     "    note(f'{a} {b} {a * 2}')\nasyncio.run(main())", "1.10 None 2.2"),
    (R + "note(f'{r} {r * 2:.2f}')", "1.10 2.20"),
    ("note(f\"{get('null')}, {get('t')}\")", "None, True"),
    ("note('yes' if get('w') == '3.10' else 'no')", "yes"),
    ("note('yes' if get('w') in ('3.1', '3.2') else 'no')", "no"),
    ("note('yes' if get('w') in ('1.10', '3.10') else 'no')", "yes"),
    ("note('yes' if get('t') == 'true' else 'no')", "no"),
    ("a = get('w')\nb = get('w1')\nnote('same' if a == b else 'other')", "other"),
    ("a = get('w')\nb = get('w')\nnote('same' if a == b else 'other')", "same"),
    ("note('same' if get('w') in [get('w1')] else 'other')", "other"),
    (R + "note({'1.10': 'found', '1.1': 'no'}[r])", "found"),
    (R + "note({'1.10': 'found'}.get(r, 'no'))", "found"),
    (R + "d = {}\nd[r] = 'x'\nnote(', '.join(f'{k}: {d[k]}' for k in d))", "1.10: x"),
    ("note(', '.join(sorted({get(k) for k in ('w', 'v')})))", "1.10, 3.10"),
    ("note(f\"{max([get('nine'), get('ten')])} of {get('nine')}\")", "10.50 of 9.50"),
    ("note(' '.join(sorted([get('ten'), get('nine')])))", "9.50 10.50"),
    ("xs = [get('ten'), get('nine')]\nxs.sort()\nnote(' '.join(xs))", "9.50 10.50"),
    ("d = {k: get(k) for k in ('ten', 'nine')}\nk = max(d, key=d.get)\nnote(f'{k}: {d[k]}')", "ten: 10.50"),
    ("d = {k: get(k) for k in ('ten', 'nine')}\nk, x = min(d.items(), key=lambda p: p[1])\nnote(f'{k}: {x}')",
     "nine: 9.50"),
    # As a number, a boolean or null
    (R + "any_type(r * 2)", 2.2),
    (R + "any_type(-r)", -1.1),
    (R + "any_type(round(r))", 1),
    (R + "any_type(int(r))", 1),
    (R + "any_type(float(r) + r)", 2.2),
    (R + "any_type(1 + r)", 2.1),
    (R + "note(f'{r:.3f}')", "1.100"),
    (R + "note('%.3f|%s' % (r, r))", "1.100|1.10"),
    (R + "note('{:.1f}'.format(r))", "1.1"),
    (R + "r *= 2\nany_type(r)", 2.2),
    (R + "n = 0\nn += r\nn += 1\nany_type(n)", 2.1),
    ("any_type(get('nine') + get('ten'))", 20.0),
    ("any_type(sum(get(k) for k in ('nine', 'ten')))", 20.0),
    ("d = {k: get(k) for k in ('nine', 'ten')}\nany_type(sum(d.values()))", 20.0),
    ("import math\nany_type(math.floor(get('nine')))", 9),
    ("any_type(get('nine') < get('ten'))", True),
    ("any_type(get('w') > 3)", True),
    ("any_type(get('w') == 3.1)", True),
    ("n = 3.1\nany_type(get('w') == n)", True),
    ("w = get('w')\nany_type([w != 3.1, w in (3.1, 2), 3 < w < 4])", [False, True, True]),
    ("any_type([get('null') is None, get('t') is True, get('f') == False])", [True, True, True]),
    ("any_type(['no' if not get(k) else 'yes' for k in ('f', 'null', 'zero', 't')])",
     ["no", "no", "no", "yes"]),
    ("note(get('null') or 'nothing')", "nothing"),
    ("note(get('v') or 'nothing')", "1.10"),
    ("any_type([any([get('f'), get('null')]), all([get('t'), get('f')])])", [False, False]),
    ("any_type(any(get(k) for k in ('f', 'zero')))", False),
    ("any_type(list(filter(None, [get('f'), get('t')])))", [True]),
    ("any_type([get('t'), get('f'), get('t')].count(True))", 2),
    ("any_type(None in [get('null'), get('v')])", True),
    ("note({True: 'on', False: 'off'}[get('f')])", "off"),
    ("names = {42: 'x'}\nn = get('line')\nnote(names[n])", "x"),
    ("any_type(list(range(get('line')))[-1])", 41),
    ("import json\nany_type(json.loads(get('v')) + 1)", 2.1),
    ("import json\nnote(json.dumps({'v': get('v'), 'ok': get('t')}))", '{"v": 1.1, "ok": true}'),
    (R + "any_type([isinstance(r, float), isinstance(r, str)])", [True, False]),
    # What is made of a result's type is of the base type
    ("from statistics import mean\nany_type(mean([get(k) for k in ('nine', 'ten')]))", 10.0),
    ("from statistics import mean, median\n"
     "any_type(mean([get('seven'), get('line'), median([get('zero')])]))",
     49 / 3),
    (R + "any_type(type(r)(2.5) * 2)", 5.0),
    (R + "note(str(r.__class__('2.50')))", "2.5"),
    (R + "import copy\nnote(f'{copy.copy(r)} {copy.deepcopy([r])}')", "1.1 [1.1]"),
    (R + "import pickle\nnote(str(pickle.loads(pickle.dumps({'r': r}))))", "{'r': 1.1}"),
    (R + "from fractions import Fraction\nfrom decimal import Decimal\n"
     "note(f'{Fraction(r) * 0} {Decimal(str(r))}')",
     "0 1.10"),
    ("n = get('seven')\n"
     "any_type([n.bit_length(), type(n).from_bytes(b'1'), n.__class__(3) + 1, n.real + n.imag])",
     [3, 49, 4, 7]),
    ("d = get('object')\nany_type([d.fromkeys('a', 1), d.__class__(b=2), d.copy(), {**d}])",
     [{"a": 1}, {"b": 2}, {"n": 1.5}, {"n": 1.5}]),
    ("import copy, pickle\nxs = get('list')\nany_type([copy.copy(xs), copy.deepcopy(xs), xs.copy(), xs[:1], "
     "type(xs)('ab'), pickle.loads(pickle.dumps(xs))])", [[1, 2], [1, 2], [1, 2], [1], ["a", "b"], [1, 2]]),
    ("import copy, pickle\nt = get('text')\nnote(copy.copy(t) + type(t)(1) + pickle.loads(pickle.dumps(t)))",
     "x1x"),
    # A number is no sequence
    ("from collections.abc import Iterable, Sized, Container\nr = get('v')\n"
     "any_type([isinstance(r, t) for t in (Iterable, Sized, Container)])", [False, False, False]),
    ("def flatten(x):\n    return [z for y in x for z in flatten(y)] if hasattr(x, '__iter__') else [x]\n"
     "any_type(flatten([get('seven'), [get('line')]]))", [7, 42]),
    (R + "any_type([hasattr(r, n) for n in ('__len__', '__iter__', '__getitem__')])", [False] * 3),
    *((R + f"try:\n    x = {use}\nexcept Exception as e:\n    note(type(e).__name__)", error)
      for use, error in (("'a' + r", "TypeError"), ("r + 'a'", "TypeError"), ("len(r)", "TypeError"),
                         ("r[0]", "TypeError"), ("list(r)", "TypeError"), ("'1' in r", "TypeError"))),
    # Future imports
    ("from __future__ import annotations\ndef f(x: Missing) -> Missing:\n    return x\n"
     "note(f(get('text')))", "x"),
    ("from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Node:\n"
     "    value: int\n    next: Node | None = None\nany_type(Node(get('seven'), Node(1)).next.value)", 1),
]  # fmt: skip
ARGUMENTS: list[tuple[str, Any]] = [
    ("any_type(get('v'))", 1.1),
    ("any_type({'v': [get('v')], 'ok': get('t'), 'own': '1.10'})", {"v": [1.1], "ok": True, "own": "1.10"}),
    ("number(get('v'))", 1.1),
    ("number(get('e'))", 100000.0),
    ("boolean(get('t'))", True),
    ("texts([get('v'), get('t'), 'x'])", ["1.10", "true", "x"]),
    ("numbers([get('v'), get('seven')])", [1.1, 7]),
    ("text_or_null(get('null'))", None),
    ("text_or_null(get('v'))", "1.10"),
    ("version(get('v'))", "1.10"),
    ("note(get('minus'))", "-0"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "sent"), [*USES, *ARGUMENTS])
def test_a_result_is_its_text_or_its_value(
    client: openai.OpenAI, upstream: ScriptedUpstream, program: str, sent: Any
) -> None:
    assert _sent(client, upstream, program) == sent


_DIGITS = st.text("0123456789", min_size=1, max_size=6)
SPELLINGS = st.one_of(
    st.sampled_from(["true", "false", "null", "-0", "0.0", "1e5", "2E-3", "12345678901234567890.0"]),
    st.builds("{}{}.{}{}".format, st.sampled_from(["", "-"]), st.integers(0, 9999), _DIGITS,
              st.sampled_from(["", "0", "\n", "e2"])),
    st.integers(-999, 999).map(str),
)  # fmt: skip
FLOWS = (
    "r = get('a')",
    "r = [get('a')][0]",
    "d = {'k': get('a')}\nr = d['k']",
    "def f(x):\n    return x\nr = f(get('a'))",
    "r = [get(k) for k in ('a', 'a')][1]",
    "for r in [get('a')]:\n    pass",
    "r = (lambda x: x)(get('a'))",
    "import asyncio\nasync def main():\n    return await asyncio.gather(get('a'), get('a'))\n"
    "r = asyncio.run(main())[0]",
)
OPERATIONS: dict[str, Callable[[str, Any], Any]] = {
    "f'<{r}>'": lambda text, _: f"<{text}>",
    "f'{r:>12}'": lambda text, _: f"{text:>12}",
    "'<%s>' % (r,)": lambda text, _: f"<{text}>",
    "'<{}>'.format(r)": lambda text, _: f"<{text}>",
    "', '.join([r, 'x'])": lambda text, _: f"{text}, x",
    "str(r)": lambda text, _: text,
    "r.split('.')": lambda text, _: text.split("."),
    "r == TEXT": lambda *_: True,
    "r in (TEXT, 'x')": lambda *_: True,
    "{TEXT: 1}[r]": lambda *_: 1,
    "r * 2": lambda _, value: value * 2,
    "r - 1": lambda _, value: value - 1,
    "2 + r": lambda _, value: 2 + value,
    "-r": lambda _, value: -value,
    "abs(r) + r": lambda _, value: abs(value) + value,
    "int(r)": lambda _, value: int(value),
    "round(r, 1)": lambda _, value: round(value, 1),
    "r > 3": lambda _, value: value > 3,
    "r == VALUE": lambda *_: True,
    "r == 77777": lambda _, value: value == 77777,
    "r in (VALUE, None)": lambda *_: True,
    "f'{r:.2f}'": lambda _, value: f"{value:.2f}",
    "sum([r, r])": lambda _, value: value + value,
    "max([r, 5]) * 1": lambda _, value: max(value, 5) * 1,
    "sorted([r, 5], key=lambda n: -n)[0] * 1": lambda _, value: max(value, 5) * 1,
    "bool(r)": lambda _, value: bool(value),
    "'y' if r else 'n'": lambda _, value: "y" if value else "n",
    "not r": lambda _, value: not value,
    "r is None": lambda _, value: value is None,
    "any([r, 0])": lambda _, value: bool(value),
}


@pytest.fixture(scope="module")
def driver(programs: ProgramServer) -> Driver:
    return Driver(programs, Toolset.parse(TOOLS))


@settings(max_examples=example_count(300))
@given(SPELLINGS, st.sampled_from(FLOWS), st.sampled_from(list(OPERATIONS)))
def test_any_spelling_is_its_text_or_its_value(
    driver: Driver, text: str, flow: str, operation: str
) -> None:
    value = json.loads(text)
    written = operation.replace("TEXT", repr(text)).replace("VALUE", repr(value))
    if isinstance(value, bool | None):
        try:
            expected = eval(written, {"r": value})
        except (TypeError, AttributeError, LookupError):
            return
    else:
        expected = OPERATIONS[operation](text, value)
    program = Program((Statement(f"{flow}\nprint(repr({written}))", 1),))
    recorded: list[CallRecord] = []
    while (outcome := driver.run(program, recorded)).pending:
        recorded += [CallRecord(call) for call in outcome.calls]
        recorded = [each if each.known else with_result(each, text) for each in recorded]
    assert outcome.output == repr(expected)


def _sent(client: openai.OpenAI, upstream: ScriptedUpstream, program: str) -> Any:
    """The argument of the first call that is not of `get`."""
    upstream.reply(f"```tool_code\n{program}\n```")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    for _ in range(6):
        message = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            arguments = json.loads(call.function.arguments)
            if call.function.name != "get":
                return arguments.get("text", arguments.get("x"))
            messages.append(result(call, VALUES[arguments["key"]]))
    raise AssertionError(message.content)
