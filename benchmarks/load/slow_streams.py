"""Many streams that are open at the same time, and say a word now and then.

Each stream's chunks come from the upstream at times that are known, so that it can be told how late the
client got them. One process, one thread, `selectors`: the clients cost little.
"""

from __future__ import annotations

import resource
import selectors
import socket
import statistics
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.load import requests, servers

CHUNKS = 20
APART = 1.0
SPREAD = 10.0
"""Seconds over which the streams begin."""


@dataclass
class Stream:
    began: float
    first: float = 0.0
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Held:
    asked: int
    """Streams at the same time."""
    whole: int
    """Those that came to their end."""
    late_median: float
    """Seconds from when the upstream sent the first chunk until the client had it."""
    late_most: float
    """The same of the slowest in a hundred."""
    memory: float
    """KiB that a stream adds."""
    cpu: float
    """Milliseconds of CPU a stream, of all its chunks and its begin."""
    threads: int

    def told(self) -> str:
        return (
            f"{self.asked} streams held at the same time, each of {CHUNKS} chunks {APART:g} s apart, "
            f"begun within {SPREAD:g} s: {self.whole} came to their end; the first chunk "
            f"{1000 * self.late_median:.0f} ms later than ideal in the median, "
            f"{1000 * self.late_most:.0f} ms in the slowest of a hundred (time that passed); "
            f"{self.memory:.0f} KiB of memory and {self.cpu:.1f} ms of CPU a stream; "
            f"{self.threads} threads."
        )


def measure(count: int, *settings: str) -> Held:
    """Hold ``count`` streams through the proxy."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    body = requests.chat(f"say-{4 * CHUNKS}-4-{int(1000 * APART)}", stream=True)
    with servers.upstream() as base_url, servers.proxy(base_url, *settings) as proxy:
        time.sleep(3)
        memory, cpu = proxy.memory(), proxy.cpu()
        selector = selectors.DefaultSelector()
        address = urlsplit(proxy.base_url)
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer x\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        began = time.perf_counter()
        streams: list[Stream] = []
        held, threads, ended = 0.0, 0, 0
        while ended < count:
            now = time.perf_counter()
            while len(streams) < count and now - began >= SPREAD * len(streams) / count:
                connection = socket.create_connection((address.hostname, address.port), timeout=60)
                connection.sendall(head + body)
                stream = Stream(time.perf_counter())
                streams.append(stream)
                selector.register(connection, selectors.EVENT_READ, stream)
            if not held and now - began > SPREAD + 2:
                held, threads = proxy.memory(), proxy.threads()
            for key, _ in selector.select(0.005):
                ended += _read(selector, key.fileobj, key.data)
        cpu = proxy.cpu() - cpu
    firsts = sorted(one.first - one.began - APART for one in streams if one.first)
    whole = sum(one.data.endswith(b"0\r\n\r\n") and b"[DONE]" in one.data for one in streams)
    return Held(
        count,
        whole,
        statistics.median(firsts),
        firsts[int(len(firsts) * 0.99)],
        1024 * (held - memory) / count,
        1000 * cpu / count,
        threads,
    )


def _read(selector: selectors.BaseSelector, connection: object, stream: Stream) -> int:
    """Take what has come; 1 at a stream's end."""
    assert isinstance(connection, socket.socket)
    try:
        data = connection.recv(65536)
    except OSError:
        data = b""
    stream.data += data
    if not stream.first and b"content" in data and b"data:" in stream.data:
        stream.first = time.perf_counter()
    if data and not stream.data.endswith(b"0\r\n\r\n"):
        return 0
    selector.unregister(connection)
    connection.close()
    return 1
