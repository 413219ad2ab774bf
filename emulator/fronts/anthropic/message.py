"""The events of a message's stream -> the whole message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from emulator.core import json_codec
from emulator.core.events import UpstreamAccepted
from emulator.fronts.anthropic.blocks import BLOCKS

Json = dict[str, Any]


def collect(events: Iterable[Json | UpstreamAccepted]) -> Json:
    """Fold a stream's events into the message."""
    message: Json = {}
    texts: list[str] = []
    for event in events:
        if isinstance(event, UpstreamAccepted):
            continue
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
                texts = []
            case "content_block_delta":
                _fold(message["content"][-1], event["delta"], texts)
            case "content_block_stop":
                _close(message["content"][-1], texts)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
                if "context_management" in event:
                    message["context_management"] = event["context_management"]
    return message


def _fold(block: Json, delta: Json, texts: list[str]) -> None:
    if delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
    elif delta["type"] == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    else:
        fields = ("text", "thinking", "partial_json", "content")
        texts += [delta[field] for field in fields if field in delta]


def _close(block: Json, texts: list[str]) -> None:
    field, text = BLOCKS[block["type"]].streamed, "".join(texts)
    if field:
        block[field] = json_codec.loads(text or "{}") if field == "input" else text
