"""The four tools of a code session as OpenAI function tools, for any model behind chat completions.

make run                                     # in another terminal: the proxy, in front of your model
python examples/function_tools.py "Sum the numbers in numbers.csv" [FOLDER]

Only files of FOLDER (the current one by default) can be uploaded, and downloads go there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy import connect
from code_session import CodeSession
from tools import talk


def shown(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which says what it was called with and what came of it."""

    @functools.wraps(function)
    def call(**arguments: str) -> Any:
        print(f"{function.__name__}({arguments})")
        result = function(**arguments)
        print(f"  -> {result}")
        return result

    return call


def main(question: str, folder: Path) -> None:
    session = CodeSession(folder)
    functions = [shown(getattr(session, name)) for name in session.spec_functions]
    print(talk(connect(), [{"role": "user", "content": question}], functions))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "."))
