"""The modules that run inside a program's process."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from sandbox.programs import inside


def test_they_import_the_standard_library_and_one_another() -> None:
    """A server has no site packages: a library could start a thread, or leave an open file."""
    (folder,) = inside.__path__
    foreign = [
        (file.name, module)
        for file in Path(folder).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if module.partition(".")[0] not in sys.stdlib_module_names
        and not module.startswith(("sandbox.inside", "sandbox.programs.inside"))
    ]
    assert foreign == []
