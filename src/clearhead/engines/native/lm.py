"""The engine of language models whose matrices are quantised: the structures of lm.h, and a Stepper that uses them.

Matrices stay in their blocks (nn/quantised.py): they are packed from the run's memory-mapped file, and a network in
memory as floats is not needed. Those that are not quantised are packed as floats. A step rounds the vectors that meet a
matrix to bytes, or with `exact` nothing. Keys and values are kept as float16, with `exact` as float32, or as bytes.

    B rows, T tokens, V vocabulary, O outputs, I inputs
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decode.settings import Prompts, Settings
from clearhead.engines.native.engine import NativeEngine, NativeState, SeenHead, known_ids
from clearhead.engines.native.layout import CNorm, CResidual, TokenVectors
from clearhead.engines.native.library import Library, ThreadChooser, cores
from clearhead.engines.native.memory import WeightMemory, return_freed_memory
from clearhead.errors import ShapeError
from clearhead.models.build import smaller_window
from clearhead.models.lm import LanguageModel
from clearhead.nn import EncoderBlock, FeedForwardLayer, MultiHeadAttention, NoNorm, ParallelBlock, Residual
from clearhead.nn.attention import Fused
from clearhead.nn.embedding import SoftCap
from clearhead.nn.norm import NativeNorm, NormForm
from clearhead.nn.positions import PositionForm, RelativePositions, Rotary
from clearhead.nn.quantised import BLOCK, FORMATS, Quantised
from clearhead.nn.scores import CappedScore, Score, dot_scale

LANES = 16  # outputs of a panel
FLOAT32 = 0  # GGUF's number of the format
FIRST_LENGTH = 64  # positions of the first tables
NORMS = {"none": 0, "layer": 1, "rms": 2}  # the codes of the C side
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "quick_gelu": 3, "silu": 4}
NO_MEMORY = 1  # what a step returns when it fails, as lm.h has it
REFUSALS = {
    2: "no tokens, or rows of unequal length",
    3: "a token that the model does not know",
    4: "more tokens than there are positions",
    5: "a list of slots that are not in the cache",
    6: "a layer or a head that the model does not have",
}

# --- the structures of lm.h and quant.h ---


def _each(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class CMatrix(ctypes.Structure):
    """A matrix in panels."""

    _fields_ = (*_each(c_void_p, "panels", "bias"), ("stride", c_int64), *_each(c_int32, "inputs", "outputs", "kind"))


class CLmAttention(ctypes.Structure):
    """One attention layer."""

    _fields_ = (
        *_each(CMatrix, "query", "key", "value", "output"),
        *_each(CNorm, "query_norm", "key_norm"),
        *_each(c_void_p, "sin", "cos", "bias"),
        *_each(c_int32, "heads", "kv_heads", "key_dim", "value_dim", "rotated", "positions", "window"),
        *_each(c_float, "scale", "cap"),
    )


class CLmFeedForward(ctypes.Structure):
    """One feed-forward layer."""

    _fields_ = (*_each(CMatrix, "inner", "gate", "outer"), ("activation", c_int32))


class CLmBlock(ctypes.Structure):
    """One block."""

    _fields_ = (
        *_each(CResidual, "around_attention", "around_feed_forward"),
        *(("attention", CLmAttention), ("feed_forward", CLmFeedForward)),
    )


class CLmModel(ctypes.Structure):
    """The whole model."""

    _fields_ = (
        *(("blocks", POINTER(CLmBlock)), ("final_norm", CNorm)),
        *_each(CMatrix, "table", "output"),
        ("positions", c_void_p),
        *_each(c_float, "scale", "cap"),
        *_each(c_int32, "layers", "dim", "parallel"),
    )


class CLmSeen(ctypes.Structure):
    """One head of one layer whose weights are wanted."""

    _fields_ = (*_each(c_int32, "layer", "head"), ("weights", c_void_p))


class CLmStep(ctypes.Structure):
    """The tokens of one step, and what is wanted of it."""

    _fields_ = (
        *_each(c_void_p, "ids", "logits", "seen"),
        *_each(c_int32, "rows", "tokens", "last", "exact", "seen_count", "threads"),
    )


STRUCTURES = (CMatrix, CLmAttention, CLmFeedForward, CLmBlock, CLmModel, CLmSeen, CLmStep)  # compared in tests


# --- from modules to structures ---


class LmLayout:
    """The structures of one language model, and the memory that they point to."""

    def __init__(self, network: LanguageModel, matrices: Mapping[str, Quantised], library: Library):
        self.network, self.library = network, library
        self._matrices = dict(matrices)  # until they are packed: then their file need not be in memory
        self._memory: list[object] = []
        self._panels = WeightMemory()
        self._names = {id(part): name for name, part in network.named_modules()}
        blocks: list[EncoderBlock] = list(network.stack.blocks)  # type: ignore[arg-type]
        self.layers: list[MultiHeadAttention] = [block.self_attention for block in blocks]
        self.blocks = (CLmBlock * len(blocks))(*map(self._block, blocks))
        table = network.tokens.tokens.table
        self.table = self._matrix(f"{self._names[id(table)]}.weight", table.weight)
        self.output = self._output(network.output.linear, tied=network.output.linear.weight is table.weight)
        self._matrices.clear()
        return_freed_memory()
        self.vectors = TokenVectors(network.tokens, concatenated=network.config.position_concat)
        self.reached, self._lock = 0, Lock()
        self.model = self.reach(1)

    def reach(self, length: int) -> CLmModel:
        """The model with tables of positions for at least this length.

        Longer tables make a new structure: another thread may still compute with the old one.
        """
        with self._lock:
            if length > self.reached:
                limit = self.vectors.embed.positions.max_length
                if limit is not None and length > limit:
                    raise ShapeError(f"a text of {length} tokens is longer than the model's table of {limit} positions")
                room = max(FIRST_LENGTH, 2 * length)
                self.reached = room if limit is None else min(room, limit)
                self.model = self._with_tables(self.reached)
            return self.model

    def _with_tables(self, length: int) -> CLmModel:
        blocks = type(self.blocks).from_buffer_copy(self.blocks)
        tables: dict[int, tuple[int | None, ...]] = {}  # blocks that see equally far share them
        for block, layer in zip(blocks, self.layers, strict=True):
            relative, own = layer.relative, block.attention
            if id(relative) not in tables:
                form = position_form(relative, length)
                assert form is not None
                pairs = 0 if form.sin is None else form.sin.size(1)
                addresses = (x if x is None else self._keep(x) for x in (form.sin, form.cos, form.bias))
                tables[id(relative)] = (*addresses, 2 * pairs)
            own.sin, own.cos, own.bias, own.rotated = tables[id(relative)]
            own.positions = length
        self._memory.append(blocks)
        self.vectors.reach(length)
        network, cap = self.network, self.network.output.cap
        return CLmModel(
            blocks=blocks,
            final_norm=self._norm(network.stack.norm),
            table=self.table,
            output=self.output,
            positions=self.vectors.structure().positions,
            scale=network.tokens.tokens.scale,
            cap=cap.cap if isinstance(cap, SoftCap) else 0.0,
            layers=len(blocks),
            dim=network.config.dim,
            parallel=isinstance(network.stack.blocks[0], ParallelBlock),
        )

    def _block(self, block: EncoderBlock) -> CLmBlock:
        around = map(self._residual, (block.residual1, block.residual2))
        return CLmBlock(*around, self._attention(block.self_attention), self._feed_forward(block.feed_forward))

    def _attention(self, layer: MultiHeadAttention) -> CLmAttention:
        scale, cap = scale_and_cap(layer.kernel.score, layer.key_dim)
        return CLmAttention(
            *map(self._linear, (layer.query, layer.key, layer.value, layer.output)),
            query_norm=self._norm(layer.query_norm),
            key_norm=self._norm(layer.key_norm),
            heads=layer.heads,
            kv_heads=layer.kv_heads,
            key_dim=layer.key_dim,
            value_dim=layer.value_dim,
            window=layer.window or 0,
            scale=scale,
            cap=cap,
        )

    def _feed_forward(self, part: FeedForwardLayer) -> CLmFeedForward:
        form = part.native_form()
        assert form is not None
        gate = CMatrix() if form.gate is None else self._linear(form.gate)
        return CLmFeedForward(self._linear(form.inner), gate, self._linear(form.outer), ACTIVATIONS[form.activation])

    def _residual(self, around: Residual) -> CResidual:
        form = around.native_form()
        assert form is not None
        norms = {"before": form.before, "inside": form.inside, "after": form.after}
        return CResidual(**{where: self._norm(norm) for where, norm in norms.items() if norm is not None})

    def _norm(self, norm: nn.Module) -> CNorm:
        form = norm_form(norm)
        assert form is not None
        gain, shift = (None if x is None else self._keep(x) for x in (form.gain, form.shift))
        return CNorm(gain, shift, form.eps, NORMS[form.kind])

    def _output(self, part: nn.Linear, tied: bool) -> CMatrix:
        if not tied:
            return self._linear(part)
        output = CMatrix.from_buffer_copy(self.table)
        output.bias = None if part.bias is None else self._bias(part.bias)
        return output

    def _linear(self, part: nn.Linear) -> CMatrix:
        matrix = self._matrix(f"{self._names[id(part)]}.weight", part.weight)
        if part.bias is not None:
            matrix.bias = self._bias(part.bias)
        return matrix

    def _matrix(self, name: str, weight: Tensor) -> CMatrix:
        """A matrix (O, I) in panels: its blocks as they are stored, or its floats."""
        blocks = self._matrices.get(name)
        rows = weight.detach().contiguous().view(torch.uint8) if blocks is None else blocks.rows.contiguous()
        code = FLOAT32 if blocks is None else FORMATS[blocks.format].code
        outputs, inputs = weight.shape
        kind, padded = self.library.clearhead_lm_kind(code), -(-inputs // BLOCK) * BLOCK
        self.library.clearhead_lm_panel_bytes.restype = c_int64
        stride = self.library.clearhead_lm_panel_bytes(kind, padded)
        panels = self._panels.zeros(-(-outputs // LANES) * stride)
        self._memory.append(panels)
        self.library.clearhead_lm_pack(
            *(c_void_p(rows.data_ptr()), c_int64(rows.stride(0)), code, outputs, inputs),
            *(c_void_p(panels.data_ptr()), cores()),
        )
        return CMatrix(panels.data_ptr(), None, stride, padded, outputs, kind)

    def _bias(self, bias: Tensor) -> int:
        padded = torch.zeros(-(-len(bias) // LANES) * LANES)
        padded[: len(bias)] = bias.detach()
        return self._keep(padded)

    def _keep(self, tensor: Tensor) -> int:
        """The address of a copy that lives as long as the layout."""
        own = tensor.detach().float().clone(memory_format=torch.contiguous_format)
        self._memory.append(own)
        return own.data_ptr()


def norm_form(norm: nn.Module) -> NormForm | None:
    """The native form of a norm; None: it has none that is known here."""
    form = norm.native_form() if isinstance(norm, NativeNorm) else None
    return form if form is not None and form.kind in NORMS else None


def position_form(relative: RelativePositions, length: int) -> PositionForm | None:
    """The tables of a position scheme; here rotary positions may rotate a part of a head."""
    return Rotary.native_form(relative, length) if isinstance(relative, Rotary) else relative.native_form(length)


def scale_and_cap(score: Score, key_dim: int) -> tuple[float | None, float]:
    """The factor of the dot product (None: the score is another), and what limits it, or 0."""
    cap = score.cap if isinstance(score, CappedScore) else 0.0
    return dot_scale(score.score if isinstance(score, CappedScore) else score, key_dim), cap


# --- the engine ---


class LmEngine(NativeEngine):
    """A language model with quantised matrices, as a Stepper."""

    def __init__(
        self,
        network: LanguageModel,
        library: Library,
        matrices: Mapping[str, Quantised],
        *,
        exact: bool = False,
        cache_type: str | None = None,
        threads: int | None = None,
    ):
        self.network, self.library, self.exact, self.threads = network, library, exact, ThreadChooser(threads)
        self.cache_type = cache_type or ("f32" if exact else "f16")
        self.packed = LmLayout(network, matrices, library)
        self.vectors, self.vocabulary_size = self.packed.vectors, network.output.linear.out_features
        self.max_length = network.decoder_input.positions.max_length

    @staticmethod
    def unsupported_features(network: Any) -> list[str]:
        """Why a network has no quantised steps; empty where it has."""
        return list(_unsupported(network))

    @torch.inference_mode()
    def start(self, *_source: Tensor, window: int | None = None) -> NativeState:
        window = smaller_window(self.network.config.window, window)
        return NativeState(self._new_pool(self.packed.layers), torch.empty(1, 64, dtype=torch.int32), window)

    def step(self, ids: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        logits, _ = self._step(ids, state)
        return logits, state

    def step_last(self, ids: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        """What `step` returns, with the logits after the last token only: (B, 1, V)."""
        logits, _ = self._step(ids, state, last=True)
        return logits, state

    def step_seeing(
        self, ids: Tensor, state: NativeState, heads: Sequence[SeenHead], last: bool = False
    ) -> tuple[Tensor, list[Tensor], NativeState]:
        self._check_heads(heads)
        logits, found = self._step(ids, state, last, [heads])
        return logits, [weights for group in found for weights in group], state

    def see(self, ids: Tensor, state: NativeState, groups: Sequence[Sequence[SeenHead]]) -> list[Tensor]:
        for heads in groups:
            self._check_heads(heads)
        return self._step(ids, state, None, groups)[1]

    def can_see(self, head: SeenHead) -> bool:
        layers = self.packed.layers
        known = 0 <= head.layer < len(layers) and 0 <= head.head < layers[head.layer].heads
        return known and not head.cross and head.tensor == "weights"

    @torch.inference_mode()
    def _step(
        self, ids: Tensor, state: NativeState, last: bool | None = False, groups: Sequence[Sequence[SeenHead]] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, T, V), with `last` (B, 1, V), with None (B, 0, V); and the weights (H, B, T, S) of each group."""
        rows, tokens = ids.shape
        self._check_rows(rows, state)
        kept = 0 if last is None else min(1, tokens) if last else tokens  # logits of each row
        logits = torch.empty(rows, kept, self.vocabulary_size)
        if not rows * tokens:
            return logits, []
        own = known_ids(ids, self.vectors.count)
        read = state.length if state.unequal is None else int(state.unequal.lengths.max())
        model = self.packed.reach(read + tokens)  # a text that is too long is refused before the state changes
        if rows > len(state.lists):  # a language model starts with one row for all
            state.lists = state.lists.expand(rows, -1).clone()
        state.extend(rows, tokens)
        cache = self._cache(state)
        found = [torch.empty(len(heads), rows, tokens, cache.length) for heads in groups]
        wanted = [
            CLmSeen(head.layer, head.head, weights.data_ptr())
            for heads, group in zip(groups, found, strict=True)
            for head, weights in zip(heads, group, strict=True)
        ]
        seen = (CLmSeen * len(wanted))(*wanted)
        with self.threads.choose(rows * tokens) as trial:
            step = CLmStep(
                *(own.ctypes.data, None if last is None else logits.data_ptr(), ctypes.addressof(seen)),
                *(rows, rows * tokens, bool(last), self.exact, len(wanted), trial.threads),
            )
            failed = self.library.clearhead_lm_step(*map(ctypes.byref, (model, cache, step)))
        if failed == NO_MEMORY:
            raise MemoryError(f"out of memory in a step of {rows * tokens} tokens")
        if failed:
            raise ShapeError(f"a step of {rows} rows with {tokens} tokens each has {REFUSALS[failed]}")
        return logits, found

    def can_search(self, _state: NativeState, _prompts: Prompts, _settings: Settings) -> bool:
        return False


def _unsupported(network: Any) -> Iterator[str]:
    if not isinstance(network, LanguageModel):
        yield "it is not a language model of Transformer blocks"
        return
    weight = next(network.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        yield f"it computes in {weight.dtype} on {weight.device}"
    if not network.tokens.is_sum or not network.tokens.positions.is_added:
        yield "token vectors that are more than token and position"
    if type(network.output.transform) is not nn.Identity:
        yield "a layer before the output"
    for part in network.stack.modules():
        if isinstance(part, MultiHeadAttention):
            yield from _unsupported_attention(part)
        if isinstance(part, RelativePositions) and position_form(part, 1) is None:
            yield f"the positions {part.scheme}"
        if isinstance(part, Residual):
            form = part.native_form()
            norms = () if form is None else (form.before, form.inside, form.after)
            if form is None or any(norm is not None and norm_form(norm) is None for norm in norms):
                yield f"the placement or norm of {type(part).__name__}"
        if isinstance(part, FeedForwardLayer):
            feed = part.native_form()
            if feed is None or feed.activation not in ACTIVATIONS:
                yield "an activation of its own"


def _unsupported_attention(part: MultiHeadAttention) -> Iterator[str]:
    softmax = isinstance(part.kernel, Fused) or part.kernel.normalize is Fused.normalize
    if not softmax or scale_and_cap(part.kernel.score, part.key_dim)[0] is None:
        yield "a custom attention score or normalisation"
    if any(not isinstance(norm, NoNorm) and norm_form(norm) is None for norm in (part.query_norm, part.key_norm)):
        yield "a custom norm of queries and keys"
