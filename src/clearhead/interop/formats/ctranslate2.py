"""CTranslate2's models of translation, OpenNMT's among them: a folder with model.bin and vocabularies.

    model.bin    version, kind, revision, then name, shape, type and bytes of each variable, then aliases

Matrices are floats, int16 with one scale, or int8 with a scale for each row: number = integer / scale. Queries, keys
and values are one matrix. Source and target may have vocabularies of their own: the result has one that holds both, in
which the rows of a side that lacks a token are zeros, and the logits of what the target lacks are very low.

    D width, V tokens
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library
from torch import Tensor

from clearhead.errors import RunError
from clearhead.interop.checkpoint import FORMATS, Checkpoint, Format, TokenizerFiles
from clearhead.interop.formats.base.lazy import LazyTensors
from clearhead.interop.formats.base.torch_file import settings_beside

KINDS = {"TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 0}  # heads; 0: the file tells
TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")  # by their numbers since version 4
TYPES_BY_SIZE = {4: "<f4", 2: "<i2", 1: "i1"}
VERSIONS = range(2, 7)
ACTIVATIONS = ("relu", "gelu_new", "silu", "gelu", "quick_gelu", "tanh", "sigmoid")
SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")
POSITIONS = 1024  # rows of a table that is computed
ABSENT = -1e9  # the logit of a token that the target lacks
UNSUPPORTED = {  # a variable of a decoder: what it stands for
    "alibi": "ALiBi positions",
    "start_from_zero_embedding": "a first token without an embedding",
    "layernorm_embedding": "a norm after the embedding",
    "relative_position_keys": "relative positions of keys",
    "relative_attention_bias": "relative positions",
}


@FORMATS.register("ctranslate2")
class CTranslate2(Format):
    """A folder with CTranslate2's model.bin, or that file."""

    def can_read(self, path: Path) -> bool:
        path = path / "model.bin" if path.is_dir() else path
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(64)
        if len(head) < 16 or struct.unpack_from("<I", head)[0] not in VERSIONS:
            return False
        length = struct.unpack_from("<H", head, 4)[0]
        name = head[6 : 6 + length]
        return 1 < length < 56 and name.endswith(b"\0") and name[:-1].isalnum()

    def read(self, path: Path) -> Checkpoint:
        file = path / "model.bin" if path.is_dir() else path
        model = Variables(file)
        if model.kind not in KINDS:
            known = "translation Transformers"
            raise RunError(f"{file} is a CTranslate2 model of the kind {model.kind}; Clearhead reads {known}")
        _refuse_unsupported(model)
        source, target = _vocabularies(file, model)
        union = list(dict.fromkeys([*target, *source]))
        tensors = _tensors(model, source, target, union)
        settings = settings_beside(file)
        tokenizer = _tokenizer(union, target, settings)
        config = _config(model, union, settings)
        return Checkpoint(path, config, LazyTensors(tensors), tokenizer, model.skipped(), model.precision())


class Variables:
    """The variables of a model.bin, mapped and not yet read."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as problem:
            raise RunError(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}") from None
        self._place = 0
        self.found: dict[str, tuple[str, tuple[int, ...], int, int]] = {}  # name: type, shape, offset, bytes
        self.used: set[str] = set()
        try:
            self._read()
        except (struct.error, UnicodeDecodeError, IndexError, KeyError):
            raise RunError(f"{path} is damaged or cut off at byte {self._place:,}") from None

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._content, self._place)
        self._place += struct.calcsize(f"<{form}")
        return int(value)

    def _string(self) -> str:
        length = self._number("H")
        self._place += length
        return bytes(self._content[self._place - length : self._place]).decode().rstrip("\0")

    def _read(self) -> None:
        version = self._number("I")
        self.kind, self.revision = self._string(), self._number("I")
        for _ in range(self._number("I")):
            name = self._string()
            shape = tuple(self._number("I") for _ in range(self._number("B")))
            if version >= 4:
                kind, size = TYPES[self._number("B")], self._number("I")
            else:
                item = self._number("B")
                kind, size = TYPES_BY_SIZE[item], item * self._number("I")
            if size > len(self._content) - self._place or size != prod(shape) * _item_size(kind):
                raise RunError(f"{self.path} is damaged or cut off: {name} of shape {shape} has {size:,} bytes")
            self.found[name] = (kind, shape, self._place, size)
            self._place += size
        if version >= 3:
            for _ in range(self._number("I")):
                alias, name = self._string(), self._string()
                self.found[alias] = self.found[name]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def stored(self, name: str) -> NDArray[Any]:
        """A variable as it is stored, bfloat16 as float32."""
        if name not in self.found:
            raise RunError(f"{self.path} is damaged: it has no variable {name}")
        kind, shape, offset, size = self.found[name]
        if kind == "bfloat16":
            halves = np.frombuffer(self._content, "<u2", size // 2, offset).astype("<u4") << 16
            return halves.view("<f4").reshape(shape)
        return np.frombuffer(self._content, kind, prod(shape), offset).reshape(shape)

    def scalar(self, name: str, default: float) -> float:
        if name not in self:
            return default
        self.used.add(name)
        return float(self.stored(name))

    def weight(self, name: str) -> Tensor:
        """A matrix or vector as floats."""
        values = self.stored(name)
        if values.dtype.kind == "i":
            scale = self.stored(f"{name}_scale").astype(np.float32)
            values = values.astype(np.float32) / (scale.reshape(-1, 1) if scale.ndim else scale)
        return torch.from_numpy(values.copy())

    def precision(self) -> str:
        kinds = {kind for name, (kind, shape, *_) in self.found.items() if shape and not name.endswith("_scale")}
        stored = [name for kind, name in (("i1", "int8"), ("<i2", "int16")) if kind in kinds]
        if stored:
            return f"{', '.join(stored)} dequantised to float32"
        return "float16" if "<f2" in kinds else "float32"

    def skipped(self) -> dict[str, str]:
        settings = [name for name, (_, shape, *_) in self.found.items() if not shape and name not in self.used]
        return dict.fromkeys(settings, "a setting that changes nothing here")


def _item_size(kind: str) -> int:
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize


def _refuse_unsupported(model: Variables) -> None:
    for name in model.found:
        last = name.rpartition("/")[2]
        if last in UNSUPPORTED and (model.found[name][1] or model.scalar(name, 0)):
            raise RunError(f"{model.path} has {UNSUPPORTED[last]}, which Clearhead does not read from CTranslate2")


# --- names ---


def _tensors(
    model: Variables, source: list[str], target: list[str], union: list[str]
) -> dict[str, Callable[[], Tensor]]:
    """Hugging Face's names (those of M2M100) of all tensors."""
    spread = partial(_spread, union=union)
    embedding = next(name for name in ("encoder/embeddings_0/weight", "encoder/embeddings/weight") if name in model)
    found: dict[str, Callable[[], Tensor]] = {
        "model.encoder.embed_tokens.weight": lambda: spread(model.weight(embedding), source),
        "model.decoder.embed_tokens.weight": lambda: spread(model.weight("decoder/embeddings/weight"), target),
        "lm_head.weight": lambda: spread(model.weight("decoder/projection/weight"), target),
        "final_logits_bias": lambda: _output_bias(model, target, union),
    }
    for side in ("encoder", "decoder"):
        if not _is_rotary(model):
            found[f"model.{side}.embed_positions.weight"] = partial(_positions, model, side)
        if f"{side}/layer_norm/gamma" in model:
            found |= _norm(model, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in range(_layers(model, side)):
            found |= _block(model, f"{side}/layer_{layer}", f"model.{side}.layers.{layer}")
    return found


def _is_rotary(model: Variables) -> bool:
    return "encoder/layer_0/self_attention/rotary_dim" in model


def _positions(model: Variables, side: str) -> Tensor:
    """(positions, D): the stored table, or the library's own, sines before cosines and the first position is 1."""
    name = f"{side}/position_encodings/encodings"
    if name in model:
        return model.weight(name)
    _, (_, dim), *_ = model.found["decoder/embeddings/weight"]
    speed = 10000.0 ** (-torch.arange(dim // 2, dtype=torch.float64) / max(dim // 2 - 1, 1))
    angle = torch.arange(1, POSITIONS + 1, dtype=torch.float64).unsqueeze(-1) * speed
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()


def _block(model: Variables, name: str, theirs: str) -> dict[str, Callable[[], Tensor]]:
    own = f"{name}/self_attention"
    found = {
        **_linear(model, f"{own}/linear_0", *(f"{theirs}.self_attn.{part}_proj" for part in "qkv")),
        **_linear(model, f"{own}/linear_1", f"{theirs}.self_attn.out_proj"),
        **_norm(model, f"{own}/layer_norm", f"{theirs}.self_attn_layer_norm"),
        **_linear(model, f"{name}/ffn/linear_0", f"{theirs}.fc1"),
        **_linear(model, f"{name}/ffn/linear_1", f"{theirs}.fc2"),
        **_norm(model, f"{name}/ffn/layer_norm", f"{theirs}.final_layer_norm"),
    }
    if (cross := f"{name}/attention/linear_0/weight") in model:
        cross = f"{name}/attention"
        found |= _linear(model, f"{cross}/linear_0", f"{theirs}.encoder_attn.q_proj")
        found |= _linear(model, f"{cross}/linear_1", f"{theirs}.encoder_attn.k_proj", f"{theirs}.encoder_attn.v_proj")
        found |= _linear(model, f"{cross}/linear_2", f"{theirs}.encoder_attn.out_proj")
        found |= _norm(model, f"{cross}/layer_norm", f"{theirs}.encoder_attn_layer_norm")
    return found


def _linear(model: Variables, name: str, *theirs: str) -> dict[str, Callable[[], Tensor]]:
    """One matrix, or several whose outputs are side by side; without a bias it has zeros."""
    found: dict[str, Callable[[], Tensor]] = {}
    for index, each in enumerate(theirs):
        found[f"{each}.weight"] = partial(_part, model, f"{name}/weight", index, len(theirs))
        found[f"{each}.bias"] = partial(_part, model, f"{name}/bias", index, len(theirs))
    return found


def _part(model: Variables, name: str, index: int, count: int) -> Tensor:
    if name.endswith("/bias") and name not in model:
        rows = model.found[name.removesuffix("bias") + "weight"][1][0]
        return torch.zeros(rows // count)
    return model.weight(name).chunk(count)[index].contiguous()


def _norm(model: Variables, name: str, theirs: str) -> dict[str, Callable[[], Tensor]]:
    if f"{name}/beta" not in model:
        raise RunError(f"{model.path} has RMS norms, which Clearhead does not read from CTranslate2")
    gain, shift = partial(model.weight, f"{name}/gamma"), partial(model.weight, f"{name}/beta")
    return {f"{theirs}.weight": gain, f"{theirs}.bias": shift}


def _layers(model: Variables, side: str) -> int:
    return len(
        {name.split("/")[1] for name in model.found if name.startswith(f"{side}/layer_") and name.count("/") > 2}
    )


def _spread(table: Tensor, tokens: list[str], union: list[str]) -> Tensor:
    """(V, D) -> (V of both, D): zeros where a side lacks a token."""
    rows = {token: row for row, token in enumerate(union)}
    wide = table.new_zeros(len(union), *table.shape[1:])
    wide[torch.tensor([rows[token] for token in tokens])] = table
    return wide


def _output_bias(model: Variables, target: list[str], union: list[str]) -> Tensor:
    """(1, V of both)."""
    own = "decoder/projection/bias"
    bias = model.weight(own) if own in model else torch.zeros(len(target))
    known = _spread(torch.ones(len(target)), target, union).bool()
    return _spread(bias, target, union).masked_fill(~known, ABSENT).unsqueeze(0)


def _config(model: Variables, union: list[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    heads = int(model.scalar("encoder/num_heads", KINDS[model.kind]))
    _, (_, dim), *_ = model.found["decoder/embeddings/weight"]
    _, (inner, _), *_ = model.found["encoder/layer_0/ffn/linear_0/weight"]
    if heads < 1 or dim % heads:
        raise RunError(f"{model.path} is damaged: {heads} heads do not divide a width of {dim}")
    rows = {token: row for row, token in enumerate(union)}
    return {
        "model_type": "opennmt",
        "architectures": ["OpenNMT"],
        "vocab_size": len(union),
        "d_model": dim,
        "encoder_layers": _layers(model, "encoder"),
        "decoder_layers": _layers(model, "decoder"),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "activation_function": ACTIVATIONS[int(model.scalar("encoder/activation", 0))],
        "normalize_before": bool(model.scalar("encoder/pre_norm", 1)),
        "layer_norm_eps": settings.get("layer_norm_epsilon") or 1e-5,
        "embedding_scale": _embedding_scale(model, dim),
        "positions": "rotary" if _is_rotary(model) else "learned",
        "max_position_embeddings": len(_positions(model, "encoder")),
        "rope_theta": model.scalar("encoder/layer_0/self_attention/rotary_base", 10000.0),
        "tie_word_embeddings": False,
        "add_source_eos": bool(settings.get("add_source_eos", False)),
        "pad_token_id": rows.get("<blank>", 0),
        "bos_token_id": rows[settings.get("bos_token", "<s>")],
        "eos_token_id": rows[settings.get("eos_token", "</s>")],
        "decoder_start_token_id": rows[settings.get("decoder_start_token") or "<s>"],
    }


def _embedding_scale(model: Variables, dim: int) -> float:
    """A number, or a byte that says whether it is the root of the width; so it is in older files, which lack both."""
    name = "encoder/scale_embeddings"
    value = model.scalar(name, 1)
    if name not in model or model.found[name][0] == "i1":
        return dim**0.5 if value else 1.0
    return value


# --- vocabularies ---


def _vocabularies(path: Path, model: Variables) -> tuple[list[str], list[str]]:
    """The tokens of source and target; the library adds an unknown token where the file has one fewer than rows."""
    shared = _vocabulary(path.with_name("shared_vocabulary"))
    source, target = (shared or _vocabulary(path.with_name(f"{side}_vocabulary")) for side in ("source", "target"))
    if source is None or target is None:
        raise RunError(f"{path.parent} has no vocabularies: shared_vocabulary, or source_ and target_vocabulary")
    for name, tokens in (("encoder/embeddings", source), ("decoder/embeddings", target)):
        weight = f"{name}_0/weight" if f"{name}_0/weight" in model else f"{name}/weight"
        if weight not in model:
            raise RunError(f"{path} is damaged: it has no variable {weight}")
        rows = model.found[weight][1][0]
        if len(tokens) == rows - 1 and "<unk>" not in tokens:
            tokens.append("<unk>")
        if len(tokens) != rows or len(set(tokens)) != rows:
            raise RunError(f"{path.parent} is damaged: {len(tokens):,} tokens do not fit {rows:,} rows of {weight}")
    return source, target


def _vocabulary(path: Path) -> list[str] | None:
    if (file := path.with_suffix(".json")).is_file():
        try:
            tokens = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise RunError(f"{file} is not valid JSON") from None
        return [str(token) for token in tokens]
    file = path.with_suffix(".txt")
    return file.read_text(encoding="utf-8").removesuffix("\n").split("\n") if file.is_file() else None


def _tokenizer(union: list[str], target: list[str], settings: Mapping[str, Any]) -> TokenizerFiles:
    """A token for each letter, or for each word that stands between spaces where tokens are longer."""
    vocabulary = {token: index for index, token in enumerate(union)}
    usual = [token for token in target if token not in SPECIAL]
    unknown = settings.get("unk_token", "<unk>")
    special = {"bos_token": settings.get("bos_token", "<s>"), "eos_token": settings.get("eos_token", "</s>")}
    special |= {"unk_token": unknown, "pad_token": "<blank>" if "<blank>" in vocabulary else unknown}
    if all(len(token) == 1 for token in usual):
        library = Library(models.BPE(vocab=vocabulary, merges=[], unk_token=unknown))
        library.decoder = decoders.Fuse()
    else:
        library = Library(models.WordLevel(vocabulary, unk_token=unknown))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        library.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # joins tokens by spaces
    named = dict.fromkeys([*special.values(), *(token for token in SPECIAL if token in vocabulary)])
    library.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in named])
    ends = bool(settings.get("add_source_eos", False))
    return TokenizerFiles(library.to_str(), special, add_bos=False, add_eos=ends, chat_template=None)
