"""Many streams that are open at the same time, and say a word now and then.

Each stream's chunks come from the upstream at times that are known, so that it can be told how late the
client got them. One process, one thread, `selectors`: the clients cost little.
"""

from __future__ import annotations

import math
import resource
import selectors
import socket
import statistics
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.load import requests, servers

_CONNECT_SECONDS = 10.0
_LATE_SECONDS = 20.0
"""After the last stream should have ended: whatever is open then has failed."""


@dataclass(frozen=True)
class Pace:
    chunks: int = 20
    apart: float = 1.0
    """Seconds before each chunk."""
    spread: float = 10.0
    """Seconds over which the streams begin; shorter than a stream by some of its chunks."""


@dataclass
class Stream:
    began: float
    first: float = 0.0
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Held:
    asked: int
    """Streams at the same time."""
    pace: Pace
    whole: int
    """Those that came to their end."""
    late_median: float
    """Seconds from when the upstream sent the first chunk until the client had it."""
    late_most: float
    """The same of the slowest in a hundred."""
    memory: float
    """KiB that a stream adds."""
    total: float
    """MiB of the server while all are open."""
    cpu: float
    """Milliseconds of CPU a stream, of all its chunks and its begin."""
    threads: int

    def told(self) -> str:
        pace = self.pace
        return (
            f"{self.asked} streams held at the same time, each of {pace.chunks} chunks "
            f"{pace.apart:g} s apart, begun within {pace.spread:g} s: {self.whole} came to their end; "
            f"the first chunk {1000 * self.late_median:.0f} ms later than ideal in the median, "
            f"{1000 * self.late_most:.0f} ms in the slowest of a hundred (time that passed); "
            f"{self.memory:.0f} KiB of memory and {self.cpu:.1f} ms of CPU a stream; "
            f"{self.threads} threads."
        )


def measure(count: int, *settings: str) -> Held:
    """Hold ``count`` streams through the proxy."""
    allow_descriptors()
    with servers.upstream() as base_url, servers.proxy(base_url, *settings) as proxy:
        time.sleep(3)
        return hold(proxy, count)


def allow_descriptors() -> None:
    """As many as the user may have, for this process and for those that it starts from here on."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hold(server: servers.Server, count: int, pace: Pace = Pace()) -> Held:
    """Hold ``count`` streams through a server that passes on what the scripted upstream says."""
    model = f"say-{4 * pace.chunks}-4-{int(1000 * pace.apart)}"
    body = requests.chat(model, stream=True)
    address = urlsplit(server.base_url)
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer x\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    memory, cpu = server.memory(), server.cpu()
    look = pace.spread + pace.apart + 0.2  # when all have had a chunk, and none its last
    last = pace.spread + pace.apart * (pace.chunks + 1) + _LATE_SECONDS
    selector = selectors.DefaultSelector()
    streams: list[Stream] = []
    held, threads, ended = 0.0, 0, 0
    began = time.perf_counter()
    while ended < count and (now := time.perf_counter()) - began < last:
        while len(streams) < count and now - began >= pace.spread * len(streams) / count:
            stream = Stream(time.perf_counter())
            streams.append(stream)
            try:
                connection = socket.create_connection(
                    (address.hostname, address.port), timeout=_CONNECT_SECONDS
                )
                connection.sendall(head + body)
            except OSError:
                ended += 1
                continue
            selector.register(connection, selectors.EVENT_READ, stream)
        if not held and now - began > look:
            held, threads = server.memory(), server.threads()
        for key, _ in selector.select(0.005):
            ended += _read(selector, key.fileobj, key.data)
    cpu = server.cpu() - cpu
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    # A stream without a first chunk is later than any other.
    firsts = sorted(
        one.first - one.began - pace.apart if one.first else math.inf for one in streams
    )
    whole = sum(one.data.endswith(b"0\r\n\r\n") and b"[DONE]" in one.data for one in streams)
    return Held(
        count,
        pace,
        whole,
        statistics.median(firsts),
        firsts[int(len(firsts) * 0.99)],
        1024 * (held - memory) / count,
        held,
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
