"""Many slow streams, open at the same time.

The upstream sends each chunk at a known time, so the delay at the client can be computed. All clients run
in one process and one thread (`selectors`), to use little CPU themselves.
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
"""How long after the expected end a stream counts as failed."""


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
class Measurement:
    count: int
    """Streams open at the same time."""
    pace: Pace
    completed: int
    """Streams that ended with ``[DONE]``."""
    late_median: float
    """Seconds from the upstream's first chunk until the client received it, median of all streams."""
    late_most: float
    """The same at the 99th percentile."""
    memory: float
    """KiB that each stream adds."""
    total: float
    """MiB of the server while all streams are open."""
    cpu: float
    """Milliseconds of CPU per stream, start and all chunks together."""
    threads: int

    def summary(self) -> str:
        """One sentence for the page."""
        pace = self.pace
        return (
            f"{self.count} streams open at the same time, each with {pace.chunks} chunks "
            f"{pace.apart:g} s apart, all started within {pace.spread:g} s: {self.completed} completed; "
            f"first chunk {1000 * self.late_median:.0f} ms late in the median and "
            f"{1000 * self.late_most:.0f} ms at the 99th percentile; "
            f"{self.memory:.0f} KiB of memory and {self.cpu:.1f} ms of CPU per stream; "
            f"{self.threads} threads."
        )


def measure(count: int, *settings: str) -> Measurement:
    """Hold ``count`` streams through the proxy."""
    allow_descriptors()
    with servers.upstream() as base_url, servers.proxy(base_url, *settings) as proxy:
        time.sleep(3)
        return hold(proxy, count)


def allow_descriptors() -> None:
    """Raise the limit of open files to the hard limit, for this process and every process it starts
    afterwards."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hold(server: servers.Server, count: int, pace: Pace = Pace()) -> Measurement:
    """Open ``count`` streams through ``server`` and read each to its end."""
    model = f"say-{4 * pace.chunks}-4-{int(1000 * pace.apart)}"
    body = requests.chat(model, stream=True)
    address = urlsplit(server.base_url)
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer x\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    memory, cpu = server.memory(), server.cpu()
    sample_after = pace.spread + pace.apart + 0.2  # every stream has a chunk, none has ended
    last = pace.spread + pace.apart * (pace.chunks + 1) + _LATE_SECONDS
    selector = selectors.DefaultSelector()
    streams: list[Stream] = []
    total, threads, ended = 0.0, 0, 0
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
        if not total and now - began > sample_after:
            total, threads = server.memory(), server.threads()
        for key, _ in selector.select(0.005):
            ended += _read(selector, key.fileobj, key.data)
    cpu = server.cpu() - cpu
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    # A stream without a first chunk counts as infinitely late.
    firsts = sorted(
        one.first - one.began - pace.apart if one.first else math.inf for one in streams
    )
    completed = sum(one.data.endswith(b"0\r\n\r\n") and b"[DONE]" in one.data for one in streams)
    return Measurement(
        count,
        pace,
        completed,
        statistics.median(firsts),
        firsts[int(len(firsts) * 0.99)],
        1024 * (total - memory) / count,
        total,
        1000 * cpu / count,
        threads,
    )


def _read(selector: selectors.BaseSelector, connection: object, stream: Stream) -> int:
    """Read the available bytes. Returns 1 when the stream has ended, otherwise 0."""
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
