"""The engine `torch`: decoding steps of a Transformer with all its modules inlined, for machines without a compiler.

A step of one token is in inlined.py, as TorchScript; a prompt of many is read here, with the same parts and the fused
attention kernel.

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
from clearhead.decode.settings import Hypothesis, Prompts, Settings
from clearhead.decode.stepper import part_length, rank
from clearhead.engines.inlined import (
    Block,
    Cross,
    CrossKV,
    InlinedStack,
    SelfAttention,
    SelfKV,
    scripted,
    select_sources,
)
from clearhead.engines.native.engine import is_plain_search
from clearhead.engines.native.layout import TokenVectors, unsupported_parts
from clearhead.models.build import smaller_window
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import EncoderDecoder
from clearhead.nn import Mask, MultiHeadAttention
from clearhead.nn.attention import fused_attention

CAPACITY = 16  # tokens, initially, of a cache
MAX_JOINED = 2**21  # joined keys and values that still fit into the processor's cache
MAX_PREALLOCATED = 2**16  # tokens of all rows for which memory is taken at once
SCRIPT_MIN_STEPS = 1000  # after which compiling TorchScript, which takes half a second, is worth it


@dataclass
class TorchScriptState:
    """What is known between two steps."""

    keys: list[Tensor]  # of each layer, (B, G, room, K)
    values: list[Tensor]  # of each layer, (B, G, room, V)
    source: CrossKV
    sentence: list[int]  # B, the source of each row: as many rows for each, in order
    window: int | None  # tokens that are visible
    length: int = 0  # tokens read
    first: int = 0  # the position of the first that is in the caches

    @property
    def held(self) -> int:
        """Tokens in the caches."""
        return self.length - self.first

    def make_room(self, rows: int, tokens: int) -> None:
        """Make room for new tokens, and drop those outside the window; a language model starts with one row for all."""
        if self.window is not None and self.held > 2 * self.window:
            kept = slice(self.held - self.window, self.held)
            self.keys, self.values = ([x[:, :, kept].clone() for x in each] for each in (self.keys, self.values))
            self.first = self.length - self.window
        have, _, room, _ = self.keys[0].shape
        if self.held + tokens > room or rows > have:
            room = max(room, 2 * (self.held + tokens))
            self.keys, self.values = ([self._longer(x, rows, room) for x in each] for each in (self.keys, self.values))

    def _longer(self, cache: Tensor, rows: int, room: int) -> Tensor:
        new = cache.new_empty(rows, cache.size(1), room, cache.size(3))
        new[:, :, : self.held] = cache[:, :, : self.held]
        return new

    def reordered(self, rows: Tensor) -> TorchScriptState:
        """Row i becomes what row rows[i] was; the sources are only copied when one leaves."""
        keys, values = ([cache.index_select(0, rows) for cache in each] for each in (self.keys, self.values))
        new = replace(self, keys=keys, values=values)
        if not self.source.keys:
            return new
        order = [self.sentence[row] for row in rows.tolist()]
        kept = list(dict.fromkeys(order))
        each, left = divmod(len(order), len(kept))
        if left or order != [sentence for sentence in kept for _ in range(each)]:
            kept, each = order, 1
        new.sentence = [number for number in range(len(kept)) for _ in range(each)]
        if kept != list(range(len(self.source.keys[0]))):
            new.source = select_sources(self.source, torch.tensor(kept, device=rows.device))
        return new


class TorchScriptEngine:
    """A model whose modules are inlined; a Stepper like the model itself."""

    def __init__(self, network: EncoderDecoder | LanguageModel, *, many: bool = False):
        """`many`: compile at once, because many steps will be made."""
        self.network = network
        self.stack = network.decoder_stack
        layers: list[MultiHeadAttention] = [block.self_attention for block in self.stack.blocks]  # type: ignore[misc]
        self.relatives = [layer.relative for layer in layers]
        self.vectors = TokenVectors(network.decoder_input, concatenated=network.config.position_concat)
        with torch.inference_mode():
            self.inlined = InlinedStack(self.stack, network.output.linear)
        self.blocks = [block for block in self.inlined.blocks if isinstance(block, Block)]
        self.one_token: Any = self.inlined
        self.rank: Any = rank
        self.steps = 0
        if many:
            self.prepare()

    @staticmethod
    def unsupported_features(network: Any) -> list[str]:
        """What this engine lacks for a network; empty where it has everything."""
        return unsupported_parts(network)

    def prepare(self) -> None:
        self.one_token, self.rank = self._scripts

    @cached_property
    def _scripts(self) -> tuple[Any, Any]:
        return scripted(self.inlined), scripted(rank)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.network.parameters()

    @torch.inference_mode()
    def start(self, *source: Tensor, window: int | None = None) -> TorchScriptState:
        rows, cross = 1, CrossKV([], [], [], None)
        if isinstance(self.network, EncoderDecoder):
            memory, real = self.network.encode(*source)  # (B, S, D), (B, 1, S)
            rows, cross = len(memory), self._cross_kv(memory, real)
        parts, new = [block.attention for block in self.blocks], self.inlined.output.weight.new_empty
        return TorchScriptState(
            keys=[new(rows, part.groups, CAPACITY, part.key_dim) for part in parts],
            values=[new(rows, part.groups, CAPACITY, part.value_dim) for part in parts],
            source=cross,
            sentence=list(range(rows)),
            window=smaller_window(self.network.config.window, window),
        )

    def _cross_kv(self, memory: Tensor, real: Tensor) -> CrossKV:
        """Keys and values of encoded sources (M, S, D), with padding where `real` (M, 1, S) is False."""
        hidden = None if real.all() else memory.new_zeros(real.shape).masked_fill_(~real, -math.inf)
        crosses = [block.cross.attention for block in self.blocks if isinstance(block.cross, Cross)]
        layers: Any = [block.cross_attention for block in self.stack.blocks]
        pairs = [layer.keys_and_values(memory) for layer in layers]
        if worth_joining(len(crosses), len(memory), memory.size(1), crosses[0].heads, len(crosses[0].query.weight)):
            triples = [cross.join(k, v, hidden) for cross, (k, v) in zip(crosses, pairs, strict=True)]
            keys, values, added = (list(each) for each in zip(*triples, strict=True))
            return CrossKV(keys, values, added, hidden=None)
        keys, values = ([pair[which].contiguous() for pair in pairs] for which in (0, 1))
        return CrossKV(keys, values, [], hidden)

    @torch.inference_mode()
    def step(self, ids: Tensor, state: TorchScriptState) -> tuple[Tensor, TorchScriptState]:
        rows, tokens = ids.shape
        state.make_room(rows, tokens)
        x = self.vectors.embed_tokens(ids, state.length).view(rows * tokens, -1)
        logits = self._one_token(x, state) if tokens == 1 else self._many_tokens(x, rows, state)
        state.length += tokens
        return logits.view(rows, tokens, -1), state

    def _one_token(self, x: Tensor, state: TorchScriptState) -> Tensor:
        """(B, D) -> logits (B, V)."""
        self.steps += 1
        if self.steps == SCRIPT_MIN_STEPS:
            self.prepare()
        last = state.held
        first = 0 if state.window is None else max(0, last + 1 - state.window)
        cos_sin = (each.cos_sin(state.length, 1) for each in self.relatives)
        rotations = [torch.cat(tables) for tables in cos_sin if tables is not None]  # of each layer, (2, K)
        cache = SelfKV(state.keys, state.values, first, last, rotations, self._biases(first, last, x.device))
        logits: Tensor = self.one_token(x, cache, state.source)
        return logits

    def _biases(self, first: int, last: int, device: torch.device) -> list[Tensor]:
        """Of each layer with a position bias, (H, S)."""
        added = [relative.bias for relative in self.relatives if relative.bias is not None]
        positions = torch.arange(first, last + 1, device=device) if added else torch.empty(0)
        return [bias(positions[-1:], positions).squeeze(1).to(self.inlined.output.weight.dtype) for bias in added]

    def _many_tokens(self, x: Tensor, rows: int, state: TorchScriptState) -> Tensor:
        """(N, D) -> logits (N, V)."""
        for number, block in enumerate(self.blocks):
            mixed = self._self_attention(block.attention, block.residual_self.before(x), rows, number, state)
            x = block.rest(x, mixed, state.source, number)
        logits: Tensor = self.inlined.output(self.inlined.norm(x))
        return logits

    def _self_attention(
        self, part: SelfAttention, x: Tensor, rows: int, number: int, state: TorchScriptState
    ) -> Tensor:
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

    def can_search(self, state: TorchScriptState, prompts: Prompts, settings: Settings) -> bool:
        """Whether `generate_greedily`, in TorchScript, can do the whole search."""
        greedy = settings.beam_width == 1 and not settings.return_logprobs
        relative = any(each.cos_sin(0, 1) is not None or each.bias is not None for each in self.relatives)
        if not greedy or relative or state.window is not None or self.one_token is self.inlined:
            return False
        rows = len(prompts.ids)
        in_order = not state.source.keys or state.sentence == list(range(rows))
        if not in_order or not is_plain_search(state.length, prompts, settings):
            return False
        end = len(prompts.ids[0]) + max(prompts.limits(settings))
        return rows * end <= MAX_PREALLOCATED and self.vectors.reach(end)

    @torch.inference_mode()
    def search(self, state: TorchScriptState, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
        """Greedy texts without Python between two tokens."""
        limits = prompts.limits(settings)
        ids = torch.tensor(prompts.ids, device=prompts.device)  # (B, P)
        for part in torch.split(ids[:, :-1], part_length(len(ids)), dim=1) if ids.size(1) > 1 else ():
            _, state = self.step(part, state)
        state.make_room(len(ids), 1 + max(limits))
        tokens, stop = self.vectors.embed.tokens, ANY_TOKEN - 1 if prompts.stop is None else prompts.stop
        generated = self.one_token.generate_greedily(
            ids[:, -1],
            torch.tensor(limits, device=ids.device),
            stop,
            tokens.table.weight,
            tokens.scale,
            self.vectors.positions[0],
            state.keys,
            state.values,
            state.held,
            state.source,
        )
        return [[Hypothesis([token for token in row if token not in (ANY_TOKEN, stop)])] for row in generated.tolist()]

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = self.rank(logits, count)
        return found

    def reorder(self, state: TorchScriptState, rows: Tensor) -> TorchScriptState:
        if state.length == 0 and not state.source.keys:  # a language model starts with one row for all
            return state
        return state.reordered(rows)


def worth_joining(layers: int, sentences: int, length: int, heads: int, dim: int) -> bool:
    """Whether joined keys and values are less to multiply, and small enough for the processor's cache."""
    return heads * length <= dim + length and 2 * layers * sentences * heads * length * dim <= MAX_JOINED


def _extended(cache: Tensor, new: Tensor, held: int) -> Tensor:
    """Write new keys or values (B, G, T, K) into a cache (B, G, room, K), and return all that it holds."""
    cache.narrow(2, held, new.size(2)).copy_(new)
    return cache.narrow(2, 0, held + new.size(2))


def torchscript_engine(network: Any) -> Any:
    """The engine with the current weights of a network, or the network itself where it is not supported."""
    return network if TorchScriptEngine.unsupported_features(network) else TorchScriptEngine(network)
