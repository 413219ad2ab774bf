"""Discord's side of a bot's conversation, on loopback: its REST API and its gateway, as far as a bot that
talks needs them. Real HTTP and a real WebSocket; knows one bot, one guild, and what a test lets people say.

Source of the shapes: Discord's developer documentation, "Gateway" and "Channels Resource".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

BOT = {"id": "1", "username": "interpreter", "discriminator": "0", "avatar": None, "bot": True}
ADA = {"id": "2", "username": "ada", "discriminator": "0", "avatar": None}
APPLICATION = {"id": "1", "name": "interpreter", "icon": None, "description": "", "summary": ""}
APPLICATION |= {"verify_key": "0", "flags": 0, "bot_public": False, "bot_require_code_grant": False}
APPLICATION |= {"owner": ADA}
GUILD = {"id": "10", "name": "guild", "owner_id": "2", "roles": [], "emojis": [], "features": []}
GUILD |= {"channels": [{"id": "11", "type": 0, "name": "general", "position": 0}], "members": []}
GUILD |= {"member_count": 2, "large": False, "unavailable": False}
OPS = {"dispatch": 0, "heartbeat": 1, "identify": 2, "hello": 10, "heartbeat_ack": 11}


@dataclass(frozen=True)
class Said:
    """One message of the bot."""

    channel: str
    content: str | None
    allowed_mentions: Any
    files: dict[str, bytes]


@dataclass
class DiscordServer:
    url: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    said: asyncio.Queue[Said] = field(default_factory=asyncio.Queue)
    typed: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    _socket: web.WebSocketResponse | None = None
    _ids: Any = field(default_factory=lambda: count(1000))

    async def post(self, channel: str, content: str, author: Any = ADA, **more: Any) -> None:
        """Let somebody say something; in a guild with ``guild_id``, else in a direct message."""
        await self._dispatch("MESSAGE_CREATE", self._message(channel, content, author) | more)

    def _message(self, channel: str, content: str | None, author: Any) -> dict[str, Any]:
        message = {"id": str(next(self._ids)), "channel_id": channel, "author": author, "type": 0}
        message |= {"content": content or "", "timestamp": "2026-01-01T00:00:00+00:00"}
        message |= {
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "pinned": False,
        }
        return message | {"mentions": [], "mention_roles": [], "attachments": [], "embeds": []}

    async def _dispatch(self, name: str, data: Any) -> None:
        assert self._socket is not None
        frame = {"op": OPS["dispatch"], "t": name, "s": next(self._ids), "d": data}
        await self._socket.send_str(json.dumps(frame))

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": OPS["hello"], "d": {"heartbeat_interval": 40_000}})
        async for frame in socket:
            assert frame.type is WSMsgType.TEXT
            given = json.loads(frame.data)
            if given["op"] == OPS["identify"]:
                self.tokens.add(given["d"]["token"])
                session = {"v": 10, "user": BOT, "guilds": [{"id": "10", "unavailable": True}]}
                session |= {"session_id": "s", "resume_gateway_url": str(request.url)}
                await self._dispatch("READY", session | {"application": {"id": "1", "flags": 0}})
                await self._dispatch("GUILD_CREATE", GUILD)
                self.ready.set()
            elif given["op"] == OPS["heartbeat"]:
                await socket.send_json({"op": OPS["heartbeat_ack"]})
        return socket

    async def rest(self, request: web.Request) -> web.Response:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["api", "users", "@me"]:
                return _json(BOT)
            case "GET", ["api", "oauth2", "applications", "@me"]:
                return _json(APPLICATION)
            case "POST", ["api", "channels", channel, "typing"]:
                self.typed.append(channel)
                return web.Response(status=204)
            case "POST", ["api", "channels", channel, "messages"]:
                said = await self._read(channel, request)
                self.said.put_nowait(said)
                return _json(self._message(channel, said.content, BOT))
        return _json({"message": "404: Not Found", "code": 0}, status=404)

    async def _read(self, channel: str, request: web.Request) -> Said:
        files: dict[str, bytes] = {}
        if request.content_type == "application/json":
            payload = await request.json()
        else:
            form = await request.post()
            payload = json.loads(str(form["payload_json"]))
            for part in form.values():
                if isinstance(part, web.FileField):
                    files[part.filename] = part.file.read()
        return Said(channel, payload.get("content"), payload.get("allowed_mentions"), files)


def _json(value: Any, status: int = 200) -> web.Response:
    # As Discord has it: discord.py takes a content type with a charset for text.
    headers = {"content-type": "application/json"}
    return web.Response(body=json.dumps(value).encode(), status=status, headers=headers)


@asynccontextmanager
async def discord_server() -> AsyncIterator[DiscordServer]:
    server = DiscordServer()
    app = web.Application()
    app.router.add_get("/gateway", server.gateway)
    app.router.add_route("*", "/{path:.*}", server.rest)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
