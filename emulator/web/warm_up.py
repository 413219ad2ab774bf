"""Read a made-up reply at the start, so that the first real one does not wait.

It needs imports, generated models and a running sandbox. The reply is read as ``tool-emulator explain`` reads
it: nothing is stored or sent.
"""

from __future__ import annotations

import json

import structlog

from emulator.answering.pipeline import Pipeline
from emulator.errors import EmulatorError

log = structlog.get_logger()

_TOOL = json.dumps(
    {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book a table.",
            "parameters": {
                "type": "object",
                "required": ["guest"],
                "properties": {
                    "guest": {"type": "string"},
                    "seats": {"type": "integer", "enum": [1, 2]},
                },
            },
        },
    }
).encode()
_REPLY = '```python\nguest = "Ada"\nbook(guest=guest)\n```'
"""A program: a single call would be read without a sandbox."""


def warm_up(pipeline: Pipeline) -> None:
    """Read `_REPLY` as ``pipeline`` would."""
    from emulator.explain import explain, read_tools

    # Any engine but the first gets ready with a first request.
    engines = pipeline.engines[:1]
    try:
        explain(
            pipeline.settings.model_copy(update={"tools": "emulate"}),
            read_tools(_TOOL),
            _REPLY,
            engines,
        )
    except EmulatorError as error:
        log.warning("not warmed up", reason=error.message)
    log.debug("warmed up")
