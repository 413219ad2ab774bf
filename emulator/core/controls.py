"""Characters that no name, address or line of a log has: they end a line, move a cursor, reorder a text, or
nobody sees them (Unicode's categories Cc, Cf, Zl and Zp, as far as terminals and servers care)."""

CONTROLS = r"\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""For the character classes of regular expressions."""


def printable(text: str) -> str:
    """Return ``text``, which a server wrote, with escapes for what a terminal would not print."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
