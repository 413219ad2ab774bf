"""gaia.py's code interpreter as a Discord bot, which answers direct messages and those that mention it.

make run                             # in another terminal: the proxy, in front of your model
pip install discord.py
DISCORD_TOKEN=... python examples/discord_bot.py

Make the bot and its token at https://discord.com/developers/applications, and let it have the "message
content" intent. Each channel is a conversation with a container of its own.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections import defaultdict
from typing import Any

import proxy
import discord
import openai
from gaia import Files, answer

MOST_CHARACTERS = 2000  # Discord's limits for one message
MOST_FILES = 10


class Bot(discord.Client):
    def __init__(self) -> None:
        intents = discord.Intents.default()
        intents.message_content = True
        # The words are a model's: they must not call @everyone.
        super().__init__(intents=intents, allowed_mentions=discord.AllowedMentions.none())
        self.proxy = proxy.connect()
        self.histories: dict[int, list[Any]] = defaultdict(list)
        self.turns: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def on_message(self, message: discord.Message) -> None:
        if message.author.bot or not (message.guild is None or self.user in message.mentions):
            return
        channel = message.channel
        text = message.content.replace(self.user.mention, "").strip()
        async with self.turns[channel.id], channel.typing():
            try:
                words, files = await asyncio.to_thread(
                    answer, self.proxy, self.histories[channel.id], text
                )
            except openai.APIError as error:
                words, files = f"I could not: {error}", {}
            await say(channel, words, files)


async def say(channel: discord.abc.Messageable, words: str, files: Files) -> None:
    """The answer in as many messages as it needs, the files with the last of them."""
    pieces = [words[at : at + MOST_CHARACTERS] for at in range(0, len(words), MOST_CHARACTERS)]
    for piece in pieces[:-1]:
        await channel.send(piece)
    attached = [
        discord.File(io.BytesIO(content), filename=path.rpartition("/")[2])
        for path, content in files.items()
    ]
    last = pieces[-1] if pieces else None
    await channel.send(last, files=attached[:MOST_FILES])
    if left_out := attached[MOST_FILES:]:
        await channel.send(f"({len(left_out)} more files are too many for a message)")


if __name__ == "__main__":
    if not (token := os.environ.get("DISCORD_TOKEN")):
        sys.exit(
            "DISCORD_TOKEN is not set: make a bot at https://discord.com/developers/applications"
        )
    try:
        Bot().run(token)
    except (discord.LoginFailure, discord.PrivilegedIntentsRequired) as error:
        sys.exit(f"DISCORD_TOKEN: {error}")
