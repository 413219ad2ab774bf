"""A relay in front of a TCP server that delays every byte."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from tests.support.processes import free_port, listens, wait_until


def delayed(url: str, seconds: float) -> str:
    """The URL of the same database behind a relay, which delays every byte by ``seconds`` in each direction.

    The relay ends with this process.
    """
    address, _, name = url.rpartition("/")
    host, _, target = address.rpartition(":")
    port = free_port()
    relay = _relay(port, int(target), seconds)
    threading.Thread(target=asyncio.run, args=(relay,), daemon=True).start()
    wait_until(lambda: listens(port))
    return f"{host}:{port}/{name}"


async def _relay(port: int, target: int, delay: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_pass_on(reader, server[1], delay), _pass_on(server[0], writer, delay))

    listening = await asyncio.start_server(connected, "127.0.0.1", port)
    await listening.serve_forever()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
) -> None:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send_late() -> None:
        data = b" "
        while data:
            at, data = await arrived.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            writer.write(data)
        writer.close()

    sending = asyncio.create_task(send_late())
    data = b" "
    while data:
        data = b""
        with suppress(OSError):
            data = await reader.read(65536)
        arrived.put_nowait((loop.time() + delay, data))
    await sending
