"""What the modules of a package import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def imports(package: ModuleType) -> Iterator[tuple[str, str]]:
    """Each file of the package, and the full name of a module that it imports."""
    (folder,) = package.__path__
    for file in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(names):
                    yield from ((file.name, alias.name) for alias in names)
                case ast.ImportFrom(module):
                    yield file.name, module or ""
