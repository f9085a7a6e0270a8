"""ONNX, for onnxruntime and everything that reads it; batch and lengths are free.

    language model   model.onnx     input_ids (B, T), past_key_values.N.key and .value (B, G, S, K)
                                    -> logits (B, T, V), present.N.key and .value (B, G, S + T, K)
    translator       encoder.onnx   input_ids (B, S), or pixel_values -> encoder_mask (B, 1, S), cross.N.key and .value
                     decoder.onnx   input_ids (B, T), encoder_mask, cross.N.…, past_key_values.N.…
                                    -> logits, present.N.…
    all others       model.onnx     input_ids, or pixel_values -> logits

The past may have length 0. The network is the one that was trained, with three parts in a form that can be traced for
any length: tables of positions, the cache, and the kernel of attention, which is the explicit equation.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.interop.exporting import EXPORTS, ExportFormat, Write
from clearhead.models.lm import LanguageModel, TextState
from clearhead.models.rnn import RnnLanguageModel
from clearhead.models.seq2seq import EncoderDecoder, TranslationState
from clearhead.nn import DecoderCache, InputPositions, Mask, MultiHeadAttention, NoPositions
from clearhead.nn.cache import Cache, KeysValues
from clearhead.nn.positions import Bias, SinCosTable
from clearhead.tasks.base.predictor import Predictor

LONGEST = 4096  # positions of the tables; learned ones have their own length
NEEDED = ("onnx", "onnxscript")
BATCH, TOKENS, PAST, SOURCE = (torch.export.Dim(name) for name in ("batch", "tokens", "past", "source"))


@EXPORTS.register("onnx")
class Onnx(ExportFormat):
    """One model.onnx, or an encoder and a decoder."""

    def plan(self, model: Predictor, quantise: str | None) -> Write:
        for name in NEEDED:
            try:
                import_module(name)
            except ImportError:
                raise RunError(f"writing ONNX needs the package {name}; pip install 'clearhead[interop]'") from None
        if isinstance(model.network, RnnLanguageModel) or _is_recurrent(model.network) or model.reads == "words":
            raise RunError(f"{model.name}: ONNX export is for Transformers, and {model.description} here is none")
        if rows := getattr(model.config.model, "features", 0):
            what = f"{model.name}: ONNX has no form for the features of words (model.features={rows})"
            raise RunError(f"{what}; train with model.features=0")
        network = traceable(model.network)

        def write(folder: Path) -> None:
            if isinstance(network, LanguageModel):
                _write_language_model(network, folder)
            elif isinstance(network, EncoderDecoder):
                _write_encoder(model, network, folder)
                _write_decoder(network, folder)
            else:
                _write_single(model, network, folder)
            if model.reads != "image":
                model.tokenizer.save(folder / "tokenizer.json")

        return write


def _is_recurrent(network: nn.Module) -> bool:
    return any(isinstance(part, nn.RNNBase) for part in network.modules())


# --- the network in a form that can be traced ---


def traceable(network: nn.Module) -> nn.Module:
    """A copy of a network that torch can trace for any batch and any length."""
    network = copy.deepcopy(network).eval()
    for part in list(network.modules()):
        if isinstance(part, MultiHeadAttention):
            part.kernel = TracedKernel(part.kernel.explicit())  # type: ignore[assignment]
        for name, child in list(part.named_children()):
            if isinstance(child, SinCosTable):
                setattr(part, name, TracedWaves(child))
            elif isinstance(child, InputPositions) and not isinstance(child, NoPositions):
                setattr(part, name, TracedPositions(child))
    return network


class TracedWaves(nn.Module):
    """Sines and cosines from a table of fixed length."""

    sin: Tensor
    cos: Tensor

    def __init__(self, own: SinCosTable):
        super().__init__()
        self.dim = own.dim
        sin, cos = own(0, LONGEST)
        self.register_buffer("sin", sin)
        self.register_buffer("cos", cos)

    def forward(self, start: int, length: int) -> tuple[Tensor, Tensor]:
        at = torch.arange(length) + start
        return self.sin[at], self.cos[at]


class TracedPositions(nn.Module):
    """Position vectors from a table of fixed length."""

    table: Tensor
    has_vectors = True

    def __init__(self, own: InputPositions):
        super().__init__()
        vectors = own.vectors(LONGEST)
        assert vectors is not None
        self.combine = own.combine
        self.register_buffer("table", vectors.detach())

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return self.combine(x, self.table[torch.arange(x.shape[1]) + start])


class TracedKernel(nn.Module):
    """The equation of attention, without a branch that depends on a length."""

    def __init__(self, explicit: Any):
        super().__init__()
        self.score, self.normalize = explicit.score, explicit.normalize

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, offset: int, bias: Bias | None) -> Tensor:
        """q (B, H, T, D), k (B, G, S, D), v (B, G, S, V) -> (B, H, T, V)."""
        query, key = torch.arange(q.shape[2]) + offset, torch.arange(k.shape[2])
        scores = self.score(q, _shared(k, q.shape[1]))
        if bias is not None:
            scores = scores + bias(query, key)
        weights: Tensor = self.normalize(scores, _visible(mask, query.unsqueeze(-1) - key))
        return weights @ _shared(v, q.shape[1])


def _visible(mask: Mask, gap: Tensor) -> Tensor | None:
    """Which keys a query may see, by how far they lie behind it (T, S), and by the table of the mask."""
    found = [gap >= 0] if mask.causal else []
    found += [] if mask.window is None else [gap.abs() < mask.window]
    if mask.table is not None:
        found.append(mask.table.unsqueeze(-3) if mask.table.dim() == 3 else mask.table)
    visible = None
    for each in found:
        visible = each if visible is None else visible & each
    return visible


def _shared(x: Tensor, heads: int) -> Tensor:
    """(B, G, S, D) -> (B, H, S, D)."""
    groups = x.shape[1]
    return x if groups == heads else x.unsqueeze(2).expand(-1, -1, heads // groups, -1, -1).flatten(1, 2)


class TracedCache(Cache):
    """Keys and values that are inputs of the graph; those of the new tokens are appended."""

    def __init__(self, keys: Tensor, values: Tensor):
        self.keys, self.values, self.start = keys, values, keys.shape[2]

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        k, v = project()
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        return self.keys, self.values

    def reorder(self, rows: Tensor) -> None:
        """Beams are reordered by whoever runs the graph."""
        raise AssertionError("a traced step has no beams")

    @property
    def bytes(self) -> int:
        return 0


class TracedMemory(TracedCache):
    """Keys and values of the encoder's output, which are inputs too."""

    def extend(self, queries: int, project: Callable[[], KeysValues]) -> KeysValues:
        return self.keys, self.values


# --- graphs ---


def _pairs(tensors: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _names(kind: str, layers: int) -> list[str]:
    return [f"{kind}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _empty(attention: MultiHeadAttention, length: int) -> list[Tensor]:
    """Keys and values to trace with."""
    sizes = (attention.key_dim, attention.value_dim)
    return [torch.zeros(2, attention.kv_heads, length, size) for size in sizes]


class LanguageModelGraph(nn.Module):
    """The next tokens and the past -> logits and the new past."""

    def __init__(self, network: LanguageModel):
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        caches = [TracedCache(*pair) for pair in _pairs(tuple(past))]
        logits, _ = self.network.step(input_ids, TextState(list(caches), length=caches[0].start))
        return (logits, *(each for cache in caches for each in (cache.keys, cache.values)))


def _write_language_model(network: LanguageModel, folder: Path) -> None:
    blocks: Any = network.stack.blocks
    past = [each for block in blocks for each in _empty(block.self_attention, 3)]
    _export(
        LanguageModelGraph(network),
        (torch.zeros(2, 2, dtype=torch.long), past),
        folder / "model.onnx",
        ["input_ids", *_names("past_key_values", len(blocks))],
        ["logits", *_names("present", len(blocks))],
        ({0: BATCH, 1: TOKENS}, [{0: BATCH, 2: PAST}] * len(past)),
    )


class EncoderGraph(nn.Module):
    """The source -> its mask, and the keys and values of each block of the decoder."""

    def __init__(self, network: EncoderDecoder):
        super().__init__()
        self.network = network

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        memory, mask = self.network.encode(source)
        blocks: Any = self.network.decoder.blocks
        return (mask, *(each for block in blocks for each in block.cross_attention.keys_and_values(memory)))


def _write_encoder(model: Predictor, network: EncoderDecoder, folder: Path) -> None:
    source, name, free = _source(model)
    outputs = ["encoder_mask", *_names("cross", len(network.decoder.blocks))]
    _export(EncoderGraph(network), (source,), folder / "encoder.onnx", [name], outputs, (free,))


class DecoderGraph(nn.Module):
    """The next tokens, the source's keys and values, and the past -> logits and the new past."""

    def __init__(self, network: EncoderDecoder):
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, encoder_mask: Tensor, cross: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        own = [TracedCache(*pair) for pair in _pairs(tuple(past))]
        memory = [TracedMemory(*pair) for pair in _pairs(tuple(cross))]
        caches = [DecoderCache(one, other) for one, other in zip(own, memory, strict=True)]
        # The memory itself is not read: its keys and values are in the caches.
        state = TranslationState(cross[0], encoder_mask, caches, length=own[0].start)
        logits, _ = self.network.step(input_ids, state)
        return (logits, *(each for cache in own for each in (cache.keys, cache.values)))


def _write_decoder(network: EncoderDecoder, folder: Path) -> None:
    blocks: Any = network.decoder.blocks
    cross = [each for block in blocks for each in _empty(block.cross_attention, 4)]
    past = [each for block in blocks for each in _empty(block.self_attention, 3)]
    names = [*_names("cross", len(blocks)), *_names("past_key_values", len(blocks))]
    _export(
        DecoderGraph(network),
        (torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 1, 4, dtype=torch.bool), cross, past),
        folder / "decoder.onnx",
        ["input_ids", "encoder_mask", *names],
        ["logits", *_names("present", len(blocks))],
        (
            {0: BATCH, 1: TOKENS},
            {0: BATCH, 2: SOURCE},
            [{0: BATCH, 2: SOURCE}] * len(cross),
            [{0: BATCH, 2: PAST}] * len(past),
        ),
    )


def _write_single(model: Predictor, network: nn.Module, folder: Path) -> None:
    source, name, free = _source(model)
    _export(network, (source,), folder / "model.onnx", [name], ["logits"], (free,))


def _source(model: Predictor) -> tuple[Tensor, str, dict[int, Any]]:
    """Something that the network reads, its name, and its free sizes."""
    sizes = model.meta.sizes
    if model.reads == "image":
        return torch.zeros(2, sizes.channels, sizes.height, sizes.width), "pixel_values", {0: BATCH}
    return torch.full((2, 4), model.tokenizer.stop), "input_ids", {0: BATCH, 1: SOURCE}


def _export(
    graph: nn.Module,
    inputs: tuple[Any, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    dynamic_shapes: tuple[Any, ...],
) -> None:
    """Trace and write one graph; the exporter's own progress is not shown."""
    noise, level = logging.getLogger("torch.onnx"), logging.getLogger("torch.onnx").level
    noise.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(),
                inputs,
                path,
                input_names=input_names,
                output_names=output_names,
                dynamic_shapes=dynamic_shapes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        noise.setLevel(level)
