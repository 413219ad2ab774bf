"""Text in no known syntax that has all parts of a call: the model is asked about it.

    ["get_weather(city=New York, days=3)"]      a list of texts, each a call
    [("get_weather", {"city": "Oslo"})]         a list of names and arguments

The whole text must be one such list: no words are judged. After the first name, which must be an offered one,
come the names of all its required parameters, each with ``=`` or ``:`` and a value. Of 9,600 recorded replies
to questions that no offered function answers, 18 are such lists; of 634 others in which no call is read, 209.
Text anywhere in a reply that has all these parts would be 83 and 465.
"""

from __future__ import annotations

import re

from emulator.reading.lexing import JsonScan
from emulator.tools.toolset import Toolset

MAX_CHARS = 20_000
"""Longer words are not asked about."""
_LIST = re.compile(
    r"\s*(?P<list>[\[(][\[(\s]*[\"'`](?P<name>[\w.\-]{1,200})(?:\(|[\"'`]\s*,\s*\{).*[\])\"'`])\s*\Z",
    re.DOTALL,
)


def has_all_of_a_call(text: str, toolset: Toolset) -> bool:
    """Return True if ``text``, of at most `MAX_CHARS`, is a list of calls that no reader knows."""
    match = _LIST.match(text)
    tool = toolset.find(match["name"]) if match else None
    if (
        match is None
        or tool is None
        or JsonScan(code=True).feed(text) not in (None, match.end("list"))
    ):
        return False
    required = tool.parameters.get("required") or ()
    return bool(required) and all(_has_value(text, name) for name in required)


def _has_value(text: str, parameter: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(parameter)}[\"']?\s*[=:]\s*[^\s,)]", text) is not None
