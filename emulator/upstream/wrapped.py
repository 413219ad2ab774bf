"""A reply of an upstream with something around it: what is counted, noted or given back when it is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from emulator.upstream.interface import Chunk, UpstreamReply


@dataclass
class WrappedReply:
    """Another reply, chunk by chunk; `left` is called when it has been closed, however that went."""

    reply: UpstreamReply

    def left(self) -> None:
        """The reply has been closed."""

    def __enter__(self) -> Self:
        self.reply.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.reply.__exit__(*exc)
        finally:
            self.left()

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.reply)

    @property
    def more(self) -> bool:
        return self.reply.more

    @property
    def headers(self) -> Mapping[str, str]:
        return self.reply.headers
