"""`/openapi.json`: what is served here, as an OpenAPI 3.1 document, made from the routes and their models.

A route that takes a body has a row in `BODIES`; a test says so of each. Answers are described no further
than their kind: those of OpenAI's and Anthropic's APIs are in their own documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from flask import Flask, Response, current_app
from pydantic import BaseModel
from werkzeug.routing import Rule

from emulator import __version__
from emulator.core.protocol import ChatCompletionRequest
from emulator.fronts.anthropic.request import CountRequest, MessagesRequest
from emulator.fronts.responses.request import ResponseRequest
from emulator.web.routes.containers import CreateContainer, CreateContainerFile
from emulator.web.routes.conversations import ConversationFields
from emulator.web.routes.executions import Approval, ExecuteRequest, Refusal
from emulator.web.routes.replies import json_reply
from emulator.web.routes.session_shapes import IDENTIFIER, OldSessionCode, SessionCode

BODIES: dict[str, type[BaseModel] | None] = {
    "chat_completions": ChatCompletionRequest,
    "create_response": ResponseRequest,
    "count_input_tokens": ResponseRequest,
    "compact_response": ResponseRequest,
    "cancel_response": None,
    "create_message": MessagesRequest,
    "count_message_tokens": CountRequest,
    "create_conversation": ConversationFields,
    "update_conversation": ConversationFields,
    "add_items": ConversationFields,
    "create_container": CreateContainer,
    "create_container_file": CreateContainerFile,
    "execute": ExecuteRequest,
    "approve": Approval,
    "decline": Refusal,
    "execute_session_code": OldSessionCode,
    "create_session_execution": SessionCode,
    "upload_session_file": None,
    "create_session_file": None,
    "create_file": None,
}
"""The route's function -> the model of its JSON; None for one without, or with a form alone."""

FORMS = (
    *("create_file", "create_container_file"),
    *("upload_session_file", "create_session_file"),
)
"""They take a file as ``multipart/form-data``."""

_TEXT: dict[str, Any] = {"type": "string"}
_PAGE: dict[str, dict[str, Any]] = {
    "after": _TEXT,
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "order": {"enum": ["asc", "desc"]},
}
_INCLUDE: dict[str, dict[str, Any]] = {"include[]": {"type": "array", "items": _TEXT}}
QUERIES: dict[str, dict[str, dict[str, Any]]] = {
    "list_files": {**_PAGE, "purpose": _TEXT},
    "list_containers": {**_PAGE, "name": _TEXT},
    "list_container_files": _PAGE,
    "list_items": _PAGE,
    "list_input_items": {**_PAGE, **_INCLUDE},
    "retrieve_response": {
        **_INCLUDE,
        "stream": {"type": "boolean"},
        "starting_after": {"type": "integer", "minimum": 0},
    },
}
"""The route's function -> its query parameters and their schemas."""
_SESSION: dict[str, dict[str, Any]] = {
    "identifier": {"type": "string", "pattern": f"^{IDENTIFIER.pattern}$"},
    "api-version": _TEXT,
    "path": _TEXT,
}

_STREAMS = ("chat_completions", "create_response", "create_message", "execute", "retrieve_response")
_CONTENTS = (
    *("retrieve_file_content", "retrieve_container_file_content"),
    *("session_file_content", "old_session_file_content"),
)
_OPEN = ("healthz", "readyz", "metrics_page", "openapi_document")
_LEFT_OUT = ("pass_on", "static")
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_ERROR_REFERENCE = {"$ref": "#/components/schemas/Error"}
_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "format": "binary"}, "purpose": _TEXT},
}


def add_routes(app: Flask) -> None:
    @app.get("/openapi.json")
    def openapi_document() -> Response:
        return json_reply(document(current_app))


def document(app: Flask) -> dict[str, Any]:
    """The paths of an application, each once: below ``/v1``, where it is served there too."""
    paths: dict[str, dict[str, Any]] = {}
    for rule, name in _described(app):
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            paths.setdefault(path, {})[method.lower()] = _operation(rule, name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tool Use API Emulator", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**_models()[1]["$defs"], "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(app: Flask) -> Iterator[tuple[Rule, str]]:
    """The rules, and the names of their functions. OpenAPI cannot describe WebSockets."""
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        blueprint, _, name = rule.endpoint.rpartition(".")
        if name not in _LEFT_OUT and blueprint in ("", "v1") and not rule.websocket:
            yield rule, name


def _operation(rule: Rule, name: str) -> dict[str, Any]:
    queries = QUERIES.get(name, _SESSION if "/sessions/" in rule.rule else {})
    places = [("path", each, _TEXT) for each in sorted(rule.arguments)]
    places += [("query", each, schema) for each, schema in queries.items()]
    operation: dict[str, Any] = {
        "operationId": name,
        "parameters": [
            {"in": where, "name": each, "required": where == "path", "schema": schema}
            for where, each, schema in places
        ],
        "responses": {
            "200": {"description": "The answer", "content": _answer(name)},
            "default": {"description": "An error", "content": _content(_ERROR_REFERENCE)},
        },
    }
    contents: dict[str, Any] = {}
    if (model := BODIES.get(name)) is not None:
        contents |= _content(_models()[0][model, "validation"])
    if name in FORMS:
        contents["multipart/form-data"] = {"schema": _FORM}
    if contents:
        operation["requestBody"] = {"required": True, "content": contents}
    if name not in _OPEN:
        operation["security"] = [{"key": []}, {}]
    return operation


def _answer(name: str) -> dict[str, Any]:
    if name in _CONTENTS:
        return {"application/octet-stream": {}}
    if name == "metrics_page":
        return {"text/plain": {"schema": _TEXT}}
    streamed = {"text/event-stream": {"schema": _TEXT}} if name in _STREAMS else {}
    return _content({"type": "object"}) | streamed


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


@cache
def _models() -> tuple[dict[Any, Any], dict[str, Any]]:
    """(model, mode) -> a reference to its schema; and the schemas."""
    from pydantic.json_schema import models_json_schema  # slow, and only this page needs it

    models = [model for model in dict.fromkeys(BODIES.values()) if model is not None]
    return models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
