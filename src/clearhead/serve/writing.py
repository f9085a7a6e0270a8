"""Several texts written together, each with settings of its own, and told piece by piece.

All rows of a batch are equally long: they read what is in all of their prompts at once, and from then on each takes one
token at a time, its own next one while its prompt lasts, then what it chooses. A row that has ended, or that nobody
waits for, leaves the batch.

    B rows, T tokens, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.decode import Settings, TextStream
from clearhead.decode.logits import make_sampler, row_generator
from clearhead.decode.stepper import select_rows
from clearhead.text import Tokenizer

Finish = Literal["stop", "length"]

NUMBERS = 64_000_000  # logits that one step may hold: a long prompt is read in parts


@dataclass(frozen=True)
class Scored:
    """A token, how likely the model found it, and what it found likeliest in its place."""

    text: str
    offset: int  # characters before it
    log_probability: float | None  # none for the first token of all, which follows nothing
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Chunk:
    """The next part of a text."""

    text: str
    tokens: tuple[Scored, ...] = ()
    written: int = 0  # tokens, those of the prompt not counted
    finish: Finish | None = None


@dataclass(frozen=True)
class Ask:
    """What is to be written, and what is to be told of it."""

    prompt: tuple[int, ...]
    settings: Settings
    number: int = 0  # which of several texts from this prompt: each draws with random numbers of its own
    stops: tuple[str, ...] = ()
    likeliest: int | None = None  # alternatives told of each token; none = no log-probabilities at all
    echo: bool = False  # tell the prompt too
    tell: Callable[[Chunk], None] = field(default=lambda _: None, compare=False)


@dataclass(frozen=True)
class Vocabulary:
    """Ids as texts."""

    tokenizer: Tokenizer

    @cached_property
    def texts(self) -> list[str]:
        """Each token as it stands in a text."""
        return [piece.replace("▁", " ") for piece in self.tokenizer.pieces(range(len(self.tokenizer)))]


class Row:
    """One text that is being written."""

    def __init__(self, ask: Ask, vocabulary: Vocabulary, still_wanted: Callable[[], bool]):
        self.ask, self.vocabulary, self.still_wanted = ask, vocabulary, still_wanted
        self.ids = list(ask.prompt)
        self.ended = False
        self._sampler, self._random = make_sampler(ask.settings), row_generator(ask.settings.seed, ask.number)
        self._stream = TextStream(vocabulary.tokenizer.decode, ask.prompt, ask.stops)
        self._length = 0  # characters told
        self._pending: list[Scored] = []  # tokens whose text is not certain yet
        self._prompt_facts: list[tuple[float | None, tuple[tuple[str, float], ...]]] = [(None, ())]

    @property
    def going(self) -> bool:
        """Whether it goes on."""
        return not self.ended and self.still_wanted()

    @property
    def written(self) -> int:
        """Tokens after the prompt."""
        return len(self.ids) - len(self.ask.prompt)

    def see(self, logits: Tensor, start: int) -> None:
        """The logits (T, V) of what follows the tokens from `start` on: score the prompt, or write one token."""
        if self.ask.echo and self.ask.likeliest is not None and start < len(self.ask.prompt):
            self._score_prompt(logits, start)
        if len(self.ids) > start + len(logits):
            return
        if not self.written and self.ask.echo:
            self._tell_prompt()
        if self.ask.settings.max_tokens == 0:
            self._end("length")
        else:
            self._write(logits[-1:])

    def _score_prompt(self, logits: Tensor, start: int) -> None:
        after = self.ask.prompt[start + 1 : start + 1 + len(logits)]
        logp = logits[: len(after)].log_softmax(-1)
        self._prompt_facts += [self._facts(row, token) for row, token in zip(logp, after, strict=True)]

    def _facts(self, logp: Tensor, token: int) -> tuple[float, tuple[tuple[str, float], ...]]:
        """Of log-probabilities (V,): that of a token, and those of the likeliest, always with the token itself."""
        best = logp.topk(min(self.ask.likeliest or 0, len(logp)))
        known = zip([*best.indices.tolist(), token], [*best.values.tolist(), float(logp[token])], strict=True)
        likeliest: dict[str, float] = {}
        for index, value in known:  # of several tokens that read alike, the likeliest counts
            likeliest.setdefault(self.vocabulary.texts[index], value)
        return float(logp[token]), tuple(likeliest.items())

    def _tell_prompt(self) -> None:
        """The prompt as the first part of the text."""
        decode, facts = self.vocabulary.tokenizer.decode, iter(self._prompt_facts)
        reading, tokens = TextStream(decode), []
        for token in self.ask.prompt if self.ask.likeliest is not None else ():
            tokens.append(Scored(self.vocabulary.texts[token], self._length, *next(facts)))
            self._length += len(reading.add(token))
        text = decode(list(self.ask.prompt))
        self._length = len(text)
        self.ask.tell(Chunk(text, tuple(tokens)))

    def _write(self, logits: Tensor) -> None:
        """Choose one token by its logits (1, V), and tell what became certain."""
        token = int(self._sampler(logits, [self._random.random()]))
        if token == self.vocabulary.tokenizer.stop:
            self._end("stop")
            return
        self.ids.append(token)
        if self.ask.likeliest is not None:
            facts = self._facts(logits[0].log_softmax(-1), token)
            self._pending.append(Scored(self.vocabulary.texts[token], self._length, *facts))
        piece = self._stream.add(token)
        self._length += len(piece)
        if self._stream.ended:
            self._end("stop", piece)
        elif self.written == self.ask.settings.max_tokens:
            self._end("length", piece)
        elif piece:
            self.ask.tell(Chunk(piece, self._certain(), self.written))

    def _end(self, finish: Finish, piece: str = "") -> None:
        """Tell the last part."""
        rest = "" if self._stream.ended else self._stream.end()
        self._length += len(rest)
        self.ended = True
        self.ask.tell(Chunk(piece + rest, self._certain(), self.written, finish))

    def _certain(self) -> tuple[Scored, ...]:
        """The tokens that are in the text now; those of a stop string never are."""
        told, self._pending = tuple(each for each in self._pending if each.offset < self._length), []
        return told


@torch.inference_mode()
def write_together(network: Any, rows: Sequence[Row]) -> Iterator[None]:
    """One step of all rows after the other, until none goes on."""
    going, read, state = list(rows), 0, network.start()
    size = len(rows[0].vocabulary.texts)
    while going:
        most = max(1, NUMBERS // (len(going) * size))
        upto = min(read + most, *(len(row.ids) for row in going))
        logits, state = network.step(torch.tensor([row.ids[read:upto] for row in going]), state)  # (B, T, V)
        for row, each in zip(going, logits.float(), strict=True):
            row.see(each, read)
        read = upto
        yield
        kept = [i for i, row in enumerate(going) if row.going]
        state = select_rows(network, state, kept, len(going))
        going = [going[i] for i in kept]
