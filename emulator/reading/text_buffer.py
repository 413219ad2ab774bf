"""The part of a reply that has arrived and is not yet decided. Knows nothing of its meaning."""

from __future__ import annotations

from collections.abc import Generator

#: Limit on undecided text (a line, a value, a run of code) that scanners buffer, in characters.
HOLD = 1 << 16
#: The first characters of a line, within which scanners must decide what begins there.
HEAD = 400


class TextBuffer:
    """Text that scanners inspect and take, in order. `final`: the reply has ended."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0  # the text before this index has been taken
        self.final = False
        self.last = ""  # the character that was taken last

    def feed(self, text: str) -> None:
        # CPython appends to a local string in place if it has no other reference, so a long buffer is
        # not copied for each chunk. Taken text is dropped once it is at least half of the buffer.
        buffered, self.text = self.text, ""
        if 2 * self.at >= len(buffered):
            buffered, self.at = buffered[self.at :], 0
        buffered += text
        self.text = buffered

    def __len__(self) -> int:
        return len(self.text) - self.at

    def take(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += len(taken)
        self.last = taken[-1:] or self.last
        return taken

    def head(self, size: int = HEAD) -> tuple[str, bool]:
        """Return the first characters, and True if more text cannot change them."""
        head = self.text[self.at : self.at + size]
        return head, self.final or len(head) == size

    def line(self, after: int = 0) -> str | None:
        """Return the line that begins `after` characters ahead: the whole line, the unfinished last
        line of the reply, or the first HOLD characters of a longer line.

        Returns None while the line has not ended, and at the end of the reply.
        """
        start = self.at + after
        end = self.text.find("\n", start, start + HOLD)
        if end >= 0:
            return self.text[start : end + 1]
        if len(self.text) - start >= HOLD:
            return self.text[start : start + HOLD]
        return self.text[start:] or None if self.final else None

    def next_line(self, after: int = 0) -> Generator[None, None, str | None]:
        """Wait for the `line`, and return it; None if the reply ends before it."""
        while (line := self.line(after)) is None and not self.final:
            yield None
        return line

    def closing(self, closings: tuple[str, ...]) -> tuple[int, str | None]:
        """Return the number of characters before the first of `closings`, and which one it is.

        If none is there, return the number of characters that are certainly before the next one,
        and None.
        """
        found = [(at, word) for word in closings if (at := self.text.find(word, self.at)) >= 0]
        if found:
            at, word = min(found)
            return at - self.at, word
        if not self.final:
            partial = max((partial_match(self.text, word, self.at) for word in closings), default=0)
            return len(self) - partial, None
        return len(self), None


def partial_match(text: str, word: str, start: int = 0) -> int:
    """Return the length of the longest proper prefix of ``word`` with which ``text[start:]`` ends."""
    longest = min(len(word) - 1, len(text) - start)
    return next((n for n in range(longest, 0, -1) if text.endswith(word[:n])), 0)
