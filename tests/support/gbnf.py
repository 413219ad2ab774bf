"""GBNF, read as llama.cpp does: whether a grammar admits a text, and random texts of it.

Source: llama.cpp, grammars/README.md and src/llama-grammar.cpp: a text is read a character at a time by all
stacks of what may still come.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import cache

_TOKEN = re.compile(
    r"""
      (?P<literal> " (?: [^"\\\n] | \\. )* " )
    | (?P<set>     \[ (?: [^\]\\\n] | \\. )+ \] )
    | (?P<name>    [a-zA-Z] [a-zA-Z0-9-]* )
    | (?P<count>   \{ (\d+) (,?) (\d*) \} | [?*+] )
    | (?P<sign>    [()|] )
    | (?P<blank>   [ ]+ )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([nrt"\\\[\]]))')
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
MOST_REPEATED = 2000
"""Above it llama.cpp refuses a grammar (MAX_REPETITION_THRESHOLD)."""


@dataclass(frozen=True, eq=False)
class Node:
    """A character of a set, a rule's name, or parts: one of them, or all in a row; so often."""

    ranges: tuple[tuple[int, int], ...] = ()
    negated: bool = False
    name: str = ""
    parts: tuple[Node, ...] = ()
    is_choice: bool = False
    least: int = 1
    most: int | None = 1

    def takes(self, character: str) -> bool:
        inside = any(low <= ord(character) <= high for low, high in self.ranges)
        return inside is not self.negated


Stack = tuple["Node", int, "Stack"] | None
"""What may still come: a node, how often it has been read, and what comes behind it."""


@dataclass
class Grammar:
    """A parsed grammar. Raises `AssertionError` for a malformed one."""

    text: str
    rules: dict[str, Node] = field(default_factory=dict)
    _steps: dict[tuple[frozenset[Stack], str], set[Stack]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.text.splitlines():
            name, _, body = line.partition(" ::= ")
            assert name not in self.rules, f"{name} twice"
            self.rules[name] = _parsed(body)
        for node in self._all():
            assert not node.name or node.name in self.rules, f"{node.name} is not there"

    def _all(self) -> list[Node]:
        found, waiting = [], list(self.rules.values())
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(node.parts)
        return found

    def admits(self, text: str) -> bool:
        """Whether `text` as a whole is a reply that the grammar admits."""
        return None in self.read(self.begun(), text)

    def begun(self) -> set[Stack]:
        """The stacks in front of a text."""
        return self._open({(self.rules["root"], 0, None)})

    def read(self, stacks: set[Stack], text: str) -> set[Stack]:
        """The stacks behind `text`; none where it cannot go on so, None among them where it can end."""
        for character in text:
            if not stacks:
                break
            step = (frozenset(stacks), character)
            if step not in self._steps:
                self._steps[step] = self._open(
                    self._behind(stack) for stack in stacks if stack and stack[0].takes(character)
                )
            stacks = self._steps[step]
        return stacks

    @staticmethod
    def _behind(stack: Stack) -> Stack:
        assert stack is not None
        node, read, rest = stack
        if read + 1 == node.most:
            return rest  # so that rules that end in rules do not pile up
        return (node, read + 1, rest)

    def _open(self, stacks: object) -> set[Stack]:
        """The stacks, each with a set of characters on top; None for one that is at its end."""
        seen: set[Stack] = set()
        waiting: list[Stack] = list(stacks)  # type: ignore[call-overload]
        found: set[Stack] = set()
        while waiting:
            stack = waiting.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if stack is None:
                found.add(stack)
                continue
            node, read, rest = stack
            if read >= node.least:
                waiting.append(rest)
            if node.most is not None and read >= node.most:
                continue
            # What is read of an endless repetition is counted no further than it matters.
            again: Stack = (node, min(read, node.least), rest) if node.most is None else stack
            if node.ranges or node.negated:
                found.add(again)
                continue
            behind = self._behind(again)
            if node.name:
                waiting.append((self.rules[node.name], 0, behind))
            elif node.is_choice:
                waiting.extend((part, 0, behind) for part in node.parts)
            else:
                for part in reversed(node.parts):
                    behind = (part, 0, behind)
                waiting.append(behind)
        return found

    def sample(self, chance: random.Random, deep: int = 40) -> str:
        """A random text of the grammar, which ends soon."""
        return "".join(self._written(self.rules["root"], chance, deep))

    def _written(self, node: Node, chance: random.Random, deep: int) -> list[str]:
        most = node.most if node.most is not None else node.least + 6
        usual = min(most, node.least + 6)
        times = (
            node.least
            if deep <= 0
            else most
            if chance.random() < 0.1
            else chance.randint(node.least, usual)
        )
        written: list[str] = []
        for _ in range(times):
            if node.ranges or node.negated:
                written.append(_character(node, chance))
            elif node.name:
                written += self._written(self.rules[node.name], chance, deep - 1)
            elif node.is_choice:
                written += self._written(self._chosen(node, chance, deep), chance, deep - 1)
            else:
                for part in node.parts:
                    written += self._written(part, chance, deep - 1)
        return written

    def _chosen(self, node: Node, chance: random.Random, deep: int) -> Node:
        if deep > 0:
            return chance.choice(node.parts)
        return min(node.parts, key=lambda part: self._height[id(part)])

    @property
    def _height(self) -> dict[int, float]:
        if not hasattr(self, "_heights"):
            self._heights = self._measured()
        return self._heights

    def _measured(self) -> dict[int, float]:
        """How deep the shallowest text of each node is."""
        nodes = self._all()
        heights = {id(node): float("inf") for node in nodes}
        changed = True
        while changed:
            changed = False
            for node in nodes:
                inner = [heights[id(part)] for part in node.parts]
                if node.name:
                    inner = [heights[id(self.rules[node.name])]]
                own = (
                    0.0
                    if node.least == 0 or not inner
                    else 1 + (min if node.is_choice else max)(inner)
                )
                if own < heights[id(node)]:
                    heights[id(node)], changed = own, True
        return heights


@cache
def grammar(text: str) -> Grammar:
    return Grammar(text)


def admits(text: str, reply: str) -> bool:
    """Whether the grammar `text` admits `reply`. Raises on malformed grammars."""
    return grammar(text).admits(reply)


def _character(node: Node, chance: random.Random) -> str:
    if node.negated:
        for _ in range(1000):
            character = chance.choice("aZ 0é,.;:!?()[]{}<>'`#=_-+\\\"\n\u2028東😀\t")
            if node.takes(character):
                return character
    low, high = chance.choice(node.ranges)
    return chr(chance.choice((low, high, chance.randint(low, min(high, low + 90)))))


def _parsed(body: str) -> Node:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(body):
        token = _TOKEN.match(body, place)
        assert token, f"no GBNF at {body[place : place + 40]!r}"
        place = token.end()
        if token.lastgroup != "blank":
            assert token.lastgroup
            tokens.append((token.lastgroup, token[0]))
    node, rest = _alternatives(tokens, 0)
    assert rest == len(tokens), f"something behind {body!r}"
    return node


def _alternatives(tokens: list[tuple[str, str]], at: int) -> tuple[Node, int]:
    ways: list[Node] = []
    while True:
        parts: list[Node] = []
        while at < len(tokens) and tokens[at][1] not in ("|", ")"):
            node, at = _atom(tokens, at)
            parts.append(node)
        ways.append(parts[0] if len(parts) == 1 else Node(parts=tuple(parts)))
        if at >= len(tokens) or tokens[at][1] != "|":
            return (ways[0] if len(ways) == 1 else Node(parts=tuple(ways), is_choice=True)), at
        at += 1


def _atom(tokens: list[tuple[str, str]], at: int) -> tuple[Node, int]:
    kind, text = tokens[at]
    at += 1
    if kind == "literal":
        node = Node(parts=tuple(Node(ranges=((ord(c), ord(c)),)) for c in _unescaped(text[1:-1])))
    elif kind == "set":
        node = _set(text[1:-1])
    elif kind == "name":
        node = Node(name=text)
    else:
        assert text == "(", f"{text} where an expression is wanted"
        node, at = _alternatives(tokens, at)
        assert tokens[at][1] == ")"
        at += 1
    if at < len(tokens) and tokens[at][0] == "count":
        count = re.match(r"\{(\d+)(,?)(\d*)\}", tokens[at][1])
        least, most = _COUNTS.get(tokens[at][1], (0, 0)) if not count else (
            int(count[1]),
            int(count[3]) if count[3] else None if count[2] else int(count[1]),
        )  # fmt: skip
        assert most is None or 0 < most < MOST_REPEATED
        assert least < MOST_REPEATED
        node = Node(parts=(node,), least=least, most=most)
        at += 1
    return node, at


def _set(inside: str) -> Node:
    negated = inside.startswith("^")
    units = re.findall(r"\\(?:x..|u....|U........|.)|.", inside[negated:], re.DOTALL)
    ranges: list[tuple[int, int]] = []
    while units:
        low = ord(_unescaped(units.pop(0)))
        if len(units) > 1 and units[0] == "-":
            high = ord(_unescaped(units[1]))
            del units[:2]
        else:
            high = low
        assert low <= high
        ranges.append((low, high))
    return Node(ranges=tuple(ranges), negated=negated)


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else _CONTROLS.get(found[4], found[4])

    plain = _ESCAPE.sub(one, text)
    assert "\\" not in _ESCAPE.sub("", text), f"an unknown escape in {text!r}"
    return plain
