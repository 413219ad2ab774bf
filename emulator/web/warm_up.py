"""Answer a made-up request at the start, so that the first real one does not wait.

It needs imports, generated models and a running sandbox. The made-up request passes through the whole
pipeline, with a fixed reply instead of a model's. Nothing is stored or sent; the counters of turns and calls
include it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Never

import structlog

from emulator.answering.model_habits import ModelHabits
from emulator.answering.pipeline import Pipeline
from emulator.chat.front import complete
from emulator.errors import EmulatorError
from emulator.protocol import parse_chat
from emulator.upstream.interface import Chunk, Messages, UpstreamReply
from emulator.upstream.upstreams import Upstreams

log = structlog.get_logger()

_REQUEST = json.dumps(
    {
        "model": "warm-up",
        "messages": [{"role": "user", "content": "Book a table for Ada."}],
        "tools": [
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
        ],
    }
).encode()
_REPLY = '```python\nguest = "Ada"\nbook(guest=guest)\n```'
"""A program: a single call would be read without a sandbox."""


class _Words(UpstreamReply):
    """An upstream, and its reply, that always says `_REPLY`."""

    def open(
        self, _messages: Messages, _fields: Mapping[str, Any], _until: float, _key: str | None
    ) -> UpstreamReply:
        return self

    def pass_on(self, _request: object, _until: float, _key: str | None) -> Never:
        raise NotImplementedError

    def models(self, _key: str | None) -> list[Any]:
        return []

    def at_root(self, _path: str) -> object:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def __iter__(self) -> Iterator[Chunk]:
        yield {"choices": [{"index": 0, "delta": {"content": _REPLY}, "finish_reason": "stop"}]}


def warm_up(pipeline: Pipeline) -> None:
    """Make an answer as ``pipeline`` would, and forget it."""
    one = {"upstreams": (), "aliases": {}, "fallbacks": (), "pass_client_key": False}
    settings = pipeline.settings.model_copy(update={**one, "tools": "emulate"})
    words = _Words()
    dry = replace(
        pipeline,
        settings=settings,
        upstreams=Upstreams(settings, lambda _: words),
        # Any other one gets ready with a first request.
        engines=pipeline.engines[:1],
        store=None,
        habits=ModelHabits(),
    )
    try:
        for _ in complete(dry, dry.read(parse_chat(_REQUEST)), ""):
            pass
    except EmulatorError as error:
        log.warning("not warmed up", reason=error.message)
    log.debug("warmed up")
