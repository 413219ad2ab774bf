"""Send the code that runs inside a kernel (`sandbox.inside`) there as text, and call it."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from sandbox import inside

STUB = "__import__('sys').modules['sandbox.inside.stub']"
"""A Python expression for the stub, valid anywhere inside a kernel."""

_MODULES = "values calls tasks loops cells threads clock files stub".split()
"""Ordered: each module imports only modules before it."""


def call(function: str, **payload: Any) -> str:
    """Python source that calls a function of the stub with a JSON payload."""
    # repr of a str is Python source for it.
    return f"{STUB}.{function}({json.dumps(payload)!r})"


def _loader() -> str:
    """Python source that defines the modules in a kernel, which needs none of our files."""
    (folder,) = inside.__path__
    modules = [
        (f"sandbox.inside.{name}", Path(folder, f"{name}.py").read_text()) for name in _MODULES
    ]
    # From 64 KiB pyzmq sends without a copy, for which it keeps a thread and sockets of its own.
    packed = base64.b64encode(zlib.compress(json.dumps(modules).encode())).decode()
    return (
        "import base64, json, sys, types, zlib\n"
        "for name in ('sandbox', 'sandbox.inside'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        f"for name, source in json.loads(zlib.decompress(base64.b64decode({packed!r}))):\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    setattr(sys.modules['sandbox.inside'], name.rpartition('.')[2], module)\n"
        "    exec(compile(source, f'<{name}>', 'exec'), module.__dict__)\n"
        "del base64, json, zlib, name, source, module\n"
    )


STUB_LOADER = _loader()
