"""The digest of a call: equal if a program passes the same values, in the same notation. The host makes the
same digest of calls that it reads without running anything."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(name: str, args: Any, kwargs: Any, texts: Any = ()) -> str:
    """``args`` and ``kwargs`` as JSON data; ``texts`` are places and texts of results (`notation`)."""
    passed = json.dumps([name, args, kwargs, list(texts)])
    return hashlib.sha256(passed.encode()).hexdigest()[:32]
