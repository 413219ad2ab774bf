"""The modules that run inside a kernel."""

import ast
import sys
from pathlib import Path

from sandbox import inside

ALLOWED = {*sys.stdlib_module_names, "IPython"}


def test_they_import_the_standard_library_ipython_and_one_another() -> None:
    """A kernel may run in an image or on a gateway where nothing else is installed."""
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
        if module.partition(".")[0] not in ALLOWED and not module.startswith("sandbox.inside")
    ]
    assert foreign == []
