"""A light scripted upstream, in a process of its own: `python -m benchmarks.load.upstream`.

What it answers is in the model's name, so it remembers nothing:

    say-200-4          200 characters, streamed as chunks of 4
    say-200-4-1        the same, a chunk a millisecond (0.001 s apart, also before the first)
    hermes             a call of `get_weather` as Hermes writes it
    call               Python that calls `get_weather`, in chunks of 4
    fresh-7            the same with a city that no other number has
    calls-30           one program of 30 calls, each with what the call before it returned
    pure-30            one program of 30 lines of arithmetic and one call
    pure-30-7          the same with a call that no other number has

A streamed chunk is a write of its own. Says its port in a line and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import lru_cache
from typing import Any

import orjson

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
CALL = 'Let me look.\n\n```tool_code\nget_weather(city="Oslo")\n```\n'

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def calls(count: int) -> str:
    """A program in which each call needs the result of the one before it."""
    lines = ["r0 = get_weather(city='Oslo')"]
    lines += [f"r{n} = get_weather(city=r{n - 1}['next'])" for n in range(1, count)]
    return "```tool_code\n" + "\n".join(lines) + f"\nprint(r{count - 1}['next'])\n```\n"


def pure(count: int) -> str:
    """A program of many lines with one call at its end."""
    lines = [f"x{n} = {n} * 2 + {n and f'x{n - 1}'}" for n in range(count)]
    return "```tool_code\n" + "\n".join(lines) + '\nget_weather(city="Oslo")\n```\n'


@lru_cache(maxsize=64)
def script(model: str) -> tuple[float, bytes, tuple[bytes, ...]]:
    """Seconds between chunks, the plain answer, and the pieces of the streamed one."""
    kind, *numbers = model.split("-")
    given = [float(number) for number in numbers]
    size, pause = 4, 0.0
    match kind:
        case "say":
            text = ("word " * (int(given[0]) // 5 + 1))[: int(given[0])]
            size = int(given[1])
            pause = given[2] / 1000 if len(given) > 2 else 0.0
        case "calls":
            text = calls(int(given[0]))
        case "pure":
            text = pure(int(given[0])).replace("Oslo", " ".join(["Oslo", *numbers[1:]]))
        case "hermes":
            text = HERMES
        case "fresh":
            text = CALL.replace("Oslo", f"Oslo {numbers[0]}")
        case _:
            text = CALL
    base = {"id": "chatcmpl-1", "created": 1, "model": model}
    usage = {"prompt_tokens": 9, "completion_tokens": 50, "total_tokens": 59}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse({**base, "object": "chat.completion.chunk", "choices": [choice]})

    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    deltas[0]["role"] = "assistant"
    told = {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    frames = [*map(chunk, deltas), chunk({}, "stop") + sse(told) + b"data: [DONE]\n\n"]
    frames = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames]
    frames[-1] += b"0\r\n\r\n"
    message = {"role": "assistant", "content": text, "refusal": None}
    choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    plain = json.dumps({**base, "object": "chat.completion", "choices": choices, "usage": usage})
    return pause, plain.encode(), tuple(frames)


def sse(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value, separators=(",", ":")).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line[15:])
            body = await reader.readexactly(length) if length else b""
            await answer(writer, orjson.loads(body) if body else None)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer(writer: asyncio.StreamWriter, request: dict[str, Any] | None) -> None:
    if request is None:  # GET /v1/models
        send_whole(writer, b'{"object":"list","data":[{"id":"say-200-4","object":"model"}]}')
        return
    pause, plain, frames = script(request["model"])
    if not request.get("stream"):
        await asyncio.sleep(pause * len(frames))
        send_whole(writer, plain)
        return
    writer.write(HEAD % b"text/event-stream" + b"transfer-encoding: chunked\r\n\r\n")
    loop = asyncio.get_running_loop()
    due = loop.time()
    for frame in frames:
        due += pause
        # A pace that does not drift; without one the loop's other connections have their turn.
        await asyncio.sleep(max(0.0, due - loop.time()))
        writer.write(frame)
        await writer.drain()


def send_whole(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(HEAD % b"application/json" + b"content-length: %d\r\n\r\n" % len(body) + body)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
