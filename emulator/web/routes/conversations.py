"""`/conversations`: OpenAI's Conversations API."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request
from pydantic import BaseModel

from emulator.fronts.responses import items
from emulator.fronts.responses.conversations import Conversations
from emulator.fronts.responses.request import Metadata
from emulator.storage.paging import page_among
from emulator.web.routes.replies import body_as, client, json_reply


class ConversationFields(BaseModel):
    items: Any = None
    metadata: Metadata | None = None


def add_routes(api: Blueprint, conversations: Conversations) -> None:
    one = "/conversations/<key>"

    @api.post("/conversations")
    def create_conversation() -> Response:
        body = body_as(ConversationFields, b"{}")
        conversation = conversations.create(client(), _items(body), body.metadata or {})
        return json_reply(conversation.json())

    @api.get(one)
    def retrieve_conversation(key: str) -> Response:
        return json_reply(conversations.get(client(), key).json())

    @api.post(one)
    def update_conversation(key: str) -> Response:
        body = body_as(ConversationFields)
        return json_reply(conversations.update(client(), key, body.metadata or {}).json())

    @api.delete(one)
    def delete_conversation(key: str) -> Response:
        conversations.delete(client(), key)
        return json_reply({"id": key, "object": "conversation.deleted", "deleted": True})

    @api.post(f"{one}/items")
    def add_items(key: str) -> Response:
        added = _items(body_as(ConversationFields))
        conversations.add(client(), key, added)
        return json_reply(page_among(added, {"order": "asc", "limit": "100"}))

    @api.get(f"{one}/items")
    def list_items(key: str) -> Response:
        return json_reply(page_among(conversations.get(client(), key).items, request.args))

    @api.get(f"{one}/items/<item_id>")
    def retrieve_item(key: str, item_id: str) -> Response:
        return json_reply(conversations.get(client(), key).item(item_id))

    @api.delete(f"{one}/items/<item_id>")
    def delete_item(key: str, item_id: str) -> Response:
        return json_reply(conversations.remove(client(), key, item_id).json())


def _items(body: ConversationFields) -> list[items.Json]:
    """Raises `BadRequest` naming the place."""
    normal = items.normalize([] if body.items is None else body.items, "items")
    items.parse(normal, "items")
    return normal
