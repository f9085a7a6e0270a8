"""Long text in short pieces, because the memory of tokenising grows with the length of the text."""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 1 << 14  # characters


def pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces of bounded length, cut before a space if possible; joined they are the text."""
    start = 0
    while len(text) - start > LONGEST:
        space = text.rfind(" ", start + 1, start + LONGEST)
        end = space if space > 0 else start + LONGEST
        yield text[start:end]
        start = end
    yield text[start:]
