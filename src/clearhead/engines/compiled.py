"""The engine `compiled`: a Transformer as native code, one step after the other or a whole search at once.

Keys and values lie in slots, one for each token that any row has read, and each row has a list of its slots. To reorder
rows is to reorder these lists: no key is ever moved.

    B rows, N sentences, S tokens of a source, T tokens, V vocabulary, L layers
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decode.rows import Hypothesis, Prompts
from clearhead.decode.settings import Settings
from clearhead.engines.layout import (
    CMemory,
    CPast,
    CStack,
    Layout,
    input_that_is_written,
    is_transformer_that_writes,
    stack_that_writes,
    unsupported,
)
from clearhead.engines.reading import Reader, Source, can_read
from clearhead.engines.search import can_search, search
from clearhead.engines.threads import Threads
from clearhead.engines.vectors import Vectors
from clearhead.models.assemble import smaller
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import AttentionWriter
from clearhead.nn.attention import join_heads

SLOTS = 512  # that a past begins with


@dataclass
class Pool:
    """Keys and values of every token that any row has read."""

    keys: Tensor  # (L, slots, G × K)
    values: Tensor  # (L, slots, G × V)
    used: int = 0

    def take(self, count: int) -> int:
        """The first of `count` new slots."""
        first, self.used = self.used, self.used + count
        if self.used > self.keys.size(1):
            room = max(2 * self.keys.size(1), self.used)
            self.keys, self.values = (_longer(x, 1, room) for x in (self.keys, self.values))
        return first


@dataclass
class State:
    """What is known between two steps."""

    pool: Pool
    lists: Tensor  # (B, room) int32, the slots of each row
    window: int | None = None  # tokens that are looked back at
    length: int = 0  # tokens read
    first: int = 0  # the position of the first that is in the lists
    source: Source | None = None
    sentence: Tensor | None = None  # (B,) int32, which sentence a row is about

    def has_a_row_for_each(self, sentences: int) -> bool:
        """Whether row i is about sentence i, and there are so many; a text has one beginning for all its rows."""
        return self.sentence is None or torch.equal(self.sentence, torch.arange(sentences, dtype=torch.int32))

    def memory(self) -> CMemory | None:
        """The structure of what is looked at across."""
        source, sentence = self.source, self.sentence
        if source is None or sentence is None:
            return None
        parts = (source.keys, source.values, source.lists, source.lengths, sentence)
        return CMemory(*(x.data_ptr() for x in parts), source.keys.size(1), source.lists.size(1))


class Compiled:
    """A model whose steps are native code; a Stepper like the model itself."""

    def __init__(self, network: AttentionWriter | LanguageModel, library: ctypes.CDLL, *, int8: bool = False):
        self.network, self.library, self.threads = network, library, Threads()
        self.stack = stack_that_writes(network)
        self.layout = Layout(self.stack, network.output.linear, library, int8)
        self.vocabulary = network.output.linear.out_features
        self.vectors = Vectors(input_that_is_written(network), concatenated=network.config.position_concat)
        self.reader = Reader(network, self.layout, library, int8) if can_read(network) else None

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the model."""
        return self.network.parameters()

    @torch.inference_mode()
    def start(self, *source: Tensor, window: int | None = None) -> State:
        """Read the source, if there is one, ready to write; `window` as a language model takes it."""
        layers, one = len(self.layout.layers), self.layout.layers[0]
        keys, values = (torch.empty(layers, SLOTS, one.kv_heads * size) for size in (one.key_dim, one.value_dim))
        pool, window = Pool(keys, values), smaller(self.network.config.window, window)
        if not isinstance(self.network, AttentionWriter):
            return State(pool, torch.empty(1, 64, dtype=torch.int32), window)
        found = None if self.reader is None else self.reader.read(*source)
        found = self._read(*source) if found is None else found
        rows = len(found.lists)
        lists = torch.empty(rows, 64, dtype=torch.int32)
        return State(pool, lists, window, source=found, sentence=torch.arange(rows, dtype=torch.int32))

    def _read(self, *source: Tensor) -> Source:
        """The model reads: keys and values of every layer, computed once."""
        memory, real = self.network.encode(*source)  # type: ignore[operator]  # (N, S, D), (N, 1, S)
        real = real.squeeze(1)
        both = [block.cross_attention.keys_and_values(memory) for block in self.stack.blocks]  # type: ignore[union-attr, operator]
        keys, values = (torch.stack([join_heads(x).flatten(0, 1) for x in each]) for each in zip(*both, strict=True))
        slots = torch.arange(real.numel(), dtype=torch.int32).view(real.shape)
        first = real.int().argsort(dim=1, descending=True, stable=True)  # what is real stands first
        return Source(keys, values, slots.gather(1, first).contiguous(), real.sum(1).int())

    @torch.inference_mode()
    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The next tokens (B, T) -> logits (B, T, V) of what follows each."""
        rows, tokens = ids.shape
        if rows > len(state.lists):  # a text has one beginning for all its rows
            state.lists = state.lists.expand(rows, -1).clone()
        x = self.vectors.of(ids, state.length)
        stack = self._extend(state, rows, tokens)
        logits = x.new_empty(rows, tokens, self.vocabulary)
        past = CPast(
            state.pool.keys.data_ptr(),
            state.pool.values.data_ptr(),
            state.lists.data_ptr(),
            state.pool.keys.size(1),
            state.length - state.first,
            state.lists.size(1),
            state.first,
            state.window or 0,
        )
        memory = state.memory()
        structures = (ctypes.byref(stack), ctypes.byref(past), None if memory is None else ctypes.byref(memory))
        numbers = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(logits.data_ptr()))
        with self.threads.chosen(rows * tokens) as trial:
            failed = self.library.clearhead_step(*structures, *numbers, rows, rows * tokens, 0, trial.threads)
        if failed:
            raise MemoryError(f"no memory left for a step of {rows * tokens} tokens")
        return logits, state

    def _extend(self, state: State, rows: int, tokens: int) -> CStack:
        """A slot for each new token, at the end of its row's list; and the structure that reaches so far."""
        if state.window is not None and state.pool.used > 2 * rows * max(state.window, SLOTS):
            _forget(state, state.window)
        place = state.length - state.first
        if place + tokens > state.lists.size(1):
            state.lists = _longer(state.lists, 1, 2 * (place + tokens))
        slot = state.pool.take(rows * tokens)
        state.lists[:, place : place + tokens] = torch.arange(slot, slot + rows * tokens).view(rows, tokens)
        state.length += tokens
        return self.layout.reach(state.length)

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """logits (B, V) -> the largest (B, count), falling, their tokens, and log Σ exp of each row (B,)."""
        logits, (rows, size) = logits.contiguous(), logits.shape
        values, total = logits.new_empty(rows, count), logits.new_empty(rows)
        tokens = torch.empty(rows, count, dtype=torch.int64)
        addresses = map(ctypes.c_void_p, (values.data_ptr(), tokens.data_ptr(), total.data_ptr()))
        self.library.clearhead_best(ctypes.c_void_p(logits.data_ptr()), rows, size, count, *addresses, 1)
        return values, tokens, total

    def can_search(self, state: State, prompts: Prompts, settings: Settings) -> bool:
        """Whether native code can do the whole search."""
        return can_search(self, state, prompts, settings)

    def search(self, state: State, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
        """Whole texts without Python between their tokens."""
        return search(self, state, prompts, settings)

    def reorder(self, state: State, rows: Tensor) -> State:
        """Row i becomes what row rows[i] was."""
        sentence = None if state.sentence is None else state.sentence[rows]
        return replace(state, lists=state.lists[rows], sentence=sentence)


def reasons_against(network: Any) -> list[str]:
    """Why a network has no native steps; empty where it has."""
    if not is_transformer_that_writes(network):
        return ["it is no Transformer that writes"]
    first = next(network.parameters())
    if first.device.type != "cpu" or first.dtype != torch.float32:
        return [f"it computes in {first.dtype} on {first.device}"]
    return list(unsupported(stack_that_writes(network)))


def _forget(state: State, window: int) -> None:
    """Keep only what a window still shows: its slots become the first ones."""
    place = state.length - state.first
    lists = state.lists[:, max(0, place - window) : place].long()  # (B, kept)
    used = lists.numel()
    pool = Pool(torch.empty_like(state.pool.keys), torch.empty_like(state.pool.values), used)
    for new, old in ((pool.keys, state.pool.keys), (pool.values, state.pool.values)):
        new[:, :used] = old[:, lists.flatten()]
    state.first, state.pool = state.length - lists.size(1), pool
    state.lists = _longer(torch.arange(used, dtype=torch.int32).view(lists.shape), 1, state.lists.size(1))


def _longer(x: Tensor, axis: int, size: int) -> Tensor:
    """The same with more room at the end of an axis."""
    shape = list(x.shape)
    shape[axis] = size
    grown = x.new_empty(shape)
    grown.narrow(axis, 0, x.size(axis)).copy_(x)
    return grown
