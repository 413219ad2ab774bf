"""Which calls may go out before earlier results are known."""

from __future__ import annotations

import ast
import textwrap

import pytest

from emulator.programs.placeholders import prepare

REWRITTEN: list[tuple[str, str, str]] = [
    (
        "a stored call is passed, a read waits",
        """
        hits = get("x")
        cheap = min(hits, key=lambda f: f["price"])
        send(cheap["id"])
        """,
        """
        hits = _later_1_get('x')
        _wait(1)
        cheap = min(hits, key=lambda f: f['price'])
        _wait(1)
        _later_2_send(cheap['id'])
        """,
    ),
    (
        "calls of a loop leave together, with the loop's own variable beside them",
        """
        results = []
        for city in ["a", "b"]:
            results.append({"city": city, "weather": get(city)})
        """,
        """
        results = []
        for city in ['a', 'b']:
            results.append({'city': city, 'weather': _later_1_get(city)})
        """,
    ),
    (
        "prints run only when all is known, and hold nothing up",
        """
        print(get("a"))
        print(f"b: {get('b')}", sep="")
        """,
        """
        _printed_1 = _later_1_get('a')
        if _ready(1):
            print(_printed_1)
        else:
            (_printed_1,)
        _printed_2 = _later_2_get('b')
        if _ready(2):
            print(f'b: {_printed_2}', sep='')
        else:
            (_printed_2,)
        """,
    ),
    (
        "a print that may fail waits",
        "w = get('a')\nprint(w['temp'])",
        """
        w = _later_1_get('a')
        _wait(1)
        print(w['temp'])
        """,
    ),
    (
        "a condition waits in front, the test of a while on each round",
        """
        a = get(1)
        if a:
            pass
        elif a > 2:
            send(1)
        while a:
            a = get(3)
        """,
        """
        a = _later_1_get(1)
        _wait(1, 2)
        if a:
            pass
        else:
            _wait(1, 2)
            if a > 2:
                _later_3_send(1)
        while _wait(1, 2) or a:
            a = _later_2_get(3)
        """,
    ),
    (
        "a call inside an expression keeps its name: the driver stops at it",
        "x = get(1)['a']\nif get(2):\n    pass\ny = get(get(3))",
        """
        x = get(1)['a']
        if get(2):
            pass
        y = _later_1_get(get(3))
        """,
    ),
    (
        "unpacking needs the value, a tuple of calls does not",
        "a, b = get(1)\nc, d = get(2), get(3)",
        "a, b = get(1)\n_together(1)\nc, d = (_later_1_get(2), _later_1_get(3))",
    ),
    (
        "an alias made before the call is read with care",
        "a = []\nb = a\nb.append(get(1))\nprint(len(a))",
        """
        a = []
        _wait(1)
        b = a
        b.append(_later_1_get(1))
        _wait(1)
        print(len(a))
        """,
    ),
    (
        "two names of one new list are one thing",
        "a = b = []\na.append(get(1))\nprint(len(b))",
        """
        a = b = []
        a.append(_later_1_get(1))
        _wait(1)
        print(len(b))
        """,
    ),
    (
        "a container that holds a growing list is read with care",
        "a = []\nbox = [a]\na.append(get(1))\nprint(box[0])",
        """
        a = []
        _wait(1)
        box = [a]
        a.append(_later_1_get(1))
        _wait(1)
        print(box[0])
        """,
    ),
    (
        "a number made of a tainted list is none of it",
        "a = [get(1)]\nn = len(a)\nb = n\nsend(b)",
        """
        a = [_later_1_get(1)]
        _wait(1)
        n = len(a)
        b = n
        _later_2_send(b)
        """,
    ),
    (
        "an element taken out of a copied list is still the list's",
        "ys = [r for r in rs]\ny = ys[0]\ny.append(get(1))\nprint(len(rs))",
        """
        _wait(1)
        ys = [r for r in rs]
        _wait(1)
        y = ys[0]
        y.append(_later_1_get(1))
        _wait(1)
        print(len(rs))
        """,
    ),
    (
        "a helper function waits inside",
        """
        def temp(city):
            w = get(city)
            return w["temp"]
        t = temp("a")
        """,
        """
        def temp(city):
            _wait(1)
            w = _later_1_get(city)
            _wait(1)
            return w['temp']
        _wait(1)
        t = temp('a')
        """,
    ),
    (
        "a program that could look behind names waits at each call",
        "x = get(1)\ny = locals()['x']",
        """
        x = get(1)
        y = locals()['x']
        """,
    ),
    (
        "calls in a loop over results that are known leave together",
        """
        offers = [get(i) for i in items]
        orders = []
        for offer in offers:
            best = min(offer)
            orders.append(send(best))
        print(orders[0])
        """,
        """
        _together(1)
        offers = [_later_1_get(i) for i in items]
        orders = []
        _wait(1)
        for offer in offers:
            _wait(1)
            best = min(offer)
            _wait(1)
            orders.append(_later_2_send(best))
        _wait(2)
        print(orders[0])
        """,
    ),
    (
        "a key is hashed, so it is read",
        "d = {get(1): get(2)}",
        "d = {get(1): _later_1_get(2)}",
    ),
    (
        "what was raised is caught under another name",
        """
        try:
            raise ValueError(a)
        except ValueError as error:
            b = error.args[0]
        b.append(get(1))
        print(len(a))
        """,
        """
        try:
            _wait(1)
            raise ValueError(a)
        except ValueError as error:
            _wait(1)
            b = error.args[0]
        b.append(_later_1_get(1))
        _wait(1)
        print(len(a))
        """,
    ),
    (
        "a print whose call stands behind a name keeps its order",
        "print(a, get(1))",
        "print(a, get(1))",
    ),
    (
        "a class may look at what it is given",
        "class L:\n    def append(self, x):\n        print(x)\nl = L()\nl.append(get(1))",
        """
        class L:

            def append(self, x):
                print(x)
        l = L()
        l.append(get(1))
        """,
    ),
]


@pytest.mark.parametrize(
    ("program", "expected"), [row[1:] for row in REWRITTEN], ids=[row[0] for row in REWRITTEN]
)
def test_a_program_is_rewritten_so_that_no_call_can_depend_on_a_placeholder(
    program: str, expected: str
) -> None:
    tree = ast.parse(textwrap.dedent(program))
    assert prepare(tree, {"get", "send"}).source == textwrap.dedent(expected).strip()


def test_lines_lead_back_to_the_program_as_it_was() -> None:
    program = "x = get(1)\n\n\nif x:\n    print(\n        x['a'])\n"
    prepared = prepare(ast.parse(program), {"get"})
    source = prepared.source.splitlines()
    assert source == [
        "x = _later_1_get(1)",
        "_wait(1)",
        "if x:",
        "    _wait(1)",
        "    print(x['a'])",
    ]
    assert prepared.lines == {1: 1, 2: 4, 3: 4, 4: 5, 5: 5}
