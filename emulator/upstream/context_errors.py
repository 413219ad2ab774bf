"""Recognize in each server's words that a prompt does not fit the model's context.

Servers differ in status, type and words; clients shorten their prompt if they see OpenAI's code. Sources: the
servers' issues (tests/upstream/test_context_errors.py names them), and for the others the tests of LiteLLM's
exception mapping and of pi's overflow detection, which quote the servers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from emulator.errors import UpstreamFailed

CONTEXT_CODE = "context_length_exceeded"
_SIZE = r"(?:context|model|prompt|input)[ ](?:length|window|size|limit)s?"
_WORDS = re.compile(
    rf"""
      context_length_exceeded | exceed_context_size | context_?window_?exceeded
    | maximum[ ](?:allowed[ ])?{_SIZE} | max(?:imum)?_?[ ]?(?:model_len|context[ ]length)
    | {_SIZE}[ ](?:has[ ]been[ ]|is[ ])?exceed | exceed[^.:]{{0,60}}?\bcontext[ ](?:length|window|size|limit)
    | (?:longer|greater|larger)[ ]than[ ]the[ ](?:model's[ ]|maximum[ ])*{_SIZE}
    | prompt[ ](?:is[ ])?too[ ]long | input[ ]is[ ]too[ ]long | reduce[ ]the[ ]length[ ]of[ ]the
    | maximum[ ]number[ ]of[ ]tokens[ ]allowed | exceeded[ ]model[ ]token[ ]limit
    | prompt[ ]length[ ]\(\d+\)[ ]exceeds | prompt[ ]exceeds[ ]max[ ]length
    | prompt[ ]token[ ]count[ ]of[ ]\d+[ ]exceeds | range[ ]of[ ]input[ ]length[ ]should
    | input[ ]tokens[ ]exceed | inputs`[ ](?:tokens[ ]\+|must[ ]have[ ]less[ ]than)
    | loaded[ ]with[ ]context[ ]length | current[ ]length[ ]is[ ]\d+[ ]while[ ]limit[ ]is
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_CAUSES = (401, 403, 404, 429)


def recognize_context_error(error: UpstreamFailed) -> UpstreamFailed:
    """Return the error with OpenAI's code, type and status if it is about the context's length."""
    words = f"{error.code} {error.type} {error.message}"
    if error.status in _OTHER_CAUSES or not _WORDS.search(words):
        return error
    return replace(error, code=CONTEXT_CODE, type="invalid_request_error", status=400)
