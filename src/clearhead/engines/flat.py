"""The engine `torch`: the steps of a Transformer in torch's operations, written flat, for where there is no compiler.

A step of one token is token.py; a prompt of many is read here, by the same parts and the fused kernel.

    B rows, T new tokens, N = B T, S tokens seen, H heads, G key-value heads, K key size, V value size, D width
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decode.logits import ANY_TOKEN
from clearhead.decode.rows import Hypothesis, Prompts
from clearhead.decode.settings import Settings
from clearhead.decode.stepper import part_length, rank
from clearhead.engines.layout import (
    input_that_is_written,
    is_transformer_that_writes,
    stack_that_writes,
    unsupported,
)
from clearhead.engines.search import is_plain, may_be_searched
from clearhead.engines.token import Across, Block, Cross, Past, SelfAttention, Token, scripted, some_of
from clearhead.engines.vectors import Vectors
from clearhead.models.assemble import smaller
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import AttentionWriter
from clearhead.nn import Mask, MultiHeadAttention, Rotary
from clearhead.nn.attention import fused_attention

ROOM = 16  # tokens that a cache begins with
JOINED = 2**21  # numbers of joined keys and values that stay in a cache
MOST = 2**16  # tokens of all rows for which there is room from the beginning
MANY_STEPS = 1000  # for which TorchScript, which takes half a second to begin with, is worth it


@dataclass
class State:
    """What is known between two steps."""

    keys: list[Tensor]  # of each layer, (B, G, room, K)
    values: list[Tensor]  # of each layer, (B, G, room, V)
    across: Across  # the sources
    sentence: list[int]  # B, which of the M a row is about: as many rows for each, in order
    window: int | None  # tokens that are looked back at
    length: int = 0  # tokens read
    first: int = 0  # the position of the first that is in the caches

    @property
    def held(self) -> int:
        """Tokens in the caches."""
        return self.length - self.first

    def make_room(self, rows: int, tokens: int) -> None:
        """For so many more; a text has one beginning for all its rows. What no window shows any more is forgotten."""
        if self.window is not None and self.held > 2 * self.window:
            self.keys, self.values = ([self._last(x, self.window) for x in each] for each in (self.keys, self.values))
            self.first = self.length - self.window
        have, _, room, _ = self.keys[0].shape
        if self.held + tokens > room or rows > have:
            room = max(room, 2 * (self.held + tokens))
            self.keys, self.values = ([self._longer(x, rows, room) for x in each] for each in (self.keys, self.values))

    def _last(self, cache: Tensor, count: int) -> Tensor:
        return cache[:, :, self.held - count : self.held].clone()

    def _longer(self, cache: Tensor, rows: int, room: int) -> Tensor:
        new = cache.new_empty(rows, cache.size(1), room, cache.size(3))
        new[:, :, : self.held] = cache[:, :, : self.held]
        return new

    def reordered(self, rows: Tensor) -> State:
        """Row i becomes what row rows[i] was; a sentence is only copied when another leaves."""
        keys, values = ([cache.index_select(0, rows) for cache in each] for each in (self.keys, self.values))
        new = replace(self, keys=keys, values=values)
        if not self.across.keys:
            return new
        wanted = [self.sentence[row] for row in rows.tolist()]
        kept = list(dict.fromkeys(wanted))
        each, left = divmod(len(wanted), len(kept))
        if left or wanted != [sentence for sentence in kept for _ in range(each)]:
            kept, each = wanted, 1
        new.sentence = [number for number in range(len(kept)) for _ in range(each)]
        if kept != list(range(len(self.across.keys[0]))):
            new.across = some_of(self.across, torch.tensor(kept, device=rows.device))
        return new


class Flat:
    """A model whose steps are flat; a Stepper like the model itself."""

    def __init__(self, network: AttentionWriter | LanguageModel, *, many: bool = False):
        """`many` where it is known that many steps will be made."""
        self.network = network
        self.stack = stack_that_writes(network)
        layers: list[MultiHeadAttention] = [block.self_attention for block in self.stack.blocks]  # type: ignore[misc]
        self.relatives = [layer.relative for layer in layers]
        self.vectors = Vectors(input_that_is_written(network), concatenated=network.config.position_concat)
        with torch.inference_mode():
            self.token = Token(self.stack, network.output.linear)
        self.blocks = [block for block in self.token.blocks if isinstance(block, Block)]
        self.one_token: Any = self.token
        self.rank: Any = rank
        self.steps = 0
        if many:
            self.prepare()

    def prepare(self) -> None:
        """For many steps."""
        self.one_token, self.rank = self._scripts

    @cached_property
    def _scripts(self) -> tuple[Any, Any]:
        return scripted(self.token), scripted(rank)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the model."""
        return self.network.parameters()

    @torch.inference_mode()
    def start(self, *source: Tensor, window: int | None = None) -> State:
        """Read the source, if there is one, ready to write; `window` as a language model takes it."""
        rows, across = 1, Across([], [], [], None)
        if isinstance(self.network, AttentionWriter):
            memory, real = self.network.encode(*source)  # (B, S, D), (B, 1, S)
            rows, across = len(memory), self._across(memory, real)
        parts, new = [block.attention for block in self.blocks], self.token.output.weight.new_empty
        return State(
            keys=[new(rows, part.groups, ROOM, part.key_dim) for part in parts],
            values=[new(rows, part.groups, ROOM, part.value_dim) for part in parts],
            across=across,
            sentence=list(range(rows)),
            window=smaller(self.network.config.window, window),
        )

    def _across(self, memory: Tensor, real: Tensor) -> Across:
        """What is looked at of sources (M, S, D), of which some is real, (M, 1, S)."""
        hidden = None if real.all() else memory.new_zeros(real.shape).masked_fill_(~real, -math.inf)
        crosses = [block.cross.attention for block in self.blocks if isinstance(block.cross, Cross)]
        layers: Any = [block.cross_attention for block in self.stack.blocks]
        pairs = [layer.keys_and_values(memory) for layer in layers]
        if worth_joining(len(crosses), len(memory), memory.size(1), crosses[0].heads, len(crosses[0].query.weight)):
            triples = [cross.join(k, v, hidden) for cross, (k, v) in zip(crosses, pairs, strict=True)]
            keys, values, added = (list(each) for each in zip(*triples, strict=True))
            return Across(keys, values, added, hidden=None)
        keys, values = ([pair[which].contiguous() for pair in pairs] for which in (0, 1))
        return Across(keys, values, [], hidden)

    @torch.inference_mode()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        rows, tokens = ids.shape
        state.make_room(rows, tokens)
        x = self.vectors.of(ids, state.length).view(rows * tokens, -1)
        logits = self._one_token(x, state) if tokens == 1 else self._many_tokens(x, rows, state)
        state.length += tokens
        return logits.view(rows, tokens, -1), state

    def _one_token(self, x: Tensor, state: State) -> Tensor:
        """(B, D) -> logits (B, V)."""
        self.steps += 1
        if self.steps == MANY_STEPS:
            self.prepare()
        last = state.held
        first = 0 if state.window is None else max(0, last + 1 - state.window)
        turns, biases = self._turns(state.length), self._biases(first, last, x.device)
        logits: Tensor = self.one_token(x, Past(state.keys, state.values, first, last, turns, biases), state.across)
        return logits

    def _turns(self, place: int) -> list[Tensor]:
        """Of each layer with rotary positions, (2, K): by what queries and keys of a place are turned."""
        return [torch.cat(relative.turn(place, 1)) for relative in self.relatives if isinstance(relative, Rotary)]

    def _biases(self, first: int, last: int, device: torch.device) -> list[Tensor]:
        """Of each layer that adds something to its scores, (H, S)."""
        added = [relative.bias for relative in self.relatives if relative.bias is not None]
        places = torch.arange(first, last + 1, device=device) if added else torch.empty(0)
        return [bias(places[-1:], places).squeeze(1).to(self.token.output.weight.dtype) for bias in added]

    def _many_tokens(self, x: Tensor, rows: int, state: State) -> Tensor:
        """(N, D) -> logits (N, V)."""
        for number, block in enumerate(self.blocks):
            mixed = self._looked_back(block.attention, block.around_self.before(x), rows, number, state)
            x = block.rest(x, mixed, state.across, number)
        logits: Tensor = self.token.output(self.token.norm(x))
        return logits

    def _looked_back(self, part: SelfAttention, x: Tensor, rows: int, number: int, state: State) -> Tensor:
        """Self-attention of many tokens, (N, D) -> (N, D)."""
        relative, held = self.relatives[number], state.held
        sizes = ((part.heads, part.key_dim), (part.groups, part.key_dim), (part.groups, part.value_dim))
        parts = torch.split_with_sizes(part.project(x), part.widths, dim=1)
        q, k, v = (each.view(rows, -1, *size).transpose(1, 2) for each, size in zip(parts, sizes, strict=True))
        q, k = (relative.rotate(each, state.length) for each in (q, k))
        keys, values = _extended(state.keys[number], k, held), _extended(state.values[number], v, held)
        mask = Mask(causal=True, window=state.window)
        mixed = fused_attention(q, keys, values, mask, scale=1.0, bias=relative.bias, offset=held)
        output: Tensor = part.output(mixed.transpose(1, 2).reshape(len(x), -1))
        return output

    def can_search(self, state: State, prompts: Prompts, settings: Settings) -> bool:
        """Whether TorchScript can do the whole search."""
        rows = len(prompts.ids)
        longest = prompts.limits(settings)
        in_order = not state.across.keys or state.sentence == list(range(rows))
        if not (self._is_for_script(state, settings) and in_order and may_be_searched(state.length, prompts, longest)):
            return False
        end = len(prompts.ids[0]) + max(longest)
        return rows * end <= MOST and self.vectors.reach(end)

    def _is_for_script(self, state: State, settings: Settings) -> bool:
        """Whether TorchScript has all that is asked for."""
        plain = (
            is_plain(settings) and settings.beam_width == 1 and not settings.return_logprobs and state.window is None
        )
        relative = any(isinstance(each, Rotary) or each.bias is not None for each in self.relatives)
        return plain and not relative and self.one_token is not self.token

    @torch.inference_mode()
    def search(self, state: State, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
        """Greedy texts without Python between two tokens."""
        longest = prompts.limits(settings)
        ids = torch.tensor(prompts.ids, device=prompts.device)  # (B, P)
        for part in ids[:, :-1].split(part_length(len(ids)), dim=1) if ids.size(1) > 1 else ():
            _, state = self.step(part, state)
        state.make_room(len(ids), 1 + max(longest))
        tokens, stop = self.vectors.embed.tokens, ANY_TOKEN - 1 if prompts.stop is None else prompts.stop
        written = self.one_token.write_greedily(
            ids[:, -1],
            torch.tensor(longest, device=ids.device),
            stop,
            tokens.table.weight,
            tokens.scale,
            self.vectors.places[0],
            state.keys,
            state.values,
            state.held,
            state.across,
        )
        return [[Hypothesis([token for token in row if token not in (ANY_TOKEN, stop)])] for row in written.tolist()]

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """logits (B, V) -> the largest (B, count), falling, their tokens, and log Σ exp of each row (B,)."""
        found: tuple[Tensor, Tensor, Tensor] = self.rank(logits, count)
        return found

    def reorder(self, state: State, rows: Tensor) -> State:
        """Row i becomes what row rows[i] was."""
        return state.reordered(rows)


def worth_joining(layers: int, sentences: int, length: int, heads: int, dim: int) -> bool:
    """Whether joined keys and values are less to multiply, and few enough to stay in the processor's cache."""
    return heads * length <= dim + length and 2 * layers * sentences * heads * length * dim <= JOINED


def _extended(cache: Tensor, new: Tensor, held: int) -> Tensor:
    """Put new keys or values (B, G, T, K) into a cache (B, G, room, K), and give all that it holds."""
    cache.narrow(2, held, new.size(2)).copy_(new)
    return cache.narrow(2, 0, held + new.size(2))


def flat(network: Any) -> Any:
    """A network in flat steps, with the weights that it has now; or the network itself, if it has parts of its own."""
    return Flat(network) if can_be_flat(network) else network


def can_be_flat(network: object) -> bool:
    """Whether this engine has all parts of a network."""
    return is_transformer_that_writes(network) and not [*unsupported(stack_that_writes(network))]
