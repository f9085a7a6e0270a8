"""Attention while a text is written: what each token looked at when it was written, and not when it was read again.

A step of writing computes only what is new, over keys and values that a cache has kept; beams change places and rows
that have ended leave the batch. So every row takes along what it has computed so far, and wherever it goes, its blocks
put together are what reading the finished text at once would have given. Tests hold the two equal.

    B rows, H heads, G key-value heads, T queries or tokens, S keys, D size of a vector
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

import torch
from torch import Tensor

from clearhead.decode import Prompts, Settings, write
from clearhead.errors import ProbeError
from clearhead.look.look import Look
from clearhead.look.probes import capture, stacks
from clearhead.look.see import About, Example, evaluating, look_of, readable, wanted
from clearhead.nn import Decoder, Encoder, Explicit, Mask, MultiHeadAttention

Block = dict[str, Tensor]  # what one row computed in one step, by probe; no batch


class Vocabulary(Protocol):
    """Ids to text: a tokenizer."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each id by itself."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of all."""
        ...


@dataclass(frozen=True)
class Beginning:
    """What a text goes on from."""

    prompt: Sequence[int]
    sources: tuple[Tensor, ...] = ()  # what the network reads before it, each a batch of one
    stop: int | None = None  # the token that ends the text
    encoder: Sequence[str] = ()  # the words that an encoder reads
    before: Sequence[str] = ()  # what stands before the prompt in the decoder: patches


def look_while_writing(
    network: Any, beginning: Beginning, settings: Settings, vocabulary: Vocabulary, about: About
) -> Look:
    """What the network computed for the best text while it wrote it; the answer is that text."""
    place = next(network.parameters()).device
    with evaluating(network), watching(network) as watched:
        state = watched.start(*(source.to(place) for source in beginning.sources))
        prompts = Prompts([beginning.prompt], beginning.stop, device=place)
        [[best, *_]] = write(watched, state, prompts, replace(settings, scored=True))
    if not best.log_probabilities:
        raise ProbeError(f"longest={settings.longest} leaves no room for a token, so there is no writing to look at")
    end = [beginning.stop] if best.finished and beginning.stop is not None else []
    whole = [*beginning.prompt, *best.ids, *end]
    words = [readable(piece) for piece in vocabulary.pieces(whole)]
    example = Example(
        inputs=(*beginning.sources, torch.tensor([whole[:-1]])),
        encoder=beginning.encoder,
        decoder=[*beginning.before, *words[:-1]],
        written=words[1:],
    )
    seen = {name: tensor.cpu() for name, tensor in watched.seen(0, whole[:-1]).items()}
    text = vocabulary.decode(best.ids)
    return look_of(network, example, replace(about, answer=lambda _logits: text), seen)


# --- every row takes along what it has computed ---


@dataclass(frozen=True)
class Trail:
    """One row: where it began, what it has read, and what it computed, one block after the other."""

    row: int  # its place when nothing was written yet
    ids: tuple[int, ...]
    blocks: tuple[Block, ...]

    def further(self, ids: Sequence[int], block: Block) -> Trail:
        """With the tokens of one more step."""
        return Trail(self.row, (*self.ids, *ids), (*self.blocks, block))


@dataclass(frozen=True)
class Rows:
    """What the network knows between two steps, and the trail of each row."""

    state: Any
    trails: list[Trail]  # B


@contextmanager
def watching(network: Any) -> Iterator[Watched]:
    """The network as a stepper that keeps what it computes."""
    names = [name for name in wanted(network) if not fnmatchcase(name, "decoder.*.self.scores")]
    with capture(network, *names) as seen:
        yield Watched(network, seen)


class Watched:
    """A network that writes, and keeps what it computes for every text: for `decode` it is a stepper like any other."""

    def __init__(self, network: Any, now: Block):
        self.network = network
        self.now = now  # what is being computed, (B, …)
        self.read: list[Block] = []  # of each row, what an encoder computed
        self.trails: dict[tuple[int, tuple[int, ...]], Trail] = {}  # by row and text

    @torch.no_grad()
    def start(self, *sources: Tensor) -> Rows:
        """Read the sources, ready to write; a network that reads none has one row."""
        state = self.network.start(*sources)
        rows = self._rows(len(sources[0]) if sources else 1)
        self.read = [_of("encoder", row) for row in rows]
        blocks = [_of("decoder", row) for row in rows]  # patches, if they are the first tokens of the text
        return Rows(state, [Trail(row, (), (block,) if block else ()) for row, block in enumerate(blocks)])

    def step(self, ids: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        logits, after = self.network.step(ids, state.state)
        steps = zip(state.trails, ids.tolist(), self._rows(len(ids)), strict=True)
        trails = [trail.further(read, block) for trail, read, block in steps]
        self.trails |= {(trail.row, trail.ids): trail for trail in trails}
        return logits, Rows(after, trails)

    def _rows(self, count: int) -> list[Block]:
        """What each row has just computed."""
        rows = [{name: tensor[row] for name, tensor in self.now.items()} for row in range(count)]
        self.now.clear()
        return rows

    def reorder(self, state: Rows, rows: Tensor) -> Rows:
        """Row i becomes what row rows[i] was, with all that it has computed."""
        return Rows(self.network.reorder(state.state, rows), [state.trails[row] for row in rows.tolist()])

    def seen(self, row: int, ids: Sequence[int]) -> Block:
        """All that was computed for the text that began as this row and has read these tokens: (H, T, S) and so on."""
        blocks = self.trails[row, tuple(ids)].blocks
        found = {name: _joined(name, [block for block in blocks if name in block]) for name in blocks[-1]}
        return self.read[row] | found | self._scores(found)

    def _scores(self, found: Block) -> Block:
        """No token is scored against those after it while it is written; the equation knows what it would be."""
        stack = stacks(self.network)["decoder"]
        blocks: Any = stack.blocks if isinstance(stack, Encoder | Decoder) else ()
        names = [f"decoder.{number}.self" for number in range(len(blocks))]
        return {
            f"{name}.scores": _every_score(block.self_attention, found[f"{name}.query"], found[f"{name}.key"])
            for name, block in zip(names, blocks, strict=True)
        }


def _of(stack: str, block: Block) -> Block:
    """What one stack computed."""
    return {name: tensor for name, tensor in block.items() if name.startswith(f"{stack}.")}


def _every_score(layer: MultiHeadAttention, q: Tensor, k: Tensor) -> Tensor:
    """q (H, T, D), k (G, T, D) -> (H, T, T), before the mask."""
    equation = Explicit(layer.kernel.explicit().score, weigh=lambda scores, _mask: scores)
    with torch.no_grad():
        return equation.weights(q[None], k[None], Mask(), bias=layer.relative.bias)[0]


# --- blocks put together ---


def _joined(name: str, blocks: Sequence[Block]) -> Tensor:
    """One probe of a whole text, from its blocks."""
    parts = [block[name] for block in blocks]
    match name.split("."):
        case [_, _, "self", "weights" | "visible"]:
            return _placed(parts)
        case [stack, layer, "self", "key" | "value"]:
            new = [block[f"{stack}.{layer}.self.query"].size(-2) for block in blocks]
            return torch.cat([part[..., -count:, :] for part, count in zip(parts, new, strict=True)], dim=-2)
        case [_, _, "cross", "key" | "value"]:
            return parts[0].clone()
        case _:
            return torch.cat(parts, dim=-2)


def _placed(parts: Sequence[Tensor]) -> Tensor:
    """Tables (…, new queries, keys) -> (…, T, T): the keys of each end where its queries do; no others were seen."""
    length, end = sum(part.size(-2) for part in parts), 0
    whole = parts[0].new_zeros(*parts[0].shape[:-2], length, length)
    for part in parts:
        queries, keys = part.shape[-2:]
        end += queries
        whole[..., end - queries : end, end - keys : end] = part
    return whole
