"""The part of a reply that has come and is not decided yet. Knows nothing of what it may mean."""

from __future__ import annotations

#: Characters of a line, a value or a stretch of code that may be held back undecided.
HOLD = 1 << 16
#: Characters within which the beginning of a line says what the line may be.
HEAD = 400


class TextBuffer:
    """Text that scanners look at and take from, in order. `final`: no more will come."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0  # what stands before it was taken
        self.final = False
        self.last = ""  # the character that was taken last

    def feed(self, text: str) -> None:
        # CPython adds to a local string in place while nothing else refers to it: what is held for
        # long is not copied at each chunk. What was taken goes when it is most of the text.
        held, self.text = self.text, ""
        if 2 * self.at >= len(held):
            held, self.at = held[self.at :], 0
        held += text
        self.text = held

    def __len__(self) -> int:
        return len(self.text) - self.at

    def take(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += len(taken)
        self.last = taken[-1:] or self.last
        return taken

    def head(self, size: int = HEAD) -> tuple[str, bool]:
        """The first characters, and whether no more of these can come."""
        head = self.text[self.at : self.at + size]
        return head, self.final or len(head) == size

    def line(self, after: int = 0) -> str | None:
        """The line that begins `after` characters on: whole, or the reply's last, or HOLD of it.

        None while it has not ended; None at the end of the reply.
        """
        start = self.at + after
        end = self.text.find("\n", start, start + HOLD)
        if end >= 0:
            return self.text[start : end + 1]
        if len(self.text) - start >= HOLD:
            return self.text[start : start + HOLD]
        return self.text[start:] or None if self.final else None

    def closing(self, closings: tuple[str, ...]) -> tuple[int, str | None]:
        """How many characters stand before the first of `closings`, and which it is.

        Without one: how many stand before where one may begin.
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
