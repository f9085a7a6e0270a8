"""Text as it is written: pieces that no later token can change. Knows nothing of tensors or models.

A token may end in the middle of a character, whose bytes read as � until the rest is there, and in the middle of a stop
string, which no reader should see the beginning of. Both wait:

    for piece in pieces(tokens, tokenizer.decode, stops=["\\n\\n"]):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from clearhead.errors import ConfigError

Decode = Callable[[list[int]], str]

_UNREADABLE = "�"
_UNFINISHED = 3  # bytes that a character of at most four can be short of its end
_MEMORY = 64  # tokens after which all but half of them are forgotten, so that a long text costs no more for each token


class TextStream:
    """The text of one row: takes tokens, gives the text that is certain.

    `before` are the tokens of the prompt, whose text is not given but may decide how the next token reads.
    """

    def __init__(self, decode: Decode, before: Sequence[int] = (), stops: Sequence[str] = ()):
        if "" in stops:
            raise ConfigError("a stop string is empty; leave it out to go on to the end")
        self.decode, self.stops = decode, tuple(stops)
        self.ended = False  # whether a stop string was met: nothing follows
        self._ids = list(before)
        self._given = _certain(self.decode(self._ids)) if before else ""  # of the ids, those of the prompt too
        self._waiting = ""  # certain, but perhaps the beginning of a stop string

    def add(self, token: int) -> str:
        """The text that became certain with this token, perhaps none."""
        self._ids.append(token)
        return self._pass(self._new(_certain(self.decode(self._ids))))

    def end(self) -> str:
        """The text that waited for tokens that do not come."""
        rest = self._pass(self.decode(self._ids)[len(self._given) :]) if self._ids else ""
        rest, self._waiting, self.ended = rest + self._waiting, "", True
        return rest

    def _new(self, certain: str) -> str:
        """What was not given yet; a text that reads differently for a moment waits until it is itself again."""
        if not certain.startswith(self._given):
            return ""
        new, self._given = certain[len(self._given) :], certain
        if len(self._ids) >= _MEMORY:
            self._forget()
        return new

    def _forget(self) -> None:
        """Leave out the oldest ids, if the rest reads the same without them."""
        ids = self._ids[-_MEMORY // 2 :]
        text, short = self.decode(self._ids), self.decode(ids)
        waiting = len(text) - len(self._given)
        if text.endswith(short) and waiting <= len(short):
            self._ids, self._given = ids, short[: len(short) - waiting]

    def _pass(self, new: str) -> str:
        """The text up to the first stop string, or up to what could become one."""
        if self.ended:
            return ""
        text = self._waiting + new
        if (place := first_stop(text, self.stops)) is not None:
            self.ended, self._waiting = True, ""
            return text[:place]
        certain = len(text) - max((_begun(text, stop) for stop in self.stops), default=0)
        self._waiting = text[certain:]
        return text[:certain]


def pieces(
    tokens: Iterable[int], decode: Decode, before: Sequence[int] = (), stops: Sequence[str] = ()
) -> Iterator[str]:
    """The text of tokens in certain pieces; after a stop string no further token is asked for."""
    stream = TextStream(decode, before, stops)
    for token in tokens:
        if piece := stream.add(token):
            yield piece
        if stream.ended:
            return
    if piece := stream.end():
        yield piece


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first, of several the longest; none if there is none."""
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _certain(text: str) -> str:
    """A text without what may still change at its end: the unreadable, but no more of it than one character."""
    unfinished = min(_UNFINISHED, len(text) - len(text.rstrip(_UNREADABLE)))
    return text[: len(text) - unfinished]
