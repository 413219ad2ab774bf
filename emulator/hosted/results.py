"""The result of an MCP call as the content of a ``tool`` message. Everything in it is untrusted."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from emulator.hosted.hosted_tool import HostedResult
from emulator.tools.schema import SchemaError
from emulator.tools.schema_cleaning import clean_schema
from emulator.tools.validator import compile_validator

if TYPE_CHECKING:
    from jsonschema_rs import Validator
    from mcp_types import CallToolResult, ContentBlock

MAX_RESULT_BYTES = 4 * 2**20
_MAX_PROBLEM = 300
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def hosted_result(result: CallToolResult, output_schema: Any = None) -> HostedResult:
    """Structured content as JSON, else the text; images as parts. A result that is too large, or does not
    match ``output_schema``, is an error."""
    size = sum(len(block.model_dump_json()) for block in result.content)
    parts = [_part(block) for block in result.content]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if result.structured_content is not None and not (result.is_error and texts):
        texts = [_structured_text(result.structured_content, texts)]
    text = "\n".join(texts)
    if max(size, len(text)) > MAX_RESULT_BYTES:
        limit = f"{MAX_RESULT_BYTES // 2**20} MiB"
        return _unusable(f"The result is larger than {limit}: ask for less.")
    if isinstance(output_schema, Mapping) and not result.is_error:
        problem = _mismatch(json.dumps(output_schema), result.structured_content)
        if problem:
            return _unusable(f"The result does not match the outputSchema: {problem}")
    images = [part for part in parts if part["type"] != "text"]
    content = [*([{"type": "text", "text": text}] if text else ()), *images] if images else text
    return HostedResult(content, bool(result.is_error))


def _unusable(problem: str) -> HostedResult:
    """The server has made the call; what came of it cannot be read."""
    return HostedResult(problem, is_error=True, outcome="unknown")


def _mismatch(schema: str, value: Any) -> str:
    """What is wrong with the structured content of a result, or ""."""
    validator = _validator(schema)
    if value is None or validator is None:
        return "" if validator is None else "there is no structured content"
    try:
        error = next(validator.iter_errors(value), None)
    except ValueError as too_deep:
        return str(too_deep)[:_MAX_PROBLEM]
    if error is None:
        return ""
    place = ".".join(map(str, error.instance_path))
    return f"{place}: {error.message}"[:_MAX_PROBLEM]


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator | None:
    """A validator in linear time; None for a schema that cannot be used."""
    try:
        return compile_validator(clean_schema(json.loads(schema), "outputSchema"))
    except SchemaError:
        return None


def _structured_text(value: Any, texts: list[str]) -> str:
    """The value as JSON: in the server's own notation (``1.10``) if its text is the same value."""
    if len(texts) == 1 and len(texts[0]) <= MAX_RESULT_BYTES:
        try:
            if json.loads(texts[0]) == value:
                return texts[0]
        except (ValueError, RecursionError):
            pass
    return json.dumps(value, ensure_ascii=False)  # orjson's limit of depth would be an error


def _part(block: ContentBlock) -> dict[str, Any]:
    if block.type == "text":
        return _text(block.text)
    if block.type == "image":
        return _image(block.mime_type, block.data)
    if block.type == "resource_link":
        described = f": {block.description}" if block.description else ""
        return _text(f"[{block.name} <{block.uri}>{described}]")
    if block.type == "audio":
        return _text(f"[audio, {block.mime_type}]")
    resource = block.resource
    if (text := getattr(resource, "text", None)) is not None:
        return _text(text)
    return _image(resource.mime_type or "", getattr(resource, "blob", ""), f" <{resource.uri}>")


def _image(mime_type: str, data: str, place: str = "") -> dict[str, Any]:
    """An image that models accept, or a line that mentions it."""
    try:
        is_valid = mime_type in _IMAGES and base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        is_valid = False
    if not is_valid:
        return _text(f"[{mime_type or 'binary'}{place}]")
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
