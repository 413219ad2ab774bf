"""Which operations inspect a result, and so wait for it."""

from __future__ import annotations

import pytest

from emulator.programs.rewrite import rewrite

TOOLS = frozenset({"get", "send"})

REWRITTEN: list[tuple[str, str, str]] = [
    (
        "storing a result does not wait, inspecting it does; the host checks arguments",
        "hits = get('x')\ncheap = min(hits, key=lambda f: f['price'])\nsend(cheap['id'])",
        "hits = _check_result(_deferred_0_get('x'))\n"
        "cheap = min(_check_deep(hits), key=lambda f: _check_deep(f['price']))\n"
        "_check_result(_deferred_0_send(_check(cheap)['id']))",
    ),
    (
        "print inspects nothing",
        "a = get(1)\nprint(a, f'{a}', str(a), sep='')",
        "a = _check_result(_deferred_0_get(1))\nprint(a, f'{a}', str(a), sep='')",
    ),
    (
        "print inspects if the program can read its output",
        "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\n"
        "with redirect_stdout(out):\n    print(get(1))",
        "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\n"
        "with _check_deep(redirect_stdout(_check_deep(out))):\n"
        "    print(_check_deep(_check_result(_deferred_0_get(1))))",
    ),
    (
        "a condition inspects the value itself, a comparison of two inspects both deep",
        "a, b = get(1), get(2)\nwhile a and a == b and a > 1:\n    pass",
        "a, b = _batch(1) or (_check_result(_deferred_1_get(1)), _check_result(_deferred_1_get(2)))\n"
        "while _check(_check(a) and _check_deep(a) == _check_deep(b) and (_check(a) > 1)):\n    pass",
    ),
    (
        "operands are evaluated before any is inspected, if evaluating them calls",
        "x = get(1) + get(2)",
        "x = ((_value_1 := _check_result(_deferred_0_get(1))), "
        "(_value_2 := _check_result(_deferred_0_get(2)))) and _check(_value_1) + _check(_value_2)",
    ),
    (
        "a list is inspected itself by its methods, deep by sum",
        "a = []\na.append(get(1))\nprint(len(a))\nsend(sum(a))",
        "a = []\n_check(a).append(_check_result(_deferred_0_get(1)))\nprint(len(_check(a)))\n"
        "_check_result(_deferred_0_send(sum(_check_deep(a))))",
    ),
    (
        "unpacking inspects the items, a tuple of calls is no placeholder",
        "a, b = get(1)\nfor c, d in a:\n    pass",
        "a, b = _check_items(_check_result(_deferred_0_get(1)))\nfor _value_1 in _check_items(a):\n"
        "    c, d = _check_items(_value_1)\n    pass",
    ),
    (
        "a function of the program accepts and returns placeholders",
        "def temp(city):\n    w = get(city)\n    return w\nt = temp(get(1))\nprint(t['c'])",
        "def temp(city):\n    w = _check_result(_deferred_0_get(city))\n    return w\n"
        "t = temp(_check_result(_deferred_0_get(1)))\nprint(_check(t)['c'])",
    ),
    (
        "a callback waits at its calls and inspects what it returns",
        "def cost(c):\n    return get(c)\nx = get(1)\ny = max([1, 2], key=cost)",
        "def cost(c):\n    return _check_deep(get(c))\nx = _check_result(_deferred_0_get(1))\n"
        "y = max([1, 2], key=cost)",
    ),
    (
        "an augmented assignment inspects the old value, after the call on its right",
        "x = get(1)\nx += get(2)",
        "x = _check_result(_deferred_0_get(1))\n_value_1 = _check_result(_deferred_0_get(2))\n_check(x)\n"
        "x += _check_items(_value_1)",
    ),
    (
        "a key is hashed",
        "d = {get(1): 2}",
        "d = {_check_deep(_check_result(_deferred_0_get(1))): 2}",
    ),
    (
        "a program that uses reflection waits at each call",
        "x = get(1)\ny = locals()['x']",
        "x = get(1)\ny = locals()['x']",
    ),
    (
        "so does one that may catch the engine's error about a pause",
        "x = get(1)\ntry:\n    y = max([1], key=lambda q: x)\nexcept Exception:\n    pass",
        "x = get(1)\ntry:\n    y = max([1], key=lambda q: x)\nexcept Exception:\n    pass",
    ),
    (
        "and one in which a library inspects items lazily",
        "xs = [1]\nfor x in map(str, xs):\n    xs.append(get(1))",
        "xs = [1]\nfor x in map(str, xs):\n    xs.append(get(1))",
    ),
    (
        "a list that grows is checked where the iterable of a comprehension makes calls",
        "names = []\npairs = [(n, x) for n, x in zip(names, [get(n) for n in names])]",
        "names = []\npairs = [(n, x) for n, x in zip(_check_items(names), "
        "_batch(1) or [_check_result(_deferred_1_get(n)) for n in _check_items(names)])]",
    ),
    (
        "but a program waits if these calls could change what was checked deep",
        "x = get(1)\nys = [y for y in sorted(x, key=get(2))]",
        "x = get(1)\nys = [y for y in sorted(x, key=get(2))]",
    ),
    (
        "a starred argument is inspected deeper than an argument",
        "x = [get(1), get(2)]\ny = zip(*x)",
        "x = _batch(1) or [_check_result(_deferred_1_get(1)), _check_result(_deferred_1_get(2))]\n"
        "y = zip(*_check_deep(x))",
    ),
    (
        "a return ends the program",
        "if get(1):\n    return\nreturn get(2)\nsend(3)",
        "if _check(_check_result(_deferred_0_get(1))):\n    raise SystemExit\n"
        "_check_result(_deferred_0_get(2))",
    ),
]


@pytest.mark.parametrize(
    ("program", "expected"), [row[1:] for row in REWRITTEN], ids=[row[0] for row in REWRITTEN]
)
def test_a_program_is_rewritten_so_that_inspecting_a_placeholder_pauses(
    program: str, expected: str
) -> None:
    assert rewrite(program, TOOLS).source == expected


def test_lines_lead_back_to_the_program_as_it_was() -> None:
    program = "x = get(1)\n\n\nif x:\n    print(\n        x['a'])\n"
    rewritten = rewrite(program, frozenset({"get"}))
    source = rewritten.source.splitlines()
    assert source == [
        "x = _check_result(_deferred_0_get(1))",
        "if _check(x):",
        "    print(_check(x)['a'])",
    ]
    assert rewritten.lines == {1: 1, 2: 4, 3: 5}
