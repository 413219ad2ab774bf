"""A client that costs next to nothing: requests as bytes on sockets that stay open."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

END = b"\r\n\r\n"


@dataclass
class Told:
    """What came of one request. Seconds from its being sent."""

    status: int
    body: bytes
    first: float
    """Until the first content of the answer."""
    whole: float


class Client:
    """One connection, opened when first used."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._path = f"{parts.path}/chat/completions"
        self._socket: socket.socket | None = None

    def ask(self, body: bytes) -> Told:
        """Raises OSError if the server ends the connection in an answer."""
        if self._socket is not None and _is_over(self._socket):
            self.close()
        is_new = self._socket is None
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=120)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        try:
            self._socket.sendall(head.encode() + body)
            told, stays = _read(self._socket, began)
        except ConnectionError:
            # Forge says keep-alive in the head of a stream, and closes.
            if is_new:
                raise
            self.close()
            return self.ask(body)
        if not stays:
            self.close()
        return told

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_over(connection: socket.socket) -> bool:
    """Whether the server has closed a connection on which nothing was asked."""
    return bool(select.select([connection], [], [], 0)[0])


def _read(connection: socket.socket, began: float) -> tuple[Told, bool]:
    data, first = b"", 0.0
    while END not in data:
        data += _more(connection)
    head, _, body = data.partition(END)
    lines = head.decode("latin-1").lower().split("\r\n")
    status = int(lines[0].split()[1])
    fields = dict(line.split(": ", 1) for line in lines[1:])
    length = int(fields["content-length"]) if "content-length" in fields else None
    pieces = [body]
    size, tail = len(body), body[-64:]

    while size < length if length is not None else not tail.endswith(b"0\r\n\r\n"):
        if not first and b"data:" in pieces[-1]:
            first = time.perf_counter() - began
        piece = _more(connection)
        pieces.append(piece)
        size += len(piece)
        tail = (tail + piece)[-64:]
    whole = time.perf_counter() - began
    return Told(status, b"".join(pieces), first or whole, whole), "close" not in fields.get(
        "connection", ""
    )


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 18)
    if not data:
        raise ConnectionError("the server closed the connection within an answer")
    return data


@dataclass
class Load:
    """Some connections to one server, which ask at the same time."""

    base_url: str
    clients: list[Client] = field(default_factory=list)

    def run(self, bodies: Sequence[bytes], at_once: int) -> list[Told]:
        """All ``bodies``, ``at_once`` of them at any time. Raises RuntimeError for an answer that is none."""
        while len(self.clients) < at_once:
            self.clients.append(Client(self.base_url))
        rest, told, failures = list(reversed(bodies)), [], []

        def work(client: Client) -> None:
            with suppress(IndexError):
                while True:
                    body = rest.pop()
                    try:
                        answer = client.ask(body)
                    except OSError as error:
                        failures.append(str(error))
                        client.close()
                        return
                    if answer.status != 200:
                        failures.append(f"{answer.status} {answer.body[:300]!r}")
                        return
                    told.append(answer)

        threads = [threading.Thread(target=work, args=(one,)) for one in self.clients[:at_once]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"{self.base_url}: {failures[0]}")
        return told

    def timed(self, bodies: Sequence[bytes], at_once: int) -> tuple[list[Told], float]:
        """As `run`, and the seconds that it took."""
        began = time.perf_counter()
        return self.run(bodies, at_once), time.perf_counter() - began

    def close(self) -> None:
        for client in self.clients:
            client.close()
