"""llama2.c's checkpoints: a header of seven numbers, then float32 weights in a fixed order (versions 0 and 1), or
8-bit groups with a scale each (version 2). The tokenizer is a file beside it: tok512.bin, tokenizer.bin.

    D width, F feed-forward width, L layers, V vocabulary, K width of all keys, T positions
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format, TokenizerFiles
from clearhead.interop.formats.base.gguf_architectures import halves_from_pairs
from clearhead.interop.formats.base.gguf_tokenizer import CONTROL, add_ends, sentence_piece
from clearhead.interop.formats.base.lazy import LazyTensors

MAGIC = 0x616B3432  # "ak42", of versions 1 and 2
HEADER = 256  # bytes of their header
SMALLEST = 28  # bytes of version 0's
LARGEST = 1 << 24  # of any size in a header

SpanT = tuple[str, tuple[int, ...]]  # Hugging Face's name (or a reason to skip), shape


@dataclass(frozen=True)
class Header:
    """What a checkpoint says of itself."""

    version: int
    dim: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    positions: int
    tied: bool
    group: int = 0  # numbers that share a scale; 0: float32

    @property
    def key_width(self) -> int:
        return self.dim * self.kv_heads // self.heads

    @property
    def start(self) -> int:
        return HEADER if self.version else SMALLEST

    def spans(self) -> Iterator[SpanT]:
        """The tensors in the order of the file; those of one kind follow each other layer by layer."""
        D, F, K, V = self.dim, self.inner, self.key_width, self.vocabulary
        attention = [("self_attn.q_proj", (D, D)), ("self_attn.k_proj", (K, D)), ("self_attn.v_proj", (K, D))]
        matrices = [*attention, ("self_attn.o_proj", (D, D))]
        gated = [("mlp.gate_proj", (F, D)), ("mlp.down_proj", (D, F)), ("mlp.up_proj", (F, D))]
        first, second, last = ("input_layernorm", (D,)), ("post_attention_layernorm", (D,)), ("model.norm.weight", (D,))
        embedding = ("model.embed_tokens.weight", (V, D))
        if self.version == 0:
            table = (self.positions, D // self.heads // 2)
            yield embedding
            yield from self._layers([first, *matrices, second, *gated])
            yield from (last, ("rope.cos", table), ("rope.sin", table))
        else:
            yield from self._layers([first, second])
            yield from (last, embedding)
            yield from self._layers([*matrices, *gated])
        if not self.tied:
            yield "lm_head.weight", (V, D)

    def _layers(self, parts: Sequence[SpanT]) -> Iterator[SpanT]:
        for name, shape in parts:
            yield from ((f"model.layers.{layer}.{name}.weight", shape) for layer in range(self.layers))

    def size(self, shape: tuple[int, ...]) -> int:
        """The bytes of one tensor: norms are never quantised."""
        count = prod(shape)
        return 4 * count if not self.group or len(shape) == 1 else count + 4 * (count // self.group)

    def total(self) -> int:
        return self.start + sum(self.size(shape) for _, shape in self.spans())


@FORMATS.register("llama2c")
class Llama2c(Format):
    """A .bin file of llama2.c; nothing but its exact length tells a version 0 from other files."""

    def can_read(self, path: Path) -> bool:
        header = read_header(path) if path.is_file() else None
        return header is not None and (header.version > 0 or header.total() == path.stat().st_size)

    def read(self, path: Path) -> Checkpoint:
        header = read_header(path)
        if header is None:
            raise RunError(f"{path} is not a checkpoint of llama2.c")
        if header.total() != path.stat().st_size:
            have, want = path.stat().st_size, header.total()
            raise RunError(f"{path} is damaged or cut off: it has {have:,} bytes, and its header needs {want:,}")
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": header.dim,
            "intermediate_size": header.inner,
            "num_hidden_layers": header.layers,
            "num_attention_heads": header.heads,
            "num_key_value_heads": header.kv_heads,
            "head_dim": header.dim // header.heads,
            "max_position_embeddings": header.positions,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "vocab_size": header.vocabulary,
            "tie_word_embeddings": header.tied,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        tensors, skipped = _tensors(path, header)
        precision = "8-bit groups dequantised to float32" if header.group else "float32"
        return Checkpoint(path, config, LazyTensors(tensors), _tokenizer(path, header), skipped, precision)


def read_header(path: Path) -> Header | None:
    """The header of a file; None if it cannot be one."""
    with path.open("rb") as file:
        start = file.read(HEADER)
    if len(start) < SMALLEST:
        return None
    version, sizes, tied, group = 0, struct.unpack_from("<7i", start), True, 0
    if struct.unpack_from("<I", start)[0] == MAGIC and len(start) == HEADER:
        version, sizes = struct.unpack_from("<i", start, 4)[0], struct.unpack_from("<7i", start, 8)
        tied = bool(start[36])
        group = struct.unpack_from("<i", start, 37)[0] if version == 2 else 0
        if version not in (1, 2) or (version == 2 and not 0 < group < LARGEST):
            return None
    else:
        sizes, tied = (*sizes[:5], abs(sizes[5]), sizes[6]), sizes[5] > 0  # a negative vocabulary: an output of its own
    dim, inner, layers, heads, kv_heads, vocabulary, positions = sizes
    if not all(0 < size < LARGEST for size in sizes) or dim % (2 * heads) or heads % kv_heads:
        return None
    return Header(version, dim, inner, layers, heads, kv_heads, vocabulary, positions, tied, group)


def _tensors(path: Path, header: Header) -> tuple[dict[str, Callable[[], Tensor]], dict[str, str]]:
    found: dict[str, Callable[[], Tensor]] = {}
    skipped: dict[str, str] = {}
    offset = header.start
    for name, shape in header.spans():
        if name.startswith("rope."):
            skipped[name] = "its values are computed from the configuration"
        else:
            found[name] = partial(_read, path, header, name, shape, offset)
        offset += header.size(shape)
    return found, skipped


def _read(path: Path, header: Header, name: str, shape: tuple[int, ...], offset: int) -> Tensor:
    count = prod(shape)
    if not header.group or len(shape) == 1:
        numbers = np.fromfile(path, "<f4", count, offset=offset)
    else:
        whole = np.fromfile(path, np.int8, count, offset=offset).reshape(-1, header.group).astype(np.float32)
        numbers = whole * np.fromfile(path, "<f4", count // header.group, offset=offset + count)[:, None]
    weight = torch.from_numpy(numbers.reshape(shape))
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = header.heads if "q_proj" in name else header.kv_heads
        return halves_from_pairs(weight, heads).contiguous()
    return weight


# --- tokenizer ---


def _tokenizer(path: Path, header: Header) -> TokenizerFiles | None:
    """The tokenizer beside a checkpoint: the file that is named after its size, or the usual one."""
    for name in (f"tok{header.vocabulary}.bin", "tokenizer.bin"):
        if (beside := path.with_name(name)).is_file():
            return _read_tokenizer(beside, header.vocabulary)
    return None


def _read_tokenizer(path: Path, size: int) -> TokenizerFiles:
    """The longest token's length, then score, length and bytes of each token."""
    content, place = path.read_bytes(), 4
    tokens: list[str] = []
    scores: list[float] = []
    try:
        for _ in range(size):
            score, length = struct.unpack_from("<fi", content, place)
            if not 0 <= length <= len(content) - place - 8:
                raise RunError(f"{path} is damaged or cut off: token {len(tokens)} has {length:,} bytes")
            tokens.append(content[place + 8 : place + 8 + length].decode().replace(" ", "▁"))
            scores.append(score)
            place += 8 + length
    except (struct.error, UnicodeDecodeError):
        raise RunError(f"{path} is damaged or cut off: it has {len(tokens):,} of {size:,} tokens") from None
    tokens[:3] = "<unk>", "<s>", "</s>"  # are stored with line breaks around them
    types = [CONTROL] * 3 + [1] * (size - 3)
    library = sentence_piece(tokens, scores, types, "<unk>", prefix=True, path=path)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    add_ends(library, special, add_bos=True, add_eos=False)
    return TokenizerFiles(library.to_str(), special, add_bos=True, add_eos=False, chat_template=None)
