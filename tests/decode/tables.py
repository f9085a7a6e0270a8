"""Models small enough to enumerate all their texts, and slow reference searches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

STOP, V = 0, 5


@dataclass
class Table:
    """A model whose next token depends on the last two and on how many there are; its state is the rows' history."""

    logits: Tensor  # (V, V, V)
    drift: Tensor = field(default_factory=lambda: torch.zeros(1, 1))  # (P, V) the same again after P places
    moves: int = 0  # how often rows were moved

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        history, read = torch.cat((state, ids), dim=1), state.size(1)
        places = torch.arange(read, history.size(1)) % len(self.drift)
        return self.logits[history[:, read - 1 : -1], history[:, read:]] + self.drift[places], history

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        self.moves += 1
        return state[rows]

    def start(self, rows: int) -> Tensor:
        return torch.ones(rows, 1, dtype=torch.long)

    def following(self, ids: tuple[int, ...]) -> Tensor:
        """The log-probabilities of what follows these tokens, (V,)."""
        history = (1, *ids)
        place = (len(history) - 1) % len(self.drift)
        return (self.logits[history[-2], history[-1]] + self.drift[place]).log_softmax(-1)

    def gains(self, prompt: tuple[int, ...], ids: tuple[int, ...]) -> tuple[float, ...]:
        """The log-probability of each token after a prompt."""
        return tuple(float(self.following(prompt + ids[:i])[token]) for i, token in enumerate(ids))


def table(seed: int = 3, size: int = V) -> Table:
    generator = torch.Generator().manual_seed(seed)
    logits, drift = torch.randn(size + 11, size, size, generator=generator, dtype=torch.float64).split([size, 11])
    return Table(2 * logits, drift[:, 0])


@dataclass(frozen=True)
class Found:
    """What a slow search found."""

    ids: tuple[int, ...]  # without the stop
    score: float
    finished: bool


def in_order(found: list[Found]) -> list[Found]:
    """Finished ones first, then by score."""
    return sorted(found, key=lambda each: (not each.finished, -each.score))


def exhaustive(model: Table, prompt: tuple[int, ...], longest: int, penalty: float) -> list[Found]:
    """Every text that stops within the length, and every one that is cut by it."""
    size = model.logits.size(-1)
    found = []
    for length in range(longest + 1):
        for ids in itertools.product(range(1, size), repeat=length):
            written = (*ids, STOP) if length < longest else ids
            score = sum(model.gains(prompt, written)) / len(written) ** penalty
            found.append(Found(ids, score, length < longest))
    return in_order(found)


def plain_beam_search(
    model: Table,
    prompt: tuple[int, ...],
    longest: int,
    penalty: float,
    beams: int,
    groups: int = 1,
    diversity: float = 0.0,
    no_repeat: int = 0,
    covered: Callable[[tuple[int, ...]], float] = lambda _: 0.0,
) -> list[Found]:
    """One text at a time, no tensors, no early stopping; `covered` is added to the score of what was read."""
    width = beams // groups
    open_: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    found: dict[tuple[int, ...], Found] = {}
    for length in range(1, longest + 1):
        taken: list[int] = []
        for group in range(groups):
            candidates = sorted(continuations(model, prompt, open_[group], taken, diversity, no_repeat), reverse=True)
            going = []
            for place, (_, score, ids) in enumerate(candidates):
                if ids[-1] != STOP:
                    going.append((score, ids))
                elif place < width:
                    found[ids[:-1]] = Found(ids[:-1], score / length**penalty + covered(prompt + ids[:-1]), True)
            open_[group] = going[:width]
            taken += [ids[-1] for _, ids in open_[group]]
    for score, ids in itertools.chain.from_iterable(open_):
        found.setdefault(ids, Found(ids, score / longest**penalty + covered(prompt + ids[:-1]), False))
    return in_order(list(found.values()))


def continuations(
    model: Table,
    prompt: tuple[int, ...],
    open_: list[tuple[float, tuple[int, ...]]],
    taken: list[int],
    diversity: float,
    no_repeat: int,
) -> Iterator[tuple[float, float, tuple[int, ...]]]:
    """What decides, the score, and the text with one more token."""
    for score, ids in open_:
        for token, gain in enumerate(model.following(prompt + ids).tolist()):
            if not repeats((*prompt, *ids, token), no_repeat):
                yield score + gain - diversity * taken.count(token), score + gain, (*ids, token)


def repeats(ids: tuple[int, ...], size: int) -> bool:
    """Whether the last run of tokens was there before."""
    runs = [ids[i : i + size] for i in range(len(ids) - size + 1)]
    return bool(size) and len(runs) > 0 and runs[-1] in runs[:-1]
