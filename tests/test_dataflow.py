"""Which calls may go out before earlier results are known."""

from __future__ import annotations

import ast
import textwrap

import pytest

from emulator.dataflow import prepare

REWRITTEN: list[tuple[str, str, str]] = [
    (
        "a stored call is passed, a read waits",
        """
        hits = get("x")
        cheap = min(hits, key=lambda f: f["price"])
        send(cheap["id"])
        """,
        """
        hits = _later_get('x')
        _wait()
        cheap = min(hits, key=lambda f: f['price'])
        _wait()
        _later_send(cheap['id'])
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
            results.append({'city': city, 'weather': _later_get(city)})
        """,
    ),
    (
        "prints run only when all is known, and hold nothing up",
        """
        print(get("a"))
        print(f"b: {get('b')}", sep="")
        """,
        """
        _printed_1 = _later_get('a')
        if _ready():
            print(_printed_1)
        else:
            (_printed_1,)
        _printed_2 = _later_get('b')
        if _ready():
            print(f'b: {_printed_2}', sep='')
        else:
            (_printed_2,)
        """,
    ),
    (
        "a print that may fail waits",
        "w = get('a')\nprint(w['temp'])",
        "w = _later_get('a')\n_wait()\nprint(w['temp'])",
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
        a = _later_get(1)
        _wait()
        if a:
            pass
        else:
            _wait()
            if a > 2:
                _later_send(1)
        while _wait() or a:
            a = _later_get(3)
        """,
    ),
    (
        "a call inside an expression keeps its name: the driver stops at it",
        "x = get(1)['a']\nif get(2):\n    pass\ny = get(get(3))",
        "x = get(1)['a']\nif get(2):\n    pass\ny = _later_get(get(3))",
    ),
    (
        "unpacking needs the value, a tuple of calls does not",
        "a, b = get(1)\nc, d = get(2), get(3)",
        "a, b = get(1)\nc, d = (_later_get(2), _later_get(3))",
    ),
    (
        "an alias made before the call is read with care",
        "a = []\nb = a\nb.append(get(1))\nprint(len(a))",
        "a = []\n_wait()\nb = a\nb.append(_later_get(1))\n_wait()\nprint(len(a))",
    ),
    (
        "two names of one new list are one thing",
        "a = b = []\na.append(get(1))\nprint(len(b))",
        "a = b = []\na.append(_later_get(1))\n_wait()\nprint(len(b))",
    ),
    (
        "a container that holds a growing list is read with care",
        "a = []\nbox = [a]\na.append(get(1))\nprint(box[0])",
        "a = []\n_wait()\nbox = [a]\na.append(_later_get(1))\n_wait()\nprint(box[0])",
    ),
    (
        "a number made of a tainted list is none of it",
        "a = [get(1)]\nn = len(a)\nb = n\nsend(b)",
        "a = [_later_get(1)]\n_wait()\nn = len(a)\nb = n\n_later_send(b)",
    ),
    (
        "an element taken out of a copied list is still the list's",
        "ys = [r for r in rs]\ny = ys[0]\ny.append(get(1))\nprint(len(rs))",
        "_wait()\nys = [r for r in rs]\n_wait()\ny = ys[0]\ny.append(_later_get(1))\n_wait()\n"
        "print(len(rs))",
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
            _wait()
            w = _later_get(city)
            _wait()
            return w['temp']
        _wait()
        t = temp('a')
        """,
    ),
    (
        "a program that could look behind names waits at each call",
        "x = get(1)\ny = locals()['x']",
        "x = get(1)\ny = locals()['x']",
    ),
    (
        "a key is hashed, so it is read",
        "d = {get(1): get(2)}",
        "d = {get(1): _later_get(2)}",
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
            _wait()
            raise ValueError(a)
        except ValueError as error:
            _wait()
            b = error.args[0]
        b.append(_later_get(1))
        _wait()
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
        "class L:\n\n    def append(self, x):\n        print(x)\nl = L()\nl.append(get(1))",
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
    assert source == ["x = _later_get(1)", "_wait()", "if x:", "    _wait()", "    print(x['a'])"]
    assert prepared.lines == {1: 1, 2: 4, 3: 4, 4: 5, 5: 5}
