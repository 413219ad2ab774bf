"""Print the structure of the product: its rooms, their floors, the imports between them, and its size.

A room is a folder of emulator/, or the sandbox. An arrow is a pair of rooms of which one imports the other,
at its start or later, for types or not. A room's floor is the length of the longest chain of arrows below it.
Statements are counted as Python's parser counts them: they do not depend on how lines are wrapped.

    python -m scripts.rooms
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def room_of(module: str) -> str:
    """emulator.web.app -> web; the sandbox is one room. The package itself, with its version, is none: ""."""
    package, _, inside = module.partition(".")
    return inside.partition(".")[0] if package == "emulator" else package


def statements(room: str) -> int:
    place = ROOT / room if room == "sandbox" else ROOT / "emulator" / room
    files = [*place.rglob("*.py"), *place.parent.glob(f"{room}.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    return sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))


def main() -> None:
    graph = grimp.build_graph("emulator", "sandbox")
    below: dict[str, set[str]] = {}
    for module in graph.modules:
        imported = {room_of(other) for other in graph.find_modules_directly_imported_by(module)}
        below.setdefault(room_of(module), set()).update(imported - {room_of(module), ""})
    del below[""]

    @cache
    def floor(room: str) -> int:  # the contracts of pyproject.toml exclude circles
        return 1 + max(map(floor, below[room]), default=-1)

    sizes = {room: statements(room) for room in below}
    for room in sorted(below, key=lambda room: (-floor(room), room)):
        names = ", ".join(sorted(below[room]))
        print(f"{floor(room):2} {room:13} {sizes[room]:6,}  imports {names or 'nothing'}")
    arrows = sum(map(len, below.values()))
    floors = max(map(floor, below)) + 1
    print(
        f"{len(below)} rooms, {floors} floors, {arrows} arrows, {sum(sizes.values()):,} statements"
    )


if __name__ == "__main__":
    main()
