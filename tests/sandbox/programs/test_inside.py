"""The modules that run inside a program's process."""

from __future__ import annotations

import sys

from sandbox.programs import inside
from tests.support.imports import imports

OWN = ("sandbox.inside", "sandbox.programs.inside")


def test_program_modules_import_only_the_standard_library_and_each_other() -> None:
    """A server has no site packages: a library could start a thread, or leave an open file."""
    found = list(imports(inside))
    foreign = [
        (file, module)
        for file, module in found
        if module.partition(".")[0] not in sys.stdlib_module_names and not module.startswith(OWN)
    ]
    assert foreign == []
    assert ("run.py", "sandbox.programs.inside") in found
