"""Which operations look at a result, and so wait for it."""

from __future__ import annotations

import pytest

from emulator.programs.placeholders import prepare

TOOLS = frozenset({"get", "send"})

REWRITTEN: list[tuple[str, str, str]] = [
    (
        "a stored call is passed, a look waits; the host sees a placeholder among arguments",
        "hits = get('x')\ncheap = min(hits, key=lambda f: f['price'])\nsend(cheap['id'])",
        "hits = _look_got(_later_0_get('x'))\n"
        "cheap = min(_look_deep(hits), key=lambda f: _look_deep(f['price']))\n"
        "_look_got(_later_0_send(cheap['id']))",
    ),
    (
        "prints look at nothing",
        "a = get(1)\nprint(a, f'{a}', str(a), sep='')",
        "a = _look_got(_later_0_get(1))\nprint(a, f'{a}', str(a), sep='')",
    ),
    (
        "a print that can be seen looks",
        "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\n"
        "with redirect_stdout(out):\n    print(get(1))",
        "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\n"
        "with _look_deep(redirect_stdout(_look_deep(out))):\n"
        "    print(_look_deep(_look_got(_later_0_get(1))))",
    ),
    (
        "a condition looks at the value itself, a comparison of two deep into both",
        "a, b = get(1), get(2)\nwhile a and a == b and a > 1:\n    pass",
        "a, b = _together(1) or (_look_got(_later_1_get(1)), _look_got(_later_1_get(2)))\n"
        "while _look(_look(a) and _look_deep(a) == _look_deep(b) and (_look(a) > 1)):\n    pass",
    ),
    (
        "operands are evaluated before any is looked at, where evaluating them calls",
        "x = get(1) + get(2)",
        "x = ((_seen_1 := _look_got(_later_0_get(1))), (_seen_2 := _look_got(_later_0_get(2)))) "
        "and _look(_seen_1) + _look(_seen_2)",
    ),
    (
        "a list that grows is never a placeholder itself",
        "a = b = []\na.append(get(1))\nprint(len(b))\nsend(sum(b))",
        "a = b = []\na.append(_look_got(_later_0_get(1)))\nprint(len(b))\n"
        "_look_got(_later_0_send(sum(_look_deep(b))))",
    ),
    (
        "unpacking looks at what is unpacked, a tuple of calls is no placeholder",
        "a, b = get(1)\nfor c, d in a:\n    pass",
        "a, b = _look_items(_look_got(_later_0_get(1)))\nfor _seen_1 in _look_items(a):\n"
        "    c, d = _look_items(_seen_1)\n    pass",
    ),
    (
        "a function of the program's own is given placeholders and gives them",
        "def temp(city):\n    w = get(city)\n    return w\nt = temp(get(1))\nprint(t['c'])",
        "def temp(city):\n    w = _look_got(_later_0_get(city))\n    return w\n"
        "t = temp(_look_got(_later_0_get(1)))\nprint(_look(t)['c'])",
    ),
    (
        "one that is given away waits at its calls and looks at what it gives",
        "def cost(c):\n    return get(c)\nx = get(1)\ny = max([1, 2], key=cost)",
        "def cost(c):\n    return _look_deep(get(c))\nx = _look_got(_later_0_get(1))\n"
        "y = max([1, 2], key=cost)",
    ),
    (
        "what is added to is looked at, behind the call that adds to it",
        "x = get(1)\nx += get(2)",
        "x = _look_got(_later_0_get(1))\n_seen_1 = _look_got(_later_0_get(2))\n_look(x)\n"
        "x += _look_items(_seen_1)",
    ),
    ("a key is hashed", "d = {get(1): 2}", "d = {_look_deep(_look_got(_later_0_get(1))): 2}"),
    (
        "a program that could look behind names waits at each call",
        "x = get(1)\ny = locals()['x']",
        "x = get(1)\ny = locals()['x']",
    ),
    (
        "so does one whose error handling could catch the engine's words about a pause",
        "x = get(1)\ntry:\n    y = max([1], key=lambda q: x)\nexcept Exception:\n    pass",
        "x = get(1)\ntry:\n    y = max([1], key=lambda q: x)\nexcept Exception:\n    pass",
    ),
    (
        "and one in which a library looks at an item when it is asked for the next",
        "xs = [1]\nfor x in map(str, xs):\n    xs.append(get(1))",
        "xs = [1]\nfor x in map(str, xs):\n    xs.append(get(1))",
    ),
    (
        "a return ends the program",
        "if get(1):\n    return\nreturn get(2)\nsend(3)",
        "if _look(_look_got(_later_0_get(1))):\n    raise SystemExit\n_look_got(_later_0_get(2))",
    ),
]


@pytest.mark.parametrize(
    ("program", "expected"), [row[1:] for row in REWRITTEN], ids=[row[0] for row in REWRITTEN]
)
def test_a_program_is_rewritten_so_that_a_look_at_a_placeholder_pauses(
    program: str, expected: str
) -> None:
    assert prepare(program, TOOLS).source == expected


def test_lines_lead_back_to_the_program_as_it_was() -> None:
    program = "x = get(1)\n\n\nif x:\n    print(\n        x['a'])\n"
    prepared = prepare(program, frozenset({"get"}))
    source = prepared.source.splitlines()
    assert source == ["x = _look_got(_later_0_get(1))", "if _look(x):", "    print(_look(x)['a'])"]
    assert prepared.lines == {1: 1, 2: 4, 3: 5}
