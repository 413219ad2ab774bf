"""What a program can import, and what is left out on purpose."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from sandbox.programs.inside.preload import LEFT_OUT
from sandbox.programs.server import ProgramServer
from tests.support.children import run

left_out = {name for names in LEFT_OUT.values() for name in names.split()}

TRY = """
missing = []
for name in {names!r}:
    try:
        __import__(name)
    except ImportError:
        missing.append(name)
f(missing)
"""


def test_a_program_imports_all_modules_that_are_not_excluded(programs: ProgramServer) -> None:
    names = sorted(name for name in sys.stdlib_module_names if not name.startswith("_"))
    calls: list[list[list[str]]] = []
    run(programs, TRY.format(names=names), calls=calls)
    [[missing]] = calls
    unexplained = set(missing) - left_out
    for name in unexplained:  # nor does this Python have them
        with pytest.raises(ImportError):
            importlib.import_module(name)
    assert not {"json", "re", "csv", "asyncio", "decimal", "sqlite3", "zoneinfo"} & set(missing)


def test_excluded_modules_are_named_once_and_cannot_be_imported(programs: ProgramServer) -> None:
    names = [name for each in LEFT_OUT.values() for name in each.split()]
    assert len(names) == len(set(names))
    calls: list[list[list[str]]] = []
    run(programs, TRY.format(names=names), calls=calls)
    [[missing]] = calls
    assert set(names) - set(missing) == set(), json.dumps(missing)
