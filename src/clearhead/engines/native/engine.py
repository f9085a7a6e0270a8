"""The engine `compiled`: a Transformer as native code, one step after the other or a whole search at once.

Keys and values lie in slots, one for each token that any row has read, and each row has a list of its slots. To reorder
rows is to reorder these lists: no key is moved. Rows of several states can be merged into one: then each row has its
own length.

    B rows, N sentences, S tokens of a source, T tokens, V vocabulary, L layers
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.decode.logits import ANY_TOKEN
from clearhead.decode.settings import Hypothesis, Prompts, Settings
from clearhead.engines.native.layout import (
    CCache,
    CMemory,
    CSearchResults,
    CSearchSettings,
    CSeen,
    Layout,
    TokenVectors,
    unsupported_in_stack,
    unsupported_parts,
)
from clearhead.engines.native.library import Library, ThreadChooser, load_library
from clearhead.engines.native.memory import large_empty
from clearhead.engines.native.sampling import NativeSampler
from clearhead.errors import ConfigError, ShapeError, TextError
from clearhead.models.build import TransformerDecoder, smaller_window
from clearhead.models.lm import LanguageModel
from clearhead.models.seq2seq import EncoderDecoder, Seq2Seq
from clearhead.nn import MultiHeadAttention
from clearhead.nn.attention import join_heads

SLOTS = 512  # initial capacity of a cache
BLOCK = 32  # slots that a row of several takes at a time
FORMATS = {torch.float32: 0, torch.float16: 1, torch.uint8: 2}  # the codes of the C side, for keys and values
# How keys and values are kept, and how many more numbers a head has: bytes have their float scale behind them.
CACHE_TYPES = {"f32": (torch.float32, 0), "f16": (torch.float16, 0), "int8": (torch.uint8, 4)}
PLAIN_SETTINGS = ("max_tokens", "beam_width", "n_best", "length_penalty", "return_logprobs", "seed")


@dataclass(eq=False)
class SlotPool:
    """Keys and values of every token that any row has read: floats, float16, or bytes.

    Bytes have the scale of each head behind its numbers: (L, slots, G × (K + 4)). Slots are taken from the end. Rows of
    unequal length come and go: they take blocks, and those that no row of any state uses any more are taken again.
    """

    keys: Tensor  # (L, slots, G × K)
    values: Tensor  # (L, slots, G × V)
    used: int = 0
    is_borrowed: bool = False  # whether the memory is another pool's, and only read; it is full
    free: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int32))  # first slots of blocks, the last …
    free_count: int = 0  # … of these is taken next
    states: weakref.WeakSet[NativeState] = field(default_factory=weakref.WeakSet)  # that have slots of it

    @property
    def capacity(self) -> int:
        return self.keys.size(1)

    def take(self, count: int) -> int:
        """The first of `count` new slots."""
        self.reserve(count)
        first, self.used = self.used, self.used + count
        return first

    def reserve(self, count: int) -> None:
        """Make room for `count` new slots at the end."""
        needed = self.used + count
        if needed > self.capacity:
            capacity = max(2 * self.capacity, needed)
            self.keys, self.values = (_more_slots(x, self.used, capacity) for x in (self.keys, self.values))
            self.is_borrowed = False

    def reserve_blocks(self, count: int) -> None:
        """Make room for `count` new blocks, free ones or at the end."""
        if count * BLOCK <= self.free_count * BLOCK + self.capacity - self.used:
            return
        if not self.is_borrowed:
            self._find_free()
        if self.free_count < max(count, self.used // BLOCK // 2):  # or they would soon be looked for again
            self.reserve(max(count * BLOCK, self.capacity - self.used + 1))

    def _find_free(self) -> None:
        """Find the blocks that no state uses."""
        blocks = -(-self.used // BLOCK)
        is_used = torch.zeros(blocks, dtype=torch.bool)
        for state in self.states:
            for slots in state.slots():
                is_used[slots // BLOCK] = True
        free = (~is_used[: self.used // BLOCK]).nonzero().flatten().flip(0) * BLOCK  # the first ones are taken first
        self.free, self.free_count = free.int(), len(free)

    def take_blocks(self, count: int) -> Tensor:
        """The slots (count × BLOCK,) of blocks for which there is room."""
        reused = min(count, self.free_count)
        self.free_count -= reused
        first = self.take((count - reused) * BLOCK)
        again = self.free[self.free_count : self.free_count + reused]
        firsts = torch.cat([again, torch.arange(first, self.used, BLOCK)])
        return (firsts.long().unsqueeze(1) + torch.arange(BLOCK)).flatten()

    def select(self, slots: Tensor, capacity: int) -> SlotPool:
        """A pool that begins with these slots."""
        keys, values = (x.new_empty(len(x), max(capacity, len(slots)), x.size(2)) for x in (self.keys, self.values))
        for kept, x in ((keys, self.keys), (values, self.values)):
            torch.index_select(x, 1, slots, out=kept[:, : len(slots)])
        return SlotPool(keys, values, len(slots))

    def first(self, count: int) -> SlotPool:
        """A pool of the first slots, without a copy until another slot is taken."""
        return SlotPool(self.keys[:, :count], self.values[:, :count], count, is_borrowed=True)


@dataclass(frozen=True)
class Source:
    """Keys and values of encoded sentences, for cross-attention."""

    keys: Tensor  # (L, slots, G × K)
    values: Tensor  # (L, slots, G × V)
    lists: Tensor  # (N, S) int32, the slots of each sentence
    lengths: Tensor  # (N,) int32, how many of them are no padding


@dataclass
class UnequalRows:
    """Rows of unequal length. Each takes a block of slots at a time, so that its keys and values lie side by side."""

    counts: Tensor  # (B,) int32, the slots in the list of each row
    firsts: Tensor  # (B,) int32, the position of its first slot
    next: Tensor  # (B,) int32, the next slot that it has taken and not used yet
    left: Tensor  # (B,) int32, how many these are

    def __post_init__(self) -> None:
        self._measure()

    def _measure(self) -> None:
        self.longest = max(self.counts.tolist(), default=0)  # slots of the longest row

    def forget(self, hidden: Tensor) -> None:
        """Drop the first slots (B,) of each row."""
        self.counts, self.firsts = self.counts - hidden, self.firsts + hidden
        self._measure()

    @classmethod
    def of(cls, counts: Tensor, firsts: Tensor) -> UnequalRows:
        """Rows that have taken no slots."""
        return cls(counts, firsts, torch.zeros_like(counts), torch.zeros_like(counts))

    @property
    def lengths(self) -> Tensor:
        """(B,) tokens read by each row."""
        return self.counts + self.firsts

    def select(self, rows: Tensor) -> UnequalRows:
        """Those of some rows; of two copies none keeps the slots that it has taken."""
        counts, firsts, following, left = (x[rows] for x in (self.counts, self.firsts, self.next, self.left))
        return UnequalRows(counts, firsts, following, left if len(rows) == len(set(rows.tolist())) else left.zero_())


@dataclass(frozen=True)
class SeenHead:
    """A head of a layer, of which a step hands out one tensor."""

    layer: int
    head: int
    cross: bool = False  # of cross-attention
    tensor: Literal["weights", "scores"] = "weights"  # scores: with the position bias, before the softmax


@dataclass(eq=False)
class NativeState:
    """What is known between two steps."""

    pool: SlotPool
    lists: Tensor  # (B, room) int32, the slots of each row
    window: int | None = None  # tokens that are visible
    length: int = 0  # tokens read, by the longest row
    first: int = 0  # the position of the first slot in the lists
    unequal: UnequalRows | None = None  # the lengths of merged rows; None: all rows are equally long
    source: Source | None = None
    sentence: Tensor | None = None  # (B,) int32, the sentence of each row

    def __post_init__(self) -> None:
        self.pool.states.add(self)

    def slots(self) -> Iterator[Tensor]:
        """The slots that it uses, and those that its rows have taken."""
        of, places = self.row_lengths(), torch.arange(self.lists.size(1))
        yield self.lists[places < of.counts.unsqueeze(1)]
        ahead = torch.arange(int(of.left.max()) if len(of.left) else 0)  # (left,)
        yield (of.next.unsqueeze(1) + ahead)[ahead < of.left.unsqueeze(1)]

    @property
    def is_in_order(self) -> bool:
        """Whether there is one row, whose slots are all that the pool has room for, one after the other."""
        return len(self.lists) == 1 and self.unequal is None and self.pool.capacity == self.length

    def row_lengths(self) -> UnequalRows:
        if self.unequal is not None:
            return self.unequal
        counts = torch.full((len(self.lists),), self.length - self.first, dtype=torch.int32)
        return UnequalRows.of(counts, torch.full_like(counts, self.first))

    def has_a_row_for_each(self, sentences: int) -> bool:
        """Whether row i belongs to sentence i, for that many; a language model starts with one row for all."""
        return self.sentence is None or torch.equal(self.sentence, torch.arange(sentences, dtype=torch.int32))

    def memory(self) -> CMemory | None:
        source, sentence = self.source, self.sentence
        if source is None or sentence is None:
            return None
        parts = (source.keys, source.values, source.lists, source.lengths, sentence)
        return CMemory(*(x.data_ptr() for x in parts), source.keys.size(1), source.lists.size(1))

    def extend(self, rows: int, tokens: int) -> None:
        """Append a new slot to the list of each row, for each new token."""
        if self.unequal is not None:
            self._extend_unequal(self.unequal, rows, tokens)
            return
        if self.window is not None and self.pool.used > 2 * rows * max(self.window, SLOTS):
            self._forget(self.window)
        place = self.length - self.first
        if place + tokens > self.lists.size(1):
            self.lists = _grow(self.lists, 2 * (place + tokens))
        slot = self.pool.take(rows * tokens)
        self.lists[:, place : place + tokens] = torch.arange(slot, slot + rows * tokens).view(rows, tokens)
        self.length += tokens

    def _forget(self, window: int) -> None:
        """Keep only the slots that the window still shows."""
        place = self.length - self.first
        lists = self.lists[:, max(0, place - window) : place].long()  # (B, kept)
        self.first = self.length - lists.size(1)
        self._move(self.pool.select(lists.flatten(), self.pool.capacity))
        kept = torch.arange(lists.numel(), dtype=torch.int32).view(lists.shape)
        self.lists = _grow(kept, self.lists.size(1))

    def _move(self, pool: SlotPool) -> None:
        self.pool.states.discard(self)
        self.pool = pool
        pool.states.add(self)

    def _extend_unequal(self, of: UnequalRows, rows: int, tokens: int) -> None:
        if self.window is not None and of.longest > 2 * max(self.window, BLOCK):
            self._forget_hidden(of, self.window)
        if of.longest + tokens > self.lists.size(1):
            self.lists = _grow(self.lists, 2 * (of.longest + tokens))
        pool, library = self.pool, load_library()
        assert library is not None
        if tokens <= BLOCK:
            pool.reserve_blocks(rows)
        else:
            pool.reserve(rows * tokens)
        free = ctypes.c_int32(pool.free_count)
        pool.used = library.clearhead_take_slots(
            *(_address(self.lists), ctypes.c_int64(self.lists.size(1))),
            *(_address(x) for x in (of.counts, of.next, of.left)),
            *(rows, tokens, BLOCK, ctypes.c_int64(pool.used), _address(pool.free), ctypes.byref(free)),
        )
        pool.free_count = free.value
        of.longest += tokens
        self.length += tokens

    def _forget_hidden(self, of: UnequalRows, window: int) -> None:
        """Drop the slots that the window does not show any more."""
        hidden = (of.counts - window).clamp(min=0)
        for row, (begin, end) in enumerate(zip(hidden.tolist(), of.counts.tolist(), strict=True)):
            self.lists[row, : end - begin] = self.lists[row, begin:end].clone()
        of.forget(hidden)


class SourceReader:
    """The encoder of a model and the cross-attention keys and values of its decoder, by native code.

    Sentences lie end to end, without the padding that a batch would need.
    """

    def __init__(self, network: Seq2Seq, decoder: Layout, library: Library, int8: bool):
        self.pad, self.decoder, self.library, self.threads = network.pad, decoder, library, ThreadChooser()
        self.encoder = Layout(network.encoder, None, library, int8)
        self.vectors = TokenVectors(network.source, concatenated=network.config.position_concat)

    @staticmethod
    def supports(network: object) -> TypeGuard[Seq2Seq]:
        """Whether there is an encoder that native code supports; a window it has only for the decoder."""
        if not isinstance(network, Seq2Seq) or network.config.window is not None:
            return False
        return not any(unsupported_in_stack(network.encoder))

    def read(self, source: Tensor) -> Source | None:
        """Padded sources (N, S) -> keys and values of every layer.

        None where there is no source, padding stands between tokens, or one is longer than the table of positions.
        """
        if not len(source):
            return None
        check_ids(source.flatten().tolist(), self.vectors.count)
        real = source != self.pad
        lengths = real.sum(1)
        begins = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        places = torch.arange(source.size(1))
        if not torch.equal(real, places < lengths.unsqueeze(1)) or not self.vectors.reach(source.size(1)):
            return None
        one, count = self.decoder.layers[0], int(begins[-1])
        keys, values = (
            torch.empty(len(self.decoder.layers), count, one.kv_heads * size) for size in (one.key_dim, one.value_dim)
        )
        ids, edges = source[real].int(), begins.int()  # (tokens,), (N + 1,)
        stacks = (self.encoder.reach(int(lengths.max())), self.vectors.structure(), self.decoder.stack)
        with self.threads.choose(count) as trial:
            failed = self.library.clearhead_read(
                *map(ctypes.byref, stacks),
                *(_address(ids), _address(edges), len(lengths)),
                *(_address(keys), _address(values), trial.threads),
            )
        if failed:
            raise MemoryError(f"out of memory while reading {count} tokens")
        return Source(keys, values, (begins[:-1].unsqueeze(1) + places).int(), lengths.int())


class NativeEngine:
    """A model whose steps are native code; a Stepper like the model itself."""

    batch_size = 16  # sources read together: with beams, what more of them need would leave the cache of a core
    _last_heads: Sequence[SeenHead] | None = None  # that were checked

    def __init__(
        self,
        network: EncoderDecoder | LanguageModel,
        library: Library,
        *,
        int8: bool = False,
        cache_type: str | None = None,
    ):
        self.network, self.library, self.threads = network, library, ThreadChooser()
        self.cache_type = cache_type or "f32"
        self.stack = network.decoder_stack
        self.layout = Layout(self.stack, network.output.linear, library, int8)
        self.vocabulary_size = network.output.linear.out_features
        self.vectors = TokenVectors(network.decoder_input, concatenated=network.config.position_concat)
        self.max_length = network.decoder_input.positions.max_length
        self.reader = SourceReader(network, self.layout, library, int8) if SourceReader.supports(network) else None

    @staticmethod
    def unsupported_features(network: Any) -> list[str]:
        """Why a network has no native steps; empty where it has."""
        first = next(network.parameters())
        if isinstance(network, TransformerDecoder) and (first.device.type != "cpu" or first.dtype != torch.float32):
            return [f"it computes in {first.dtype} on {first.device}"]
        return unsupported_parts(network)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.network.parameters()

    @torch.inference_mode()
    def start(self, *source: Tensor, window: int | None = None) -> NativeState:
        pool, window = self._new_pool(self.layout.layers), smaller_window(self.network.config.window, window)
        if not isinstance(self.network, EncoderDecoder):
            return NativeState(pool, torch.empty(1, 64, dtype=torch.int32), window)
        found = None if self.reader is None else self.reader.read(*source)
        found = self._read(*source) if found is None else found
        rows = len(found.lists)
        lists = torch.empty(rows, 64, dtype=torch.int32)
        return NativeState(pool, lists, window, source=found, sentence=torch.arange(rows, dtype=torch.int32))

    def _new_pool(self, layers: Sequence[MultiHeadAttention]) -> SlotPool:
        one, (dtype, more) = layers[0], CACHE_TYPES[self.cache_type]
        widths = (one.kv_heads * (size + more) for size in (one.key_dim, one.value_dim))
        keys, values = (torch.empty(len(layers), SLOTS, width, dtype=dtype) for width in widths)
        return SlotPool(keys, values)

    def vector_bytes(self, size: int) -> int:
        """The memory of a key or value of so many numbers."""
        dtype, more = CACHE_TYPES[self.cache_type]
        return (size + more) * dtype.itemsize

    def _read(self, *source: Tensor) -> Source:
        """The sources, encoded by the network: keys and values of every layer."""
        memory, real = self.network.encode(*source)  # type: ignore[operator]  # (N, S, D), (N, 1, S)
        real = real.squeeze(1)
        both = [block.cross_attention.keys_and_values(memory) for block in self.stack.blocks]  # type: ignore[union-attr, operator]
        keys, values = (torch.stack([join_heads(x).flatten(0, 1) for x in each]) for each in zip(*both, strict=True))
        slots = torch.arange(real.numel(), dtype=torch.int32).view(real.shape)
        order = real.int().argsort(dim=1, descending=True, stable=True)  # padding last
        return Source(keys, values, slots.gather(1, order).contiguous(), real.sum(1).int())

    def step(self, ids: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        return self._step_tokens(ids, state)[0], state

    def step_seeing(
        self, ids: Tensor, state: NativeState, heads: Sequence[SeenHead], last: bool = False
    ) -> tuple[Tensor, list[Tensor], NativeState]:
        """What `step` returns, with a tensor (B, T, S) of each head; S keys, those of the longest row.

        With `last` there are logits after the last token only, (B, 1, V). Keys are counted from the first that is kept,
        and what a token does not see is 0.
        """
        self._check_heads(heads)
        return *self._step_tokens(ids, state, last, heads), state

    def see(self, ids: Tensor, state: NativeState, groups: Sequence[Sequence[SeenHead]]) -> list[Tensor]:
        """Read tokens only to see them: a tensor (H, B, T, S) of the heads of each group, as `step_seeing` has them.

        The state may only be read on by `see` of the same groups: later layers know nothing of the tokens.
        """
        _, found, _ = self.step_seeing(ids, state, [head for heads in groups for head in heads], last=True)
        rest = iter(found)
        return [torch.stack([next(rest) for _ in heads]) for heads in groups]

    def seen_keys(self, state: NativeState) -> list[int]:
        """How many keys of a seen tensor belong to each row."""
        if state.unequal is None:
            return [state.length - state.first] * len(state.lists)
        keys: list[int] = state.unequal.counts.tolist()
        return keys

    def can_see(self, head: SeenHead) -> bool:
        """Whether `step_seeing` hands it out."""
        blocks = self.stack.blocks
        if not 0 <= head.layer < len(blocks) or not self.vectors.reach(1):
            return False
        layer = getattr(blocks[head.layer], "cross_attention" if head.cross else "self_attention", None)
        return layer is not None and 0 <= head.head < layer.heads

    def _check_heads(self, heads: Sequence[SeenHead]) -> None:
        if heads is self._last_heads:  # as at every token of a text
            return
        for head in heads:
            if not self.can_see(head):
                raise ConfigError(f"there is no layer {head.layer} with a head {head.head}; both count from 0")
        self._last_heads = heads

    @torch.inference_mode()
    def _step_tokens(
        self, ids: Tensor, state: NativeState, last: bool = False, heads: Sequence[SeenHead] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Tokens (B, T) -> their logits (B, T, V), or with `last` (B, 1, V); and what is seen of the heads."""
        rows, tokens = ids.shape
        self._check_rows(rows, state)
        logits = torch.empty(rows, min(1, tokens) if last else tokens, self.vocabulary_size)
        if not rows * tokens:
            return logits, []
        own = known_ids(ids, self.vectors.count)
        if rows > len(state.lists):  # a language model starts with one row for all
            state.lists = state.lists.expand(rows, -1).clone()
        if not self.vectors.reach(state.length + tokens):
            return self._step_vectors(ids, state, logits, last), []
        state.extend(rows, tokens)
        cache = self._cache(state)
        width, longest = cache.length, 0 if state.source is None else state.source.lists.size(1)
        found = [torch.empty(rows, tokens, longest if each.cross else width) for each in heads]
        seen = (CSeen * len(heads))(*(_seen(each, x) for each, x in zip(heads, found, strict=True)))
        structures = (self.layout.reach(state.length), self.vectors.structure(), cache, state.memory())
        with self.threads.choose(rows * tokens) as trial:
            failed = self.library.clearhead_step_tokens(
                *(*map(_reference, structures), ctypes.c_void_p(own.ctypes.data), _address(logits)),
                *(seen, len(heads), rows, rows * tokens, last, trial.threads),
            )
        if failed:
            raise MemoryError(f"out of memory in a step of {rows * tokens} tokens")
        return logits, found

    def _step_vectors(self, ids: Tensor, state: NativeState, logits: Tensor, last: bool) -> Tensor:
        """The same where token vectors are more than native code makes of ids."""
        rows, tokens = ids.shape
        if state.unequal is None:
            x = self.vectors.embed_tokens(ids, state.length)  # (B, T, D)
        else:
            x = self.vectors.embed_at(ids, state.unequal.lengths)
        state.extend(rows, tokens)
        structures = map(_reference, (self.layout.reach(state.length), self._cache(state), state.memory()))
        with self.threads.choose(rows * tokens) as trial:
            numbers = (rows, rows * tokens, last, trial.threads)
            failed = self.library.clearhead_step(*structures, _address(x), _address(logits), *numbers)
        if failed:
            raise MemoryError(f"out of memory in a step of {rows * tokens} tokens")
        return logits

    def sampler(self, settings: Sequence[Settings]) -> NativeSampler:
        """Chooses the next tokens of rows that have these settings."""
        return NativeSampler(self.library, settings)

    def _check_rows(self, rows: int, state: NativeState) -> None:
        """Refuse rows that a state does not have: native code would read beyond its lists."""
        shared = state.length == 0 and state.source is None and state.unequal is None  # one row for all
        if rows != len(state.lists) and not shared:
            raise ShapeError(f"a step of {rows} rows from a state of {len(state.lists)}")

    def _cache(self, state: NativeState) -> CCache:
        """The structure of a state that has slots for the new tokens."""
        pool, unequal = state.pool, state.unequal
        return CCache(
            *(x.data_ptr() for x in (pool.keys, pool.values, state.lists)),
            *((None, None) if unequal is None else (unequal.counts.data_ptr(), unequal.firsts.data_ptr())),
            pool.keys.size(1),
            state.length - state.first if unequal is None else unequal.longest,
            *(state.lists.size(1), state.first, state.window or 0, FORMATS[pool.keys.dtype]),
        )

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        logits, (rows, size) = logits.float().contiguous(), logits.shape
        if not 0 < count <= size:
            raise ShapeError(f"the best {count} of {size} tokens")
        values, total = logits.new_empty(rows, count), logits.new_empty(rows)
        tokens = torch.empty(rows, count, dtype=torch.int64)
        self.library.clearhead_best(_address(logits), rows, size, count, *map(_address, (values, tokens, total)), 1)
        return values, tokens, total

    def can_search(self, state: NativeState, prompts: Prompts, settings: Settings) -> bool:
        """Whether native code can do the whole search: greedy or plain beam search, from a new state.

        Everything else (logits processors, sampling, beam groups, coverage, keys in float16) is left to decode/, around
        native steps.
        """
        if state.window is not None or not state.has_a_row_for_each(len(prompts.ids)) or self.cache_type != "f32":
            return False
        if not is_plain_search(state.length, prompts, settings):
            return False
        return self.vectors.reach(len(prompts.ids[0]) + max(prompts.limits(settings)))

    def search(self, state: NativeState, prompts: Prompts, settings: Settings) -> list[list[Hypothesis]]:
        """The hypotheses of each prompt, the best first, with no Python between two tokens."""
        for prompt in prompts.ids:
            check_ids(prompt, self.vectors.count)
        limits, sentences = prompts.limits(settings), len(prompts.ids)
        scored = settings.return_logprobs or settings.beam_width > 1
        shape, room = (sentences, settings.n_best), max(limits)
        ids, max_tokens = (torch.tensor(x, dtype=torch.int32) for x in (prompts.ids, limits))  # (N, P), (N,)
        tokens = torch.empty(*shape, room, dtype=torch.int32)
        logprobs, scores = torch.empty(*shape, room, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
        lengths = torch.empty(shape, dtype=torch.int32)
        results = CSearchResults(*(x.data_ptr() for x in (tokens, logprobs, scores, lengths)), room)
        stack, memory = self.layout.reach(ids.size(1) + room), state.memory()
        with self.threads.choose(sentences * settings.beam_width) as trial:
            how = CSearchSettings(
                *(ids.data_ptr(), max_tokens.data_ptr(), settings.length_penalty, sentences, ids.size(1)),
                *(settings.beam_width, settings.n_best, ANY_TOKEN if prompts.stop is None else prompts.stop),
                *(trial.threads, scored),
            )
            structures = (stack, self.vectors.structure(), memory, how, results)
            steps = self.library.clearhead_search(*map(_reference, structures))
            trial.steps = max(1, steps)
        if steps < 0:
            raise MemoryError(f"out of memory in a search of {sentences} texts with beam_width={settings.beam_width}")
        found = tokens[..., :steps].tolist(), logprobs[..., :steps].tolist(), scores.tolist(), lengths.tolist()
        return [_hypotheses(*sentence, prompts.stop, scored) for sentence in zip(*found, strict=True)]

    @torch.inference_mode()
    def reorder(self, state: NativeState, rows: Tensor) -> NativeState:
        if state.sentence is None and state.length == 0:  # one row for all
            return replace(state, lists=state.lists[:1].expand(len(rows), -1).clone())
        sentence = None if state.sentence is None else state.sentence[rows]
        unequal = None
        if state.unequal is not None:
            unequal = state.unequal.select(rows)
        return replace(state, lists=state.lists[rows], sentence=sentence, unequal=unequal)

    @torch.inference_mode()
    def rewind(self, state: NativeState, tokens: int) -> NativeState:
        """The state before the last `tokens` of every row were read, right after the step that read them."""
        state.length -= tokens
        if state.unequal is None:
            state.pool.used -= tokens * len(state.lists)
        else:  # all of them are slots that the row has taken together
            state.unequal.counts -= tokens
            state.unequal.next -= tokens
            state.unequal.left += tokens
            state.unequal.longest -= tokens
        return state

    @torch.inference_mode()
    def prefix(self, state: NativeState, row: int, length: int) -> NativeState | None:
        """A new state of one row that has read the first `length` tokens of a row; None where they are not kept.

        It may read the memory of this state, which must not be rewound to before these tokens.
        """
        if state.source is not None:
            return None
        if state.is_in_order and length <= state.length:
            return NativeState(state.pool.first(length), state.lists.clone(), state.window, length)
        rows = state.row_lengths()
        if int(rows.firsts[row]) > 0 or length > int(rows.counts[row]):
            return None
        pool = state.pool.select(state.lists[row, :length], length)  # it grows when a row is read further
        lists = _grow(torch.arange(length, dtype=torch.int32).unsqueeze(0), length + SLOTS)
        return NativeState(pool, lists, state.window, length)

    @torch.inference_mode()
    def merge(self, states: Sequence[NativeState]) -> NativeState | None:
        """One state with the rows of all, each with its own length; None for sources or unequal windows."""
        base, *others = states
        if any(each.source is not None or each.window != base.window for each in states):
            return None
        pool, room = base.pool, max(each.lists.size(1) for each in states)
        # All at once: what is taken belongs to no state before the end, and would be found free.
        pool.reserve_blocks(sum(-(-each.pool.used // BLOCK) for each in others))
        lists, rows = [_grow(base.lists, room)], [base.row_lengths()]
        for each in others:
            used, of = each.pool.used, each.row_lengths()
            slots = pool.take_blocks(-(-used // BLOCK))
            for into, new in ((pool.keys, each.pool.keys), (pool.values, each.pool.values)):
                into.index_copy_(1, slots[:used], new[:, :used])
            known = each.lists.clamp(0, max(used - 1, 0))  # what lies behind a row is any number
            lists.append(_grow(slots.int()[known] if used else known, room))
            rows.append(UnequalRows.of(of.counts, of.firsts))
            if len(of.counts) == 1 and used:  # it goes on in the last of its blocks
                rows[-1].next += slots[used - 1] + 1 - rows[-1].next
                rows[-1].left += len(slots) - used
        parts = ([getattr(row, each.name) for row in rows] for each in fields(UnequalRows))
        unequal = UnequalRows(*map(torch.cat, parts))
        return replace(base, lists=torch.cat(lists), length=int(unequal.lengths.max()), unequal=unequal)


def check_ids(ids: Sequence[int], count: int) -> None:
    """Refuse ids that are not among `count` tokens: native code would read outside of the table."""
    if ids and not 0 <= min(ids) <= max(ids) < count:
        wrong = next(each for each in ids if not 0 <= each < count)
        raise TextError(f"there is no token {wrong}: the model knows {count}, counted from 0")


def known_ids(ids: Tensor, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Ids (B, T) for native code, all of them among `count` tokens.

    By numpy: an operation of torch lets another thread have Python in between, and a service waits to get it back.
    """
    own = np.ascontiguousarray(ids.numpy(), dtype=np.int64)
    if own.min() < 0 or own.max() >= count:
        check_ids(own.ravel().tolist(), count)
    return own.astype(np.int32)


def is_plain_search(read: int, prompts: Prompts, settings: Settings) -> bool:
    """Whether greedy or plain beam search is asked for, after prompts of equal length of which nothing is read yet."""
    others = (field for field in fields(Settings) if field.name not in PLAIN_SETTINGS)
    if read or any(getattr(settings, field.name) != field.default for field in others):
        return False
    lengths = {len(prompt) for prompt in prompts.ids}
    return len(lengths) == 1 and min(lengths) > 0 and min(prompts.limits(settings)) > 0


def _hypotheses(
    tokens: list[list[int]],
    logprobs: list[list[float]],
    scores: list[float],
    lengths: list[int],
    stop: int | None,
    scored: bool,
) -> list[Hypothesis]:
    """Those of one sentence, the best first, from the tokens of each, the stop token included."""
    found = []
    for ids, each, score, length in zip(tokens, logprobs, scores, lengths, strict=True):
        if length == 0:
            break
        text = ids[: length - 1] if ids[length - 1] == stop else ids[:length]
        found.append(Hypothesis(text, score, tuple(each[:length])) if scored else Hypothesis(text))
    return found or [Hypothesis([], 0.0)]


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _seen(head: SeenHead, into: Tensor) -> CSeen:
    address, is_scores = into.data_ptr(), head.tensor == "scores"
    places = (None, address) if is_scores else (address, None)
    return CSeen(*places, into.size(2), head.layer, head.head, head.cross)


def _reference(structure: ctypes.Structure | None) -> Any:
    return None if structure is None else ctypes.byref(structure)


def _more_slots(x: Tensor, used: int, capacity: int) -> Tensor:
    """A copy of the slots that are used, with room for more."""
    more = large_empty((len(x), capacity, x.size(2)), x.dtype)
    more[:, :used] = x[:, :used]
    return more


def _grow(x: Tensor, size: int) -> Tensor:
    """A copy with more room in its second dimension."""
    grown = x.new_empty(x.size(0), size, *x.shape[2:])
    grown[:, : x.size(1)] = x
    return grown
