"""What the tests of LangChain share."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage


def invoke(runnable: Any, given: Any) -> AIMessage:
    return runnable.invoke(given)


def stream(runnable: Any, given: Any) -> AIMessage:
    """All chunks added up, which is how LangChain's own agents see a stream."""
    chunks = list(runnable.stream(given))
    message = chunks[0]
    for chunk in chunks[1:]:
        message += chunk
    return message


EITHER = pytest.mark.parametrize(
    "ask", [invoke, pytest.param(stream, marks=pytest.mark.feature("streaming"))]
)
