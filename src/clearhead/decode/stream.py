"""Text from tokens as they come: pieces that no later token can change. Needs neither torch nor a model.

A token may end in the middle of a character, whose bytes decode to � until the rest arrives, and in the middle of a
stop string, of which no part may be shown. Both are held back:

    for piece in text_pieces(tokens, tokenizer.decode, stops=["\\n\\n"]):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from clearhead.errors import ConfigError

Decode = Callable[[list[int]], str]

_REPLACEMENT = "�"
_MISSING_BYTES = 3  # of a character of at most four bytes
_MEMORY = 16  # tokens after which the older half is forgotten, so that the cost per token does not grow with the text


class TextStream:
    """The text of one row: takes tokens, returns the text that is certain.

    `before` are the tokens of the prompt, whose text is not returned but may decide how the next token is decoded.
    Where tokens decode to their `texts` side by side, nothing else is needed.
    """

    def __init__(
        self,
        decode: Decode,
        before: Sequence[int] = (),
        stops: Sequence[str] = (),
        texts: Sequence[str] | None = None,
    ):
        if "" in stops:
            raise ConfigError("a stop string is empty; leave it out to generate to the end")
        self.decode, self.stops, self.texts = decode, tuple(stops), texts
        self.ended = False  # whether a stop string occurred: nothing follows
        self._ids = [] if texts is not None else list(before)
        self._returned = _certain(self.decode(self._ids)) if self._ids else ""  # of the ids, the prompt included
        self._held = ""  # certain, but perhaps the beginning of a stop string

    def add(self, token: int) -> str:
        """The text that became certain with this token, perhaps none."""
        if self.texts is not None:
            return self._until_stop(self.texts[token])
        self._ids.append(token)
        return self._until_stop(self._new(_certain(self.decode(self._ids))))

    def end(self) -> str:
        """The text that was held back for tokens that do not come."""
        rest = self._until_stop(self.decode(self._ids)[len(self._returned) :]) if self._ids else ""
        rest, self._held, self.ended = rest + self._held, "", True
        return rest

    def _new(self, certain: str) -> str:
        """What was not returned yet; nothing while the text decodes differently for a moment."""
        if not certain.startswith(self._returned):
            return ""
        new, self._returned = certain[len(self._returned) :], certain
        if len(self._ids) >= _MEMORY:
            self._forget()
        return new

    def _forget(self) -> None:
        """Drop the oldest ids, if the rest decodes to the same text without them."""
        ids = self._ids[-_MEMORY // 2 :]
        text, short = self.decode(self._ids), self.decode(ids)
        held = len(text) - len(self._returned)
        if text.endswith(short) and held <= len(short):
            self._ids, self._returned = ids, short[: len(short) - held]

    def _until_stop(self, new: str) -> str:
        """The text up to the first stop string, or up to what could become one."""
        if self.ended:
            return ""
        if not self.stops:
            return new
        text = self._held + new
        if (place := first_stop(text, self.stops)) is not None:
            self.ended, self._held = True, ""
            return text[:place]
        certain = len(text) - max((_begun(text, stop) for stop in self.stops), default=0)
        self._held = text[certain:]
        return text[:certain]


def text_pieces(
    tokens: Iterable[int], decode: Decode, before: Sequence[int] = (), stops: Sequence[str] = ()
) -> Iterator[str]:
    """The text of tokens in certain pieces; after a stop string no further token is consumed."""
    stream = TextStream(decode, before, stops)
    for token in tokens:
        if piece := stream.add(token):
            yield piece
        if stream.ended:
            return
    if piece := stream.end():
        yield piece


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first, of several the longest; None without any."""
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _certain(text: str) -> str:
    """A text without the � at its end that may still become a character, at most as many as one can be short of."""
    unfinished = min(_MISSING_BYTES, len(text) - len(text.rstrip(_REPLACEMENT)))
    return text[: len(text) - unfinished]
